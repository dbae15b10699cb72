//! Plain HTTP servers for operators: an accept loop with limits. The pages are beside it.

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

/// Who asks; in the extensions of every request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// The address at which the request arrived; in the extensions of every request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local(pub(crate) IpAddr);

impl Peer {
    /// Also an IPv4 loopback address seen through a socket that takes both families.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

/// Probes, a scraper and a few people: more at once is a mistake or an attack.
const CONNECTIONS: usize = 256;

/// istiod's read timeout; also bounds how long a silent connection lives.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until the task is dropped.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                // Out of file descriptors, most likely: trying again at once would only spin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Unspecified is nobody's address.
        let local = Local(stream.local_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip()));
        let known = router.clone().layer(axum::Extension(Peer(peer))).layer(axum::Extension(local));
        let service = TowerToHyperService::new(known);
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
