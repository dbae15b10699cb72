//! One HTTP GET of a user-supplied URL: bounded in time, size and redirects, and kept away from blocked addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use config::store::Snapshot;
use http::header::{ACCEPT, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT};
use http::uri::Scheme;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio_rustls::rustls::{self, ClientConfig};

use super::address_filter::AddressFilter;
use super::service_addresses::is_service_address;

/// The keys of an issuer take a few kilobytes.
const LARGEST_BODY: usize = 1 << 20;
const LARGEST_HEAD: usize = 64 << 10;
const MOST_REDIRECTS: usize = 5;
/// Upper bound of the timeout in a JWT rule.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0:?} is not an address of HTTP; write it like https://host/path")]
    Address(String),
    #[error(
        "{host} is {address}, which keys may not be fetched from: private and no Service of the cluster, or in \
         BLOCKED_CIDRS_IN_JWKS_URIS (MELTEMI_ALLOWED_CIDRS_IN_JWKS_URIS allows it)"
    )]
    Closed { host: String, address: IpAddr },
    #[error("cannot resolve {host}")]
    Name { host: String, source: io::Error },
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("cannot connect to {0}")]
    Connect(String, #[source] io::Error),
    #[error("{0:?} is not a valid TLS server name")]
    ServerName(String, #[source] InvalidDnsNameError),
    #[error("TLS handshake with {0} failed")]
    Tls(String, #[source] io::Error),
    #[error("no response from {0}")]
    Http(String, #[source] hyper::Error),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("it redirects from HTTPS to HTTP")]
    Downgrade,
    #[error("it redirects more than {MOST_REDIRECTS} times")]
    Redirects,
    #[error("the redirect has no valid Location")]
    Location,
    #[error("the response is compressed, which was not requested")]
    Compressed,
    #[error("the response is larger than {LARGEST_BODY} bytes")]
    Large,
    #[error("timed out after {0:?}")]
    Time(Duration),
}

#[derive(Clone)]
pub struct JwksClient {
    guard: AddressFilter,
    tls: TlsConnector,
    /// Whose Services may be fetched from.
    objects: watch::Receiver<Arc<Snapshot>>,
}

enum Answer {
    Body(Bytes),
    Elsewhere(Uri),
}

impl JwksClient {
    pub fn new(guard: AddressFilter, tls: Arc<ClientConfig>, objects: watch::Receiver<Arc<Snapshot>>) -> Self {
        Self { guard, tls: TlsConnector::from(tls), objects }
    }

    /// Follows redirects. Lookups of names do not count against `limit`: their threads go on in any case, so that giving up on them would let one
    /// source hold several.
    pub(super) async fn get(&self, written: &str, limit: Duration) -> Result<Bytes, Error> {
        let limit = limit.min(MAX_TIMEOUT);
        let mut left = limit;
        let mut uri: Uri = written.parse().map_err(|_| Error::Address(truncated(written)))?;
        for _ in 0..=MOST_REDIRECTS {
            let (host, addresses) = self.allowed_addresses(&uri).await?;
            let began = Instant::now();
            let answer =
                timeout(left, self.request(&uri, host, &addresses)).await.map_err(|_| Error::Time(limit))??;
            left = left.saturating_sub(began.elapsed());
            match answer {
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

    /// The host of the URL, and those of its addresses that may be connected to.
    pub(super) async fn allowed_addresses<'a>(&self, uri: &'a Uri) -> Result<(&'a str, Vec<SocketAddr>), Error> {
        let bad = || Error::Address(truncated(&uri.to_string()));
        if !is_https(uri) && uri.scheme() != Some(&Scheme::HTTP) {
            return Err(bad());
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if is_https(uri) { 443 } else { 80 });
        let found: Vec<SocketAddr> =
            lookup_host((host, port)).await.map_err(|source| Error::Name { host: truncated(host), source })?.collect();
        let objects = self.objects.borrow().clone();
        let allows = |address: &SocketAddr| self.guard.allows(address.ip(), |ip| is_service_address(&objects, ip));
        let (open, closed): (Vec<_>, Vec<_>) = found.into_iter().partition(allows);
        match (open.is_empty(), closed.first()) {
            (true, Some(address)) => Err(Error::Closed { host: truncated(host), address: address.ip() }),
            (true, None) => Err(Error::NoAddress(truncated(host))),
            _ => Ok((host, open)),
        }
    }

    async fn request(&self, uri: &Uri, host: &str, addresses: &[SocketAddr]) -> Result<Answer, Error> {
        let stream = connect(addresses, host).await?;
        if !is_https(uri) {
            return exchange(stream, uri).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| Error::ServerName(truncated(host), error))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| Error::Tls(truncated(host), error))?;
        exchange(stream, uri).await
    }
}

/// Connects to an address that was checked, so that a name that resolves differently later (DNS rebinding) has no effect.
async fn connect(addresses: &[SocketAddr], host: &str) -> Result<TcpStream, Error> {
    let mut failed = Error::NoAddress(truncated(host));
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = Error::Connect(address.to_string(), error),
        }
    }
    Err(failed)
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, uri: &Uri) -> Result<Answer, Error> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let failed = |error| Error::Http(truncated(authority), error);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(LARGEST_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends with the sender; the request reports its errors.
    tokio::spawn(async move { drop(connection.await) });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // Passwords in a URL are not sent.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, "meltemi")
        .body(Empty::<Bytes>::new())
        .map_err(|_| Error::Address(truncated(&uri.to_string())))?;
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
        let frame = frame.map_err(|error| Error::Http(truncated(&uri.to_string()), error))?;
        if let Some(data) = frame.data_ref() {
            if read.len() + data.len() > LARGEST_BODY {
                return Err(Error::Large);
            }
            read.extend_from_slice(data);
        }
    }
    Ok(Answer::Body(read.freeze()))
}

/// An absolute URL, or a path on the same server.
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

fn truncated(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Client TLS that trusts the system's roots and the PEM certificates in `extra`.
pub fn tls(extra: &[u8]) -> Result<Arc<ClientConfig>, rustls::Error> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(extra).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
