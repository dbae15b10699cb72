//! Connections to the webhook: TLS, then HTTP/1.1 or HTTP/2 by ALPN. An API server offers only `http/1.1` to a webhook behind a Service or
//! at a host that is not its own.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{Error, ServerConfig};
use tracing::{debug, warn};

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// An API server keeps up to 25 idle connections of HTTP/1.1, and there may be several.
    connections: usize,
    /// For a handshake, and between pings of a connection of HTTP/2.
    handshake: Duration,
    /// For a request with its body and the answer; an API server waits 30 s at most.
    request: Duration,
    /// Without a request. Longer than the 90 s after which an API server closes an idle connection, so that none is closed under a request.
    idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connections: 256, handshake: seconds(10), request: seconds(30), idle: seconds(120) }
    }
}

/// The certificate of another port, without client certificates: the webhook answers everybody.
pub(super) fn acceptor(tls: &TlsAcceptor) -> Result<TlsAcceptor, Error> {
    let config = tls.config();
    let builder = ServerConfig::builder_with_provider(config.crypto_provider().clone());
    let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
    let mut config = builder.with_cert_resolver(config.cert_resolver.clone());
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    Ok(Arc::new(config).into())
}

/// Serves until the task is dropped.
pub(super) async fn serve(listener: TcpListener, tls: TlsAcceptor, router: Router, limits: Limits) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "cannot accept a connection of the webhook");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tls, router) = (tls.clone(), router.clone());
        tokio::spawn(async move {
            connection(stream, tls, router, limits).await;
            drop(slot);
        });
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, router: Router, limits: Limits) {
    let Ok(Ok(stream)) = timeout(limits.handshake, tls.accept(stream)).await else { return };
    let busy = watch::Sender::new(0);
    let idle = idle(busy.subscribe(), limits.idle);
    let service = TowerToHyperService::new(with_limits(router, busy, limits.request));
    let mut builder = Builder::new(TokioExecutor::new());
    // The head of a request has as long as an idle connection.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(limits.handshake));
    // Without ALPN the protocol is HTTP/1.1.
    let builder = match stream.get_ref().1.alpn_protocol() {
        Some(H2) => builder.http2_only(),
        _ => builder.http1_only(),
    };
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = idle => {
            served.as_mut().graceful_shutdown();
            let Ok(ended) = timeout(limits.handshake, served).await else { return };
            ended
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection of the webhook ended early");
    }
}

/// The router with in-flight requests counted, and limited in time.
fn with_limits(router: Router, busy: watch::Sender<usize>, limit: Duration) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let pending = InFlight::new(&busy);
        async move {
            let answer = timeout(limit, next.run(request)).await;
            drop(pending);
            answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
        }
    }))
}

/// A request in flight; dropped too when its client disconnects.
struct InFlight(watch::Sender<usize>);

impl InFlight {
    fn new(busy: &watch::Sender<usize>) -> InFlight {
        busy.send_modify(|count| *count += 1);
        InFlight(busy.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Returns when there was no request for `limit`.
async fn idle(mut busy: watch::Receiver<usize>, limit: Duration) {
    while busy.wait_for(|count| *count == 0).await.is_ok() {
        if timeout(limit, busy.changed()).await.is_err() {
            return;
        }
    }
    // The counter is dropped with the connection.
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests;
