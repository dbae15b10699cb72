//! Connections to the webhook: TLS, then HTTP/1.1 or HTTP/2 by ALPN. An API server offers only `http/1.1` to a webhook behind a Service or
//! at a host that is not its own.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};
use tracing::debug;
use xds::PortListener;

use crate::http_port::{self, HttpConnection, HttpLimits, TrackedStream};

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// An API server has a connection of HTTP/1.1 for each request in flight, all from one address: by default it admits 600 at once, 200 of them
/// changes. It keeps up to 25 idle ones, closes them after 90 s, and waits 30 s at most for a response: none is closed under a request.
pub(super) const LIMITS: HttpLimits = HttpLimits {
    connections: 2048,
    connections_per_address: 1024,
    held_bytes: 32 << 20,
    head: Duration::from_secs(10),
    request: Duration::from_secs(30),
    read: Duration::from_secs(10),
    idle: Duration::from_secs(120),
};

/// Of the head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// An API server sends one request at a time on a connection of HTTP/1.1, and few on one of HTTP/2.
const MAX_STREAMS: u32 = 16;
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The certificate of another port. `clients`: roots of client certificates, which every client must have; `None`: the webhook answers
/// everybody.
pub(super) fn acceptor(tls: &TlsAcceptor, clients: Option<&[ca::Certificate]>) -> Result<TlsAcceptor, Error> {
    let config = tls.config();
    let provider = config.crypto_provider().clone();
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            clients.iter().try_for_each(|root| roots.add(root.der.clone()))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| Error::General(error.to_string()))?)
        }
    };
    let mut config = builder.with_cert_resolver(config.cert_resolver.clone());
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    Ok(Arc::new(config).into())
}

/// Serves until the task is dropped.
pub(super) async fn serve(listener: PortListener, tls: TlsAcceptor, router: Router, limits: HttpLimits) {
    let serve = |stream, connection| serve_connection(stream, connection, tls.clone(), router.clone());
    http_port::serve(listener, limits, serve).await;
}

async fn serve_connection(stream: TrackedStream, connection: Arc<HttpConnection>, tls: TlsAcceptor, router: Router) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = TowerToHyperService::new(connection.track(router));
    let mut builder = Builder::new(TokioExecutor::new());
    // The port has deadlines of its own.
    builder.http1().header_read_timeout(None).max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(PING_INTERVAL))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    // Without ALPN the protocol is HTTP/1.1.
    let builder = match stream.get_ref().1.alpn_protocol() {
        Some(H2) => {
            connection.set_multiplexed();
            builder.http2_only()
        }
        _ => builder.http1_only(),
    };
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        debug!(peer = %connection.peer, %error, "a connection of the webhook ended early");
    }
}

#[cfg(test)]
mod tests;
