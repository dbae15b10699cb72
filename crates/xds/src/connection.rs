//! One HTTP/2 connection: its limits, its age and its end. Calls on it are served elsewhere.

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
use http2::{Connection, Error, Incoming, Limits};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    Peer, Port,
    closing::{Closing, Wish},
    grpc::Calls,
    server::{Options, Shared},
};

/// Of the headers of one request, in bytes.
const MAX_HEADERS: u32 = 32 << 10;
/// What a proxy may send ahead of our reading. A node is 2 to 20 KB, ten thousand names 600 KB.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Between the end of the streams and the end of the socket: for the last frames to go out.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves until the other side leaves, the connection is too old, or `drain` says when everything must be over.
pub(crate) fn run<I>(
    io: I,
    peer: Peer,
    port: Port,
    shared: Arc<Shared>,
    mut drain: watch::Receiver<Option<Instant>>,
) -> impl Future<Output = ()> + Send
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let closing = Arc::<Closing>::default();
    let address = peer.address;
    let calls = Calls { shared: shared.clone(), peer, port, closing: closing.clone() };
    let service = move |request: Request<Incoming>| {
        let calls = calls.clone();
        async move { calls.answer(request).await }
    };
    let mut connection = Connection::new(io, limits(&shared.options), service);
    // Not a function of its own: its arguments would have their room twice.
    async move {
        let order = async {
            tokio::select! {
                biased;
                end = aged(&shared.options, &closing) => end,
                end = drained(&mut drain, &closing) => end,
            }
        };
        // Looked at when one of these happens, not with every frame.
        let (mut order, waker) = (pin!(order), Waker::from(closing.clone()));
        waker.wake_by_ref();
        let ends = poll_fn(|cx| {
            // What lies in the socket is read before a deadline counts: that it was not read is not the proxy's fault.
            if let Poll::Ready(result) = shared.metrics.stages().turn(|| connection.poll_unpin(cx)) {
                return Poll::Ready(End::Over(result));
            }
            match closing.wish() {
                Wish::None if closing.is_called(cx.waker()) => {
                    order.as_mut().poll(&mut Context::from_waker(&waker)).map(End::By)
                }
                Wish::None => Poll::Pending,
                Wish::Retire => Poll::Ready(End::By(Instant::now() + shared.options.age_grace)),
                Wish::HangUp => Poll::Ready(End::Cut),
            }
        });
        let end = match ends.await {
            End::Over(result) => return over(&shared, address, result),
            End::By(end) => end,
            End::Cut => {
                connection.cut();
                Instant::now()
            }
        };
        closing.close(end);
        connection.retire();
        // An error or a timeout: it is over either way.
        if Box::pin(timeout_at(end + LAST_WORDS, &mut connection)).await.is_err() {
            connection.cut();
            let _ = (&mut connection).await;
        }
    }
}

/// How a connection comes to its end.
enum End {
    Over(Result<(), Error>),
    By(Instant),
    Cut,
}

fn over(shared: &Shared, address: SocketAddr, result: Result<(), Error>) {
    let Err(error) = result else { return };
    if let Error::Silent { streams } = error {
        shared.metrics.zombies(streams);
    }
    tracing::debug!(%address, %error, "connection broke");
}

fn limits(options: &Options) -> Limits {
    Limits {
        streams: options.max_streams,
        headers: MAX_HEADERS,
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        ping_after: options.keepalive_interval,
        ping_patience: options.keepalive_timeout,
    }
}

/// Until it is old, or has had no stream for so long that it holds a socket for nothing. Answers by when it ends.
async fn aged(options: &Options, closing: &Closing) -> Instant {
    // A tenth more or less, so that connections of one moment do not end in one moment.
    let age = options.max_age.map(|age| age.mul_f64(0.9 + 0.2 * chance())).unwrap_or(Duration::MAX);
    let since = Instant::now();
    if age > options.first_request && !gets_stream(options.first_request, closing).await {
        return Instant::now();
    }
    sleep(age.saturating_sub(since.elapsed())).await;
    Instant::now() + options.age_grace
}

/// In time. Over with the first one, so that nobody is woken later to find it there.
async fn gets_stream(patience: Duration, closing: &Closing) -> bool {
    let mut patience = pin!(sleep(patience));
    poll_fn(|cx| match closing.is_idle() {
        true => patience.as_mut().poll(cx).map(|()| false),
        false => Poll::Ready(true),
    })
    .await
}

/// A random moment of the window, so that the proxies of this instance do not all go to another one at once.
async fn drained(drain: &mut watch::Receiver<Option<Instant>>, closing: &Closing) -> Instant {
    let end = drain.wait_for(Option::is_some).await.map(|end| end.unwrap_or_else(Instant::now));
    let Ok(end) = end else {
        // Nobody is left who could ask for an end.
        return std::future::pending().await;
    };
    if !closing.is_idle() {
        sleep(end.saturating_duration_since(Instant::now()).mul_f64(0.9 * chance())).await;
    }
    end
}

/// From 0 to 1, not for secrets.
fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_waited_for_no_longer_than_until_it_comes() {
        let closing = Arc::<Closing>::default();
        let patience = Duration::from_secs(10);
        let (mut wait, mut cx) = (pin!(gets_stream(patience, &closing)), Context::from_waker(Waker::noop()));
        assert_eq!(wait.as_mut().poll(&mut cx), Poll::Pending);
        let stream = closing.bind();
        assert!(closing.is_called(Waker::noop()), "a stream has the connection look at its own end");
        assert_eq!(wait.as_mut().poll(&mut cx), Poll::Ready(true));
        drop(stream);
        assert!(!gets_stream(patience, &closing).await);
    }
}
