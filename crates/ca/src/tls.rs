//! The server's side of TLS: our own certificate and the roots of clients, both replaceable under open connections.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, UnixTime},
    server::{
        ClientHello, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::{Certificate, Private};

/// What the next handshake is answered with.
#[derive(Debug)]
pub struct Serving(ArcSwap<CertifiedKey>);

/// Whose signature on a client's certificate counts.
pub struct Clients(ArcSwap<Arc<dyn ClientCertVerifier>>);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the key of the serving certificate cannot be used: {0}")]
    Key(Error),
    #[error("the roots of clients cannot be used: {0}")]
    Roots(String),
    #[error("TLS cannot be set up: {0}")]
    Setup(Error),
}

impl Serving {
    pub fn new(chain: Vec<Certificate>, key: &Private) -> Result<Arc<Serving>, TlsError> {
        Ok(Arc::new(Serving(ArcSwap::from_pointee(certified(chain, key)?))))
    }

    pub fn replace(&self, chain: Vec<Certificate>, key: &Private) -> Result<(), TlsError> {
        self.0.store(Arc::new(certified(chain, key)?));
        Ok(())
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Clients {
    pub fn new(roots: &[Certificate]) -> Result<Arc<Clients>, TlsError> {
        Ok(Arc::new(Clients(ArcSwap::from_pointee(verifier(roots)?))))
    }

    pub fn replace(&self, roots: &[Certificate]) -> Result<(), TlsError> {
        self.0.store(Arc::new(verifier(roots)?));
        Ok(())
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

/// HTTP/2 only. A client may come without a certificate (with a token then), but never with a wrong one.
pub fn server_config(serving: Arc<Serving>, clients: Arc<Clients>) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
    let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn certified(chain: Vec<Certificate>, key: &Private) -> Result<CertifiedKey, TlsError> {
    let key = key.der().map_err(|why| Error::General(why.to_owned()));
    let key = key.and_then(|key| aws_lc_rs::sign::any_supported_type(&key)).map_err(TlsError::Key)?;
    Ok(CertifiedKey::new(chain.into_iter().map(|certificate| certificate.der).collect(), key))
}

fn verifier(roots: &[Certificate]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.der.clone()).map_err(|e| TlsError::Roots(e.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::new(aws_lc_rs::default_provider()))
        .allow_unauthenticated()
        .build()
        .map_err(|e| TlsError::Roots(e.to_string()))
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None: an agent that was given new roots earlier than we would not send its certificate otherwise.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.load().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.load().verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.load().verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.load().supported_verify_schemes()
    }
}
