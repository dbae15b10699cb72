//! The plain HTTP server of the pages: an accept loop with limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

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

/// Enough for probes, scrapers and people.
const CONNECTIONS: usize = 256;

/// istiod's read timeout; also bounds how long a silent connection lives.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until the task is dropped.
pub async fn serve(listener: TcpListener, router: Router) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                // Most likely out of file descriptors: an immediate retry would spin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // The unspecified address matches no `Host`.
        let local = Local(stream.local_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip()));
        let router = router.clone().layer(axum::Extension(Peer(peer))).layer(axum::Extension(local));
        let service = TowerToHyperService::new(router);
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(READ_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                debug!(%peer, %error, "connection ended early");
            }
            drop(slot);
        });
    }
}
