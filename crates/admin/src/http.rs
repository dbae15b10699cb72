//! The plain HTTP server of the pages, and who is connected. Its limits keep room for probes: see `server::http_port`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use server::http_port::{self, HttpConnection, HttpLimits, TrackedStream};
use tracing::debug;
use xds::PortListener;

/// The address of the client; in the extensions of every request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// The local address of the connection; in the extensions of every request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local(pub(crate) IpAddr);

impl Peer {
    /// Also an IPv4-mapped IPv6 loopback address.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

/// Enough for probes, scrapers and people. The time without a request is istiod's read timeout; a request includes the wait for other
/// pages.
const LIMITS: HttpLimits = HttpLimits {
    connections: 256,
    connections_per_address: 64,
    held_bytes: 64 << 20,
    head: Duration::from_secs(10),
    request: Duration::from_secs(60),
    read: Duration::from_secs(10),
    idle: Duration::from_secs(30),
};
/// Of the head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// Of the body of a request, in bytes: a log level.
const MAX_BODY: usize = 4 << 10;

/// Serves until the task is dropped.
pub async fn serve(listener: impl Into<PortListener>, router: Router) {
    let router = router.layer(DefaultBodyLimit::max(MAX_BODY));
    http_port::serve(listener, LIMITS, |stream, connection| serve_connection(stream, connection, router.clone())).await;
}

async fn serve_connection(stream: TrackedStream, connection: Arc<HttpConnection>, router: Router) {
    let (peer, local) = (connection.peer, connection.local);
    let router = router.layer(axum::Extension(Peer(peer))).layer(axum::Extension(Local(local)));
    let service = TowerToHyperService::new(connection.track(router));
    let served = http1::Builder::new()
        // The port has deadlines of its own.
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!(%peer, %error, "connection ended early");
    }
}
