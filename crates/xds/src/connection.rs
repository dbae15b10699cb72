//! One HTTP/2 connection: its limits, its age and its end. Calls on it are served elsewhere.

use std::{
    convert::Infallible,
    future::poll_fn,
    hash::{BuildHasher, Hasher, RandomState},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use http::Request;
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};

use crate::{
    Peer, Port, Stage,
    grpc::Calls,
    server::{Options, Shared},
    together::{Begun, Together},
};

/// Of the headers of one request, in bytes.
const MAX_HEADERS: u32 = 32 << 10;
/// What a proxy may send ahead of our reading. A node is 2 to 20 KB, ten thousand names 600 KB.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What is written to one stream ahead of the socket.
const SEND_BUFFER: usize = 64 << 10;
/// Between the end of the streams and the end of the socket: for the last frames to go out.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves until the other side leaves, the connection is too old, or `drain` says when everything must be over.
pub(crate) async fn run<I>(io: I, peer: Peer, port: Port, shared: Arc<Shared>, drain: watch::Receiver<Option<Instant>>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let together = Together::default();
    let begun = together.begun();
    begun.execute(served(io, peer, port, shared, drain, begun.clone()));
    together.ended().await;
}

async fn served<I>(
    io: I,
    peer: Peer,
    port: Port,
    shared: Arc<Shared>,
    mut drain: watch::Receiver<Option<Instant>>,
    begun: Begun,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // Every stream holds a receiver, so their number is the number of streams.
    let closing = Arc::new(watch::Sender::new(None));
    let (hang_up, retire) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let address = peer.address;
    let calls = Calls {
        shared: shared.clone(),
        peer,
        port,
        closing: closing.clone(),
        hang_up: hang_up.clone(),
        retire: retire.clone(),
        begun: begun.clone(),
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let calls = calls.clone();
        async move { Ok::<_, Infallible>(calls.answer(request).await) }
    });
    let builder = builder(&shared.options, begun);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
    let stages = shared.metrics.stages();
    let idle = || closing.receiver_count() == 0;
    let order = async {
        tokio::select! {
            biased;
            () = hang_up.notified() => None,
            () = old(&shared.options) => Some(Instant::now() + shared.options.age_grace),
            () = retire.notified() => Some(Instant::now() + shared.options.age_grace),
            () = unused(&shared.options, idle) => Some(Instant::now()),
            end = drained(&mut drain, idle) => Some(end),
        }
    };
    // Looked at when one of these happens, not with every frame.
    let mut order = FuturesUnordered::from_iter([order]);
    let end = tokio::select! {
        // What lies in the socket is read before a deadline counts: that it was not read is not the proxy's fault.
        biased;
        result = poll_fn(|cx| stages.run(Stage::Send, || connection.as_mut().poll(cx))) => {
            if let Err(error) = result {
                if error.is_timeout() {
                    shared.metrics.zombies(closing.receiver_count());
                }
                tracing::debug!(%address, %error, "connection broke");
            }
            return;
        }
        order = order.select_next_some() => match order {
            Some(end) => end,
            None => return,
        },
    };
    Pin::as_mut(&mut connection).graceful_shutdown();
    closing.send_replace(Some(end));
    // An error or a timeout: it is over either way.
    let _ = timeout_at(end + LAST_WORDS, connection).await;
}

fn builder(options: &Options, executor: Begun) -> http2::Builder<Begun> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(options.keepalive_interval)
        .keep_alive_timeout(options.keepalive_timeout)
        .max_concurrent_streams(options.max_streams)
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    builder
}

/// The age with a tenth of it more or less, so that connections of one moment do not end in one moment.
async fn old(options: &Options) {
    match options.max_age {
        Some(age) => sleep(age.mul_f64(0.9 + 0.2 * chance())).await,
        None => std::future::pending().await,
    }
}

/// Whoever connects and opens no stream holds a socket for nothing.
async fn unused(options: &Options, idle: impl Fn() -> bool) {
    sleep(options.first_request).await;
    if !idle() {
        std::future::pending::<()>().await;
    }
}

/// A random moment of the window, so that the proxies of this instance do not all go to another one at once.
async fn drained(drain: &mut watch::Receiver<Option<Instant>>, idle: impl Fn() -> bool) -> Instant {
    let end = drain.wait_for(Option::is_some).await.map(|end| end.unwrap_or_else(Instant::now));
    let Ok(end) = end else {
        // Nobody is left who could ask for an end.
        return std::future::pending().await;
    };
    if !idle() {
        sleep(end.saturating_duration_since(Instant::now()).mul_f64(0.9 * chance())).await;
    }
    end
}

/// From 0 to 1, not for secrets.
fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}
