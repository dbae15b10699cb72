//! Certificate signing requests without a pause: how many certificates a CA issues in a given time. Over mutual TLS, on kept connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::Request;
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};

use crate::tls;

const METHOD: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";

#[derive(clap::Args)]
pub struct CsrLoad {
    /// The secure port, on this machine only
    #[arg(long, value_name = "IP:PORT")]
    server: SocketAddr,
    /// File with a token, for the first certificate
    #[arg(long, value_name = "FILE")]
    token: PathBuf,
    /// File with the workload's key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// File with the signing request that is sent again and again
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    /// Connections, each with one request at a time
    #[arg(long, default_value_t = 8)]
    connections: usize,
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

impl CsrLoad {
    /// `files`: token, key and signing request.
    pub fn new(server: SocketAddr, files: [PathBuf; 3], connections: usize, seconds: u64) -> CsrLoad {
        let [token, key, csr] = files;
        CsrLoad { server, token, key, csr, connections, seconds }
    }

    /// How many certificates came, and in how many seconds.
    pub async fn run(&self) -> Result<Value> {
        if !self.server.ip().is_loopback() {
            bail!("{} is not on this machine; load goes to loopback only", self.server);
        }
        let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let (token, csr) = (read(&self.token)?, read(&self.csr)?);
        let body = grpc_frame(&csr);
        let first = self.connect(Arc::new(tls::anonymous()?)).await?;
        let chain = request_certificate(first, &body, Some(token.trim())).await.context("the first certificate")?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain.concat().as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| anyhow!("{e:?}"))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| anyhow!("{}: {e:?}", self.key.display()))?;
        let config = Arc::new(tls::with_certificate(chain, key)?);
        let begun = Instant::now();
        let end = begun + Duration::from_secs(self.seconds);
        let mut workers = Vec::new();
        for _ in 0..self.connections {
            let client = self.connect(config.clone()).await?;
            workers.push(tokio::spawn(request_until(client, body.clone(), end)));
        }
        let mut count = 0;
        for worker in workers {
            count += worker.await??;
        }
        Ok(json!({"certificates": count, "seconds": begun.elapsed().as_secs_f64()}))
    }

    async fn connect(&self, config: Arc<rustls::ClientConfig>) -> Result<SendRequest<Bytes>> {
        let tcp = TcpStream::connect(self.server).await.context("connect")?;
        tcp.set_nodelay(true)?;
        let io = TlsConnector::from(config).connect(tls::server_name(), tcp).await.context("TLS")?;
        let (client, connection) = h2::client::handshake(io).await.context("HTTP/2")?;
        tokio::spawn(async { connection.await.ok() });
        Ok(client)
    }
}

async fn request_until(mut client: SendRequest<Bytes>, body: Bytes, end: Instant) -> Result<usize> {
    let mut count = 0;
    while Instant::now() < end {
        client = client.ready().await?;
        request_certificate(client.clone(), &body, None).await?;
        count += 1;
    }
    Ok(count)
}

async fn request_certificate(mut client: SendRequest<Bytes>, body: &Bytes, token: Option<&str>) -> Result<Vec<String>> {
    let mut request = Request::post(format!("https://istiod.istio-system.svc{METHOD}"));
    request = request.header("content-type", "application/grpc").header("te", "trailers");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let (response, mut sending) = client.send_request(request.body(())?, false)?;
    sending.send_data(body.clone(), true)?;
    let response = response.await?;
    let head = response.headers().clone();
    let mut incoming = response.into_body();
    let mut message = BytesMut::new();
    while let Some(chunk) = incoming.data().await {
        let chunk = chunk?;
        incoming.flow_control().release_capacity(chunk.len())?;
        message.extend_from_slice(&chunk);
    }
    let trailers = incoming.trailers().await?.unwrap_or(head);
    if trailers.get("grpc-status").is_none_or(|status| status != "0") {
        bail!("rejected: {:?} {:?}", trailers.get("grpc-status"), trailers.get("grpc-message"));
    }
    let message = message.get(5..).context("an empty answer")?;
    Ok(IstioCertificateResponse::decode(message)?.cert_chain)
}

fn grpc_frame(csr: &str) -> Bytes {
    let request = IstioCertificateRequest { csr: csr.to_owned(), validity_duration: 3600, metadata: None };
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(request.encoded_len()).unwrap_or(u32::MAX));
    out.put_slice(&request.encode_to_vec());
    out.freeze()
}
