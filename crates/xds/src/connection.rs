//! One HTTP/2 connection: its limits, its age and its end. Calls on it are served elsewhere.

use std::{
    future::poll_fn,
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use http::Request;
use http2::{Connection, Error, Incoming, Limits};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};

use crate::{
    Peer, Port, Stage,
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
pub(crate) async fn run<I>(
    io: I,
    peer: Peer,
    port: Port,
    shared: Arc<Shared>,
    mut drain: watch::Receiver<Option<Instant>>,
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
    };
    let service = move |request: Request<Incoming>| {
        let calls = calls.clone();
        async move { calls.answer(request).await }
    };
    let mut connection = Connection::new(io, limits(&shared.options), service);
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
        result = poll_fn(|cx| stages.run(Stage::Send, || connection.poll_unpin(cx))) => {
            if let Err(error) = result {
                if let Error::Silent { streams } = error {
                    shared.metrics.zombies(streams);
                }
                tracing::debug!(%address, %error, "connection broke");
            }
            return;
        }
        order = order.select_next_some() => match order {
            Some(end) => end,
            None => {
                connection.cut();
                Instant::now()
            }
        },
    };
    connection.retire();
    closing.send_replace(Some(end));
    // An error or a timeout: it is over either way.
    if timeout_at(end + LAST_WORDS, &mut connection).await.is_err() {
        connection.cut();
        let _ = connection.await;
    }
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
