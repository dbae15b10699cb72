//! HTTP ports that always have room: a connection beyond a limit takes the place of the one that has made no progress for longest. However
//! many clients are idle, send half a request or read no response, a probe is answered. What is served is decided by the caller.

mod connection_table;
mod tracked_stream;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use bytes::BytesMut;
use http_body_util::BodyExt;
use tokio::time::{Instant, interval, sleep, timeout};
use tracing::warn;
use xds::PortListener;

use connection_table::{ConnectionId, ConnectionTable, Phase};
pub use tracked_stream::TrackedStream;

#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    pub connections: usize,
    pub connections_per_address: usize,
    /// Bytes of bodies that are being received and of responses that are being written, over all connections.
    pub held_bytes: usize,
    /// For the head of a request; of a new connection from when it was accepted, with its TLS handshake.
    pub head: Duration,
    /// For the rest of a request and the computation of its response.
    pub request: Duration,
    /// For a client to read 64 KiB of a response, or the rest of it.
    pub read: Duration,
    /// Without a request.
    pub idle: Duration,
}

/// Room that a failed accept waits for: most likely out of file descriptors, and an immediate retry would spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// How often deadlines are checked, where none is shorter.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// One connection of a port. It is in the table until this is dropped, or until its place is taken.
pub struct HttpConnection {
    pub peer: SocketAddr,
    /// The local address; unspecified if it is not known.
    pub local: IpAddr,
    id: ConnectionId,
    table: Arc<ConnectionTable>,
}

/// Bytes of a body that is being received; counted until dropped.
pub struct ReceivedBytes {
    connection: Arc<HttpConnection>,
    bytes: usize,
}

/// A request in flight; dropped too when its client disconnects.
struct RequestInFlight(Arc<HttpConnection>);

/// Serves until the task is dropped: calls `serve` for each connection.
pub async fn serve<F>(
    listener: impl Into<PortListener>,
    limits: HttpLimits,
    serve: impl Fn(TrackedStream, Arc<HttpConnection>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (listener, table) = (listener.into(), Arc::new(ConnectionTable::new(limits)));
    let mut checks = interval(limits.check_interval());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = checks.tick(), if !table.is_empty() => {
                table.close_late(Instant::now());
                continue;
            }
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        let local = stream.local_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let (id, evicted) = table.enter(peer.ip());
        let connection = Arc::new(HttpConnection { peer, local, id, table: table.clone() });
        let served = serve(TrackedStream::new(stream, connection.clone()), connection);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = evicted.notified() => {}
                () = served => {}
            }
        });
    }
}

impl HttpLimits {
    fn check_interval(&self) -> Duration {
        let shortest = self.head.min(self.read).min(self.idle);
        (shortest / 4).clamp(Duration::from_millis(1), CHECK_INTERVAL)
    }
}

impl HttpConnection {
    /// Requests may be sent beside each other (HTTP/2): bytes on an idle connection need not be the start of one.
    pub fn set_multiplexed(&self) {
        self.table.update(self.id, |entry| entry.multiplexed = true);
    }

    /// The router with its requests limited in time and known to the table. Handlers find the connection in the extensions.
    pub fn track(self: &Arc<Self>, router: Router) -> Router {
        let connection = self.clone();
        router.layer(from_fn(move |mut request: Request, next: Next| {
            let connection = connection.clone();
            async move {
                let in_flight = RequestInFlight::new(&connection);
                let limit = connection.table.limits().request;
                request.extensions_mut().insert(connection);
                let response = timeout(limit, next.run(request)).await;
                let response = response.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response());
                in_flight.answer(response.body().size_hint().lower());
                response
            }
        }))
    }

    pub fn hold_body(self: &Arc<Self>) -> ReceivedBytes {
        ReceivedBytes { connection: self.clone(), bytes: 0 }
    }
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.table.leave(self.id);
    }
}

impl ReceivedBytes {
    /// Reads a body of at most so many bytes, or returns the status that rejects it.
    pub async fn read(&mut self, mut body: Body, most: usize) -> Result<BytesMut, StatusCode> {
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
            if bytes.len() + data.len() > most {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            let before = bytes.capacity();
            bytes.extend_from_slice(&data);
            self.grow(bytes.capacity() - before);
        }
        Ok(bytes)
    }

    /// Beyond the limit of the port another connection loses its place: the oldest of the address that holds most.
    pub fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.connection.table.hold(self.connection.id, bytes);
    }
}

impl Drop for ReceivedBytes {
    fn drop(&mut self) {
        self.connection.table.release(self.connection.id, self.bytes);
    }
}

impl RequestInFlight {
    fn new(connection: &Arc<HttpConnection>) -> RequestInFlight {
        connection.table.update(connection.id, |entry| {
            entry.requests += 1;
            if entry.requests == 1 {
                entry.enter(Phase::Request);
            }
        });
        RequestInFlight(connection.clone())
    }

    /// The response is written from now on.
    fn answer(self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let HttpConnection { table, id, .. } = &*self.0;
        table.update(*id, |entry| entry.response += bytes);
        table.hold(*id, bytes);
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.table.update(self.0.id, |entry| {
            entry.requests -= 1;
            if entry.requests == 0 {
                entry.enter(Phase::Response);
            }
        });
    }
}
