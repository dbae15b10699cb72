//! The CA client: one `CreateCertificate` call over TLS, with the current token.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use ca::Certificate;
use http::{
    Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};

const METHOD: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
/// The timeout of one call, with its handshake.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A chain of ten certificates has 20 KB.
const MAX_RESPONSE: usize = 1 << 20;

/// The address and trust anchors of the CA, wherever the token comes from.
#[derive(Clone, Debug)]
pub struct CaEndpoint {
    /// `host:port`.
    pub address: String,
    /// The expected name in its certificate. `None`: the host of the address.
    pub name: Option<String>,
    /// PEM file of its roots; read for every call, so that a new root is noticed.
    pub roots: PathBuf,
    /// Additional roots: those of the last response, so that a rotated root needs no new file.
    pub learned: Vec<Certificate>,
}

/// The CA client of one workload.
#[derive(Clone, Debug)]
pub struct CaClient {
    pub signer: CaEndpoint,
    /// The token file of the workload; read for every call.
    pub token: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum CaClientError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}: {why}", path.display())]
    Roots { path: PathBuf, why: String },
    #[error("{address}: cannot be reached: {why}")]
    Unreachable { address: String, why: String },
    #[error("the CA rejected the request: {0}")]
    Rejected(String),
    #[error("invalid response of the CA: {0}")]
    Answer(String),
}

impl CaClient {
    /// The chain for a CSR: leaf first, roots last.
    pub async fn certificate(&self, csr: &str, lifetime: Duration) -> Result<Vec<String>, CaClientError> {
        let token = zeroize::Zeroizing::new(read(&self.token)?);
        self.signer.certificate(&token, csr, lifetime).await
    }
}

impl CaEndpoint {
    /// The chain for a CSR in the name of the token's account: leaf first, roots last.
    pub async fn certificate(&self, token: &str, csr: &str, lifetime: Duration) -> Result<Vec<String>, CaClientError> {
        match timeout(TIMEOUT, self.call(token, csr, lifetime)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unreachable(&format!("no answer within {} s", TIMEOUT.as_secs()))),
        }
    }

    async fn call(&self, token: &str, csr: &str, lifetime: Duration) -> Result<Vec<String>, CaClientError> {
        let connector = TlsConnector::from(self.tls()?);
        let socket = TcpStream::connect(&self.address).await.map_err(|e| self.unreachable(&e))?;
        let socket = connector.connect(self.server_name()?, socket).await.map_err(|e| self.unreachable(&e))?;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                .await
                .map_err(|e| self.unreachable(&e))?;
        let driver = tokio::spawn(connection);
        let request = self.request(token, csr, lifetime)?;
        let answered = match sender.send_request(request).await {
            Ok(response) => answer(response).await,
            Err(error) => Err(self.unreachable(&error)),
        };
        driver.abort();
        answered
    }

    fn request(&self, token: &str, csr: &str, lifetime: Duration) -> Result<Request<Full<Bytes>>, CaClientError> {
        let message = IstioCertificateRequest {
            csr: csr.to_owned(),
            validity_duration: i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX),
            metadata: None,
        };
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
        framed.put_slice(&message.encode_to_vec());
        Request::post(format!("https://{}{METHOD}", self.address))
            .header(CONTENT_TYPE, "application/grpc")
            .header("te", "trailers")
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .body(Full::new(framed.freeze()))
            .map_err(|e| self.unreachable(&e))
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, CaClientError> {
        let wrong = |why: String| CaClientError::Roots { path: self.roots.clone(), why };
        let roots = ca::bundle(&read(&self.roots)?).map_err(|e| wrong(e.to_string()))?;
        let mut store = RootCertStore::empty();
        for root in roots.into_iter().chain(self.learned.iter().cloned()) {
            store.add(root.der).map_err(|e| wrong(e.to_string()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| wrong(e.to_string()))?;
        let mut config = builder.with_root_certificates(store).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    fn server_name(&self) -> Result<ServerName<'static>, CaClientError> {
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        let name = self.name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        ServerName::try_from(name.to_owned()).map_err(|e| self.unreachable(&e))
    }

    fn unreachable(&self, why: &impl ToString) -> CaClientError {
        CaClientError::Unreachable { address: self.address.clone(), why: why.to_string() }
    }
}

async fn answer(response: http::Response<hyper::body::Incoming>) -> Result<Vec<String>, CaClientError> {
    let (head, body) = response.into_parts();
    let whole = Limited::new(body, MAX_RESPONSE).collect().await.map_err(|e| CaClientError::Answer(e.to_string()))?;
    let trailers = whole.trailers().cloned().unwrap_or(head.headers);
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text("grpc-status") != "0" {
        return Err(CaClientError::Rejected(format!("{} (gRPC status {})", text("grpc-message"), text("grpc-status"))));
    }
    let bytes = whole.to_bytes();
    let message = bytes.get(5..).ok_or_else(|| CaClientError::Answer("it is empty".to_owned()))?;
    let response = IstioCertificateResponse::decode(message).map_err(|e| CaClientError::Answer(e.to_string()))?;
    Ok(response.cert_chain)
}

fn read(path: &std::path::Path) -> Result<String, CaClientError> {
    std::fs::read_to_string(path).map_err(|error| CaClientError::File { path: path.to_owned(), error })
}
