//! One HTTP GET of an address that a user wrote: bounded in time, size and redirects, and kept away from closed addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT};
use http::uri::Scheme;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio_rustls::rustls::{self, ClientConfig};

use super::guard::Guard;

/// Keys of an issuer take a few kilobytes.
const LARGEST_BODY: usize = 1 << 20;
const LARGEST_HEAD: usize = 64 << 10;
const MOST_REDIRECTS: usize = 5;
/// Whatever the rule allows.
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0:?} is not an address of HTTP; write it like https://host/path")]
    Address(String),
    #[error("{host} is {address}, which keys may not be fetched from (BLOCKED_CIDRS_IN_JWKS_URIS)")]
    Closed { host: String, address: IpAddr },
    #[error("cannot resolve {host}")]
    Name { host: String, source: io::Error },
    #[error("{0} has no address")]
    Nowhere(String),
    #[error("cannot connect to {0}")]
    Connect(String, #[source] io::Error),
    #[error("{0:?} is no name that a certificate could have")]
    ServerName(String, #[source] InvalidDnsNameError),
    #[error("no TLS with {0}")]
    Tls(String, #[source] io::Error),
    #[error("no answer from {0}")]
    Http(String, #[source] hyper::Error),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("it redirects from HTTPS to HTTP")]
    Downgrade,
    #[error("it redirects more than {MOST_REDIRECTS} times")]
    Redirects,
    #[error("it redirects to nowhere")]
    Location,
    #[error("its answer is compressed, although nobody asked for that")]
    Compressed,
    #[error("its answer is larger than {LARGEST_BODY} bytes")]
    Large,
    #[error("it took longer than {0:?}")]
    Time(Duration),
}

#[derive(Clone)]
pub struct Client {
    guard: Guard,
    tls: TlsConnector,
}

enum Answer {
    Body(Bytes),
    Elsewhere(Uri),
}

impl Client {
    pub fn new(guard: Guard, tls: Arc<ClientConfig>) -> Self {
        Self { guard, tls: TlsConnector::from(tls) }
    }

    pub(super) async fn get(&self, uri: &str, limit: Duration) -> Result<Bytes, Error> {
        let limit = limit.min(LONGEST);
        timeout(limit, self.followed(uri)).await.map_err(|_| Error::Time(limit))?
    }

    async fn followed(&self, written: &str) -> Result<Bytes, Error> {
        let mut uri: Uri = written.parse().map_err(|_| Error::Address(shown(written)))?;
        for _ in 0..=MOST_REDIRECTS {
            match self.asked(&uri).await? {
                Answer::Body(body) => return Ok(body),
                Answer::Elsewhere(next) => {
                    if is_https(&uri) && !is_https(&next) {
                        return Err(Error::Downgrade);
                    }
                    uri = next;
                }
            }
        }
        Err(Error::Redirects)
    }

    async fn asked(&self, uri: &Uri) -> Result<Answer, Error> {
        let bad = || Error::Address(shown(&uri.to_string()));
        if !is_https(uri) && uri.scheme() != Some(&Scheme::HTTP) {
            return Err(bad());
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = self.connected(host, uri.port_u16().unwrap_or(if is_https(uri) { 443 } else { 80 })).await?;
        if !is_https(uri) {
            return exchanged(stream, uri).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| Error::ServerName(shown(host), error))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| Error::Tls(shown(host), error))?;
        exchanged(stream, uri).await
    }

    /// To an address that was looked at: a name that resolves differently a moment later changes nothing.
    async fn connected(&self, host: &str, port: u16) -> Result<TcpStream, Error> {
        let found: Vec<SocketAddr> =
            lookup_host((host, port)).await.map_err(|source| Error::Name { host: shown(host), source })?.collect();
        let (open, closed): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| self.guard.admits(address.ip()));
        if let (true, Some(address)) = (open.is_empty(), closed.first()) {
            return Err(Error::Closed { host: shown(host), address: address.ip() });
        }
        let mut failed = Error::Nowhere(shown(host));
        for address in open {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = Error::Connect(address.to_string(), error),
            }
        }
        Err(failed)
    }
}

async fn exchanged(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, uri: &Uri) -> Result<Answer, Error> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let failed = |error| Error::Http(shown(authority), error);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(LARGEST_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends with the sender; what goes wrong there, the request tells.
    tokio::spawn(async move { drop(connection.await) });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // Passwords in an address stay where they are.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, "meltemi")
        .body(Empty::<Bytes>::new())
        .map_err(|_| Error::Address(shown(&uri.to_string())))?;
    let response = sender.send_request(request).await.map_err(failed)?;
    answer(response, uri).await
}

async fn answer(response: Response<Incoming>, uri: &Uri) -> Result<Answer, Error> {
    let status = response.status();
    if status.is_redirection() {
        return location(&response, uri).map(Answer::Elsewhere);
    }
    if !status.is_success() {
        return Err(Error::Status(status));
    }
    if response.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Error::Compressed);
    }
    let mut body = response.into_body();
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Http(shown(&uri.to_string()), error))?;
        if let Some(data) = frame.data_ref() {
            if read.len() + data.len() > LARGEST_BODY {
                return Err(Error::Large);
            }
            read.extend_from_slice(data);
        }
    }
    Ok(Answer::Body(read.freeze()))
}

/// An address of its own, or a path on the same server.
fn location(response: &Response<Incoming>, uri: &Uri) -> Result<Uri, Error> {
    let text = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).ok_or(Error::Location)?;
    let there: Uri = text.parse().map_err(|_| Error::Location)?;
    if there.scheme().is_some() {
        return Ok(there);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query =
        Some(there.path_and_query().filter(|_| text.starts_with('/')).ok_or(Error::Location)?.clone());
    Uri::from_parts(parts).map_err(|_| Error::Location)
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&Scheme::HTTPS)
}

fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}

/// TLS as clients speak it, trusting the system and whoever is in `extra`, certificates in PEM.
pub fn tls(extra: &[u8]) -> Result<Arc<ClientConfig>, rustls::Error> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(extra).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
