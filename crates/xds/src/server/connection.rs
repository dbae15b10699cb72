//! One HTTP/2 connection: its limits, its maximum age and its end. Calls on it are served in `grpc`.

use std::{
    future::poll_fn,
    hash::{BuildHasher, Hasher, RandomState},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::FutureExt;
use http::Request;
use http2::{ConnectionConfig, ConnectionError, RequestBody, ServerConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    Options, Peer, ServerPort,
    server::{
        Shared,
        byte_budget::{ConnectionBytes, HeldBytes},
        connection_close::{CloseRequest, ConnectionClose},
        grpc::GrpcService,
    },
};

/// Of the headers of one request, in bytes.
const MAX_HEADERS: u32 = 32 << 10;
/// What a proxy may send ahead of our reading. A node is 2 to 20 KB, ten thousand names 600 KB.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What its streams have not read is counted from here on: mostly a message is read in the turn in which it arrives.
const COUNTED_FROM: usize = 16 << 10;
/// Between the end of the streams and the end of the socket: for the last frames to be written.
const LINGER: Duration = Duration::from_secs(1);

/// Serves until the client disconnects, the connection is too old, or `drain` sets the time by which it must be closed.
pub(crate) fn run<I>(
    io: I,
    peer: Peer,
    port: ServerPort,
    shared: Arc<Shared>,
    account: Arc<ConnectionBytes>,
    mut drain: watch::Receiver<Option<Instant>>,
) -> impl Future<Output = ()> + Send
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let close = Arc::<ConnectionClose>::default();
    let address = peer.address;
    let mut received = account.nothing();
    let grpc = GrpcService { shared: shared.clone(), peer, port, close: close.clone(), account };
    let service = move |request: Request<RequestBody>| {
        let grpc = grpc.clone();
        async move { grpc.handle(request).await }
    };
    let mut connection = ServerConnection::new(io, limits(&shared.options), service);
    // Not an async fn: its arguments would be stored twice in the future.
    async move {
        let close_time = async {
            tokio::select! {
                biased;
                end = reach_max_age(&shared.options, &close) => end,
                end = wait_for_drain(&mut drain, &close) => end,
            }
        };
        // Polled when one of these happens, not with every frame.
        let (mut close_time, waker) = (pin!(close_time), Waker::from(close.clone()));
        waker.wake_by_ref();
        let end = poll_fn(|cx| {
            // Received bytes are read before a deadline counts: that they were not read is not the fault of the proxy.
            if let Poll::Ready(result) = shared.metrics.stages().turn(|| connection.poll_unpin(cx)) {
                return Poll::Ready(End::Closed(result));
            }
            if !count_received(&mut received, connection.buffered_bytes()) {
                tracing::debug!(%address, "connection ended: too many bytes are buffered");
                return Poll::Ready(End::Abort);
            }
            match close.request() {
                CloseRequest::None if close.take_wake(cx.waker()) => {
                    close_time.as_mut().poll(&mut Context::from_waker(&waker)).map(End::By)
                }
                CloseRequest::None => Poll::Pending,
                CloseRequest::Graceful => Poll::Ready(End::By(Instant::now() + shared.options.age_grace)),
                CloseRequest::Abort => Poll::Ready(End::Abort),
            }
        });
        let end = match end.await {
            End::Closed(result) => return record_end(&shared, address, result),
            End::By(end) => end,
            End::Abort => {
                connection.abort();
                Instant::now()
            }
        };
        close.close(end);
        connection.graceful_shutdown();
        // An error or a timeout: it is closed either way.
        if Box::pin(timeout_at(end + LINGER, &mut connection)).await.is_err() {
            connection.abort();
            let _ = (&mut connection).await;
        }
    }
}

/// `false`: the limits are exceeded.
fn count_received(received: &mut HeldBytes, bytes: usize) -> bool {
    let bytes = if bytes < COUNTED_FROM { 0 } else { bytes };
    received.bytes() == bytes || received.resize(bytes).is_ok()
}

/// How a connection ends.
enum End {
    Closed(Result<(), ConnectionError>),
    By(Instant),
    Abort,
}

fn record_end(shared: &Shared, address: SocketAddr, result: Result<(), ConnectionError>) {
    let Err(error) = result else { return };
    if let ConnectionError::KeepaliveTimeout { streams } = error {
        shared.metrics.zombies(streams);
    }
    tracing::debug!(%address, %error, "connection failed");
}

fn limits(options: &Options) -> ConnectionConfig {
    ConnectionConfig {
        max_concurrent_streams: options.max_streams,
        max_header_list_size: MAX_HEADERS,
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        keepalive_interval: options.keepalive_interval,
        keepalive_timeout: options.keepalive_timeout,
    }
}

/// Waits until the connection has reached its maximum age, or had no stream for too long. Returns by when it ends.
async fn reach_max_age(options: &Options, close: &ConnectionClose) -> Instant {
    // Ten percent of jitter, so that connections that were opened together do not end together.
    let age = options.max_age.map(|age| age.mul_f64(0.9 + 0.2 * random_fraction())).unwrap_or(Duration::MAX);
    tokio::select! {
        biased;
        () = stay_idle(options.first_request, close) => Instant::now(),
        () = sleep(age) => Instant::now() + options.age_grace,
    }
}

async fn stay_idle(timeout: Duration, close: &ConnectionClose) {
    loop {
        poll_fn(|_| if close.is_idle() { Poll::Ready(()) } else { Poll::Pending }).await;
        if !opens_stream(timeout, close).await {
            return;
        }
    }
}

/// Whether a stream is opened in time. Returns with the first one, so that the timer does not wake the connection later.
async fn opens_stream(timeout: Duration, close: &ConnectionClose) -> bool {
    let mut timeout = pin!(sleep(timeout));
    poll_fn(|cx| match close.is_idle() {
        true => timeout.as_mut().poll(cx).map(|()| false),
        false => Poll::Ready(true),
    })
    .await
}

/// Waits for a random moment of the drain window, so that the proxies of this instance do not all reconnect at once.
async fn wait_for_drain(drain: &mut watch::Receiver<Option<Instant>>, close: &ConnectionClose) -> Instant {
    let end = drain.wait_for(Option::is_some).await.map(|end| end.unwrap_or_else(Instant::now));
    let Ok(end) = end else {
        // The sender is gone: nobody can start a drain.
        return std::future::pending().await;
    };
    if !close.is_idle() {
        sleep(end.saturating_duration_since(Instant::now()).mul_f64(0.9 * random_fraction())).await;
    }
    end
}

/// From 0 to 1, not cryptographic.
fn random_fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_stream_ends_with_the_first_one() {
        let close = Arc::<ConnectionClose>::default();
        let timeout = Duration::from_secs(10);
        let (mut wait, mut cx) = (pin!(opens_stream(timeout, &close)), Context::from_waker(Waker::noop()));
        assert_eq!(wait.as_mut().poll(&mut cx), Poll::Pending);
        let stream = close.add_stream();
        assert!(close.take_wake(Waker::noop()), "a new stream makes the connection poll its own end");
        assert_eq!(wait.as_mut().poll(&mut cx), Poll::Ready(true));
        drop(stream);
        assert!(!opens_stream(timeout, &close).await);
    }
}
