//! Clients with and without certificates, from several addresses, that ask once and look at the answer.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use crate::evaluate::Request;
use crate::random::{IDENTITIES, SERVER_NAMES};

const LONGEST: Duration = Duration::from_secs(20);

pub(crate) struct Clients {
    by_identity: BTreeMap<&'static str, Arc<ClientConfig>>,
    server: Value,
}

impl Clients {
    pub(crate) fn new() -> Result<Clients> {
        let mut params = named("root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone())?;
        let leaf = |names: Vec<SanType>| -> Result<(rcgen::Certificate, KeyPair)> {
            let key = KeyPair::generate()?;
            let mut params = named("leaf");
            params.subject_alt_names = names;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            Ok((params.signed_by(&key, &root)?, key))
        };
        let names = SERVER_NAMES.map(|name| SanType::DnsName(name.try_into().expect("a name")));
        let (certificate, key) = leaf(names.to_vec())?;
        let server = tls(&certificate.pem(), &key.serialize_pem(), &root.pem());
        let mut by_identity = BTreeMap::new();
        for identity in IDENTITIES {
            let (certificate, key) = leaf(vec![SanType::URI(format!("spiffe://{identity}").try_into()?)])?;
            let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
            let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
            let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots.clone())
                .with_client_auth_cert(chain, key)?;
            by_identity.insert(identity, Arc::new(config));
        }
        Ok(Clients { by_identity, server })
    }

    /// What ends mutual TLS for these clients.
    pub(crate) fn server_tls(&self) -> Value {
        self.server.clone()
    }

    /// The HTTP status of the answer.
    pub(crate) async fn status(&self, request: &Request, token: Option<&str>) -> Result<u16> {
        let mut text =
            format!("{} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", request.method, request.path, request.host);
        for (name, value) in &request.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if let Some(token) = token {
            text += &format!("authorization: Bearer {token}\r\n");
        }
        let answer = self.answer(request, &format!("{text}content-length: 0\r\n\r\n")).await?;
        let status = answer.split(' ').nth(1).with_context(|| format!("no status in {answer:?}"))?;
        Ok(status.parse()?)
    }

    /// Whether bytes come back.
    pub(crate) async fn is_served(&self, request: &Request) -> Result<bool> {
        // Fewer would leave open whether they are TLS.
        let text = "some bytes";
        Ok(self.answer(request, text).await? == text)
    }

    async fn answer(&self, request: &Request, text: &str) -> Result<String> {
        timeout(LONGEST, self.exchanged(request, text)).await.context("no answer")?
    }

    async fn exchanged(&self, request: &Request, text: &str) -> Result<String> {
        let stream = connected(request.source, request.port).await?;
        let (Some(principal), Some(name)) = (&request.principal, &request.server_name) else {
            return exchange(stream, text).await;
        };
        let config = self.by_identity.get(principal.as_str()).context("no such client")?.clone();
        let name = ServerName::try_from(name.clone())?;
        exchange(TlsConnector::from(config).connect(name, stream).await?, text).await
    }
}

/// A certificate whose issuer has its own name is taken for a root.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

async fn connected(source: IpAddr, port: u16) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await.context("Envoy does not listen")
}

/// What comes first, or nothing if the other side ends: it may do so without a word.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, text: &str) -> Result<String> {
    let mut answer = [0; 1024];
    let read = match stream.write_all(text.as_bytes()).await {
        Ok(()) => stream.read(&mut answer).await.unwrap_or(0),
        Err(_) => 0,
    };
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

fn tls(certificate: &str, key: &str, root: &str) -> Value {
    let inline = |text: &str| json!({"inline_string": text});
    json!({
        "name": "tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "require_client_certificate": true,
            "common_tls_context": {
                "tls_certificates": [{"certificate_chain": inline(certificate), "private_key": inline(key)}],
                "validation_context": {"trusted_ca": inline(root)},
            },
        },
    })
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { source, remote, port, principal, server_name, method, host, path, headers, claims } = self;
        write!(
            f,
            "{method} {host} {path} to {port} from {source} ({remote}), {principal:?} {server_name:?} {headers:?} {claims:?}"
        )
    }
}
