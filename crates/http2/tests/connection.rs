//! A connection with an independent client (the crate h2), and with peers that break the protocol.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{RecvStream, client};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use http2::{ConnectionConfig, ConnectionError, RequestBody, ResponseBody, ServerConnection};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};

const CONFIG: ConnectionConfig = ConnectionConfig {
    max_concurrent_streams: 100,
    max_header_list_size: 16 << 10,
    stream_window: 64 << 10,
    connection_window: 128 << 10,
    keepalive_interval: Duration::from_secs(30),
    keepalive_timeout: Duration::from_secs(10),
};

/// A response body of equal bytes, then trailers.
struct TestBody {
    left: usize,
    trailers: Option<HeaderMap>,
    /// Its background work wakes itself forever.
    busy: bool,
    /// So often its background work is woken while it is polled, before it yields data.
    wakes_left: usize,
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.busy || self.wakes_left > 0 {
            return Poll::Pending;
        }
        let some = self.left.min(50_000);
        self.left -= some;
        let frame = if some > 0 {
            Some(Frame::data(Bytes::from(vec![7; some])))
        } else {
            self.trailers.take().map(Frame::trailers)
        };
        Poll::Ready(frame.map(Ok))
    }
}

impl ResponseBody for TestBody {
    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.busy && self.wakes_left == 0 {
            return Poll::Ready(());
        }
        self.wakes_left = self.wakes_left.saturating_sub(1);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn on_stream_closed(&mut self) {}
}

/// `/busy`: background work without an end. `/woken`: background work that is woken while it is polled. `/N`: N bytes. `/echo`: as many as
/// the request has. `/panic`: panics. `/wait`: waits for `go`.
async fn respond(request: Request<RequestBody>, go: Arc<Notify>) -> Response<TestBody> {
    let path = request.uri().path().to_owned();
    let left = match &path[1..] {
        "busy" => 0,
        "woken" => 5,
        "echo" => request.into_body().collect().await.map(|whole| whole.to_bytes().len()).unwrap_or(0),
        "panic" => panic!("on purpose"),
        "wait" => {
            go.notified().await;
            3
        }
        number => number.parse().expect("a number"),
    };
    let trailers = HeaderMap::from_iter([(http::header::ETAG, "end".parse().expect("a value"))]);
    Response::new(TestBody {
        left,
        trailers: Some(trailers),
        busy: path == "/busy",
        wakes_left: if path == "/woken" { 3 } else { 0 },
    })
}

struct TestServer {
    task: JoinHandle<Result<(), ConnectionError>>,
    go: Arc<Notify>,
    shutdown: Arc<Notify>,
}

fn serve(io: DuplexStream) -> TestServer {
    let (go, shutdown) = (Arc::<Notify>::default(), Arc::<Notify>::default());
    let (go_signal, shutdown_signal) = (go.clone(), shutdown.clone());
    let task = tokio::spawn(async move {
        let mut connection = ServerConnection::new(io, CONFIG, move |request| respond(request, go_signal.clone()));
        tokio::select! {
            done = &mut connection => return done,
            () = shutdown_signal.notified() => connection.graceful_shutdown(),
        }
        connection.await
    });
    TestServer { task, go, shutdown }
}

async fn client(builder: &client::Builder) -> (TestServer, client::SendRequest<Bytes>) {
    let (near, far) = duplex(20_000);
    let server = serve(far);
    let (sender, connection) = builder.handshake(near).await.expect("a handshake");
    tokio::spawn(connection);
    (server, sender.ready().await.expect("ready"))
}

fn request(path: &str) -> Request<()> {
    Request::post(format!("http://a{path}")).body(()).expect("a request")
}

/// The number of bytes of the body, and the trailers.
async fn read(mut body: RecvStream) -> Result<(usize, Option<HeaderMap>), h2::Error> {
    let mut total = 0;
    while let Some(data) = body.data().await {
        total += data.as_ref().map_or(0, Bytes::len);
        body.flow_control().release_capacity(data?.len())?;
    }
    Ok((total, body.trailers().await?))
}

async fn get(sender: &mut client::SendRequest<Bytes>, path: &str) -> Result<usize, h2::Error> {
    let (response, _) = sender.send_request(request(path), true)?;
    let (total, trailers) = read(response.await?.into_body()).await?;
    assert!(trailers.is_some_and(|trailers| trailers["etag"] == "end"), "{path} has no trailers");
    Ok(total)
}

#[tokio::test]
async fn responses_of_all_sizes_arrive_through_small_windows() {
    for window in [1, 100, 65_535, 1 << 20] {
        let (_server, mut sender) = client(client::Builder::new().initial_window_size(window)).await;
        for len in [0, 1, 99, 100, 101, 16_384, 16_385, 100_000] {
            if window > 1 || len < 1_000 {
                assert_eq!(get(&mut sender, &format!("/{len}")).await.expect("a response"), len, "window {window}");
            }
        }
    }
}

#[tokio::test]
async fn reading_a_request_body_opens_the_windows_again() {
    let (_server, sender) = client(&client::Builder::new()).await;
    // Each is about five times the connection window.
    for _ in 0..2 {
        let (response, mut body) = sender.clone().send_request(request("/echo"), false).expect("sent");
        for _ in 0..64 {
            body.send_data(Bytes::from(vec![1; 10_000]), false).expect("queued");
        }
        body.send_data(Bytes::new(), true).expect("queued");
        let response = timeout(Duration::from_secs(20), response).await.expect("in time").expect("a response");
        assert_eq!(read(response.into_body()).await.expect("read").0, 640_000);
    }
}

/// Each uses up its stream window, and is not read.
#[tokio::test(start_paused = true)]
async fn unread_data_of_reset_streams_is_returned_to_the_connection_window() {
    let (_server, sender) = client(&client::Builder::new()).await;
    for _ in 0..20 {
        let (response, mut body) = sender.clone().send_request(request("/wait"), false).expect("sent");
        body.send_data(Bytes::from(vec![1; 60_000]), false).expect("queued");
        // With paused time it returns when nobody has anything left to do.
        tokio::time::sleep(Duration::from_millis(5)).await;
        body.send_reset(h2::Reason::CANCEL);
        drop(response);
    }
    let (response, mut body) = sender.clone().send_request(request("/echo"), false).expect("sent");
    body.send_data(Bytes::from(vec![1; 200_000]), true).expect("queued");
    let response = timeout(Duration::from_secs(20), response).await.expect("in time").expect("a response");
    assert_eq!(read(response.into_body()).await.expect("read").0, 200_000);
}

#[tokio::test]
async fn a_long_response_does_not_delay_a_short_one() {
    let (_server, mut sender) = client(client::Builder::new().initial_window_size(1 << 24)).await;
    let (long, _) = sender.send_request(request("/8000000"), true).expect("sent");
    let body = long.await.expect("response head").into_body();
    let received = Arc::new(AtomicUsize::new(0));
    let reader = {
        let received = received.clone();
        tokio::spawn(async move {
            let mut body = body;
            while let Some(Ok(data)) = body.data().await {
                received.fetch_add(data.len(), Ordering::SeqCst);
                body.flow_control().release_capacity(data.len()).expect("received before");
                tokio::task::yield_now().await;
            }
        })
    };
    assert_eq!(get(&mut sender, "/1000").await.expect("a response"), 1000);
    assert!(received.load(Ordering::SeqCst) < 7_000_000, "the short response waited for the long one");
    reader.await.expect("reader ends");
    assert_eq!(received.load(Ordering::SeqCst), 8_000_000);
}

#[tokio::test]
async fn a_panic_of_a_handler_resets_only_its_stream() {
    let (server, mut sender) = client(&client::Builder::new()).await;
    let error = get(&mut sender, "/panic").await.expect_err("the stream was reset");
    assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR));
    assert_eq!(get(&mut sender, "/5").await.expect("a response"), 5);
    drop(sender);
    server.task.await.expect("no panic").expect("a graceful end");
}

#[tokio::test]
async fn a_stream_that_wakes_itself_forever_does_not_starve_others() {
    let (_server, mut sender) = client(&client::Builder::new()).await;
    let (_busy, _) = sender.send_request(request("/busy"), true).expect("sent");
    for _ in 0..10 {
        assert_eq!(get(&mut sender, "/1000").await.expect("a response"), 1000);
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_woken_while_it_is_polled_is_polled_again() {
    let (_server, mut sender) = client(&client::Builder::new()).await;
    let response = tokio::time::timeout(std::time::Duration::from_secs(5), get(&mut sender, "/woken")).await;
    assert_eq!(response.expect("the wake-up is not lost").expect("a response"), 5);
}

#[tokio::test]
async fn streams_over_the_limit_are_refused() {
    let (mut near, far) = duplex(1 << 16);
    let _server = serve(far);
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("written");
    // HPACK: POST, http, authority a, path /wait.
    let block = b"\x83\x86\x41\x01a\x44\x05/wait";
    for stream in 0..=100u8 {
        near.write_all(&[0, 0, 12, 1, 5, 0, 0, 0, 2 * stream + 1]).await.expect("written");
        near.write_all(block).await.expect("written");
    }
    near.write_all(b"\0\0\x08\x06\0\0\0\0\0whatever").await.expect("written");
    let mut resets = Vec::new();
    loop {
        let mut head = [0; 9];
        near.read_exact(&mut head).await.expect("a frame");
        let mut payload = vec![0; usize::from(head[2])];
        near.read_exact(&mut payload).await.expect("its payload");
        match head[3] {
            3 => resets.push((head[8], payload[3])),
            6 => break,
            _ => {}
        }
    }
    assert_eq!(resets, [(201, 7)], "the last one, with REFUSED_STREAM");
}

#[tokio::test(start_paused = true)]
async fn graceful_shutdown_closes_the_connection_after_its_last_stream() {
    let (server, mut sender) = client(&client::Builder::new()).await;
    let (response, _) = sender.send_request(request("/wait"), true).expect("sent");
    // With paused time it returns when nobody has anything left to do.
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.shutdown.notify_one();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(get(&mut sender, "/1").await.is_err(), "no new streams");
    assert!(!server.task.is_finished());
    server.go.notify_one();
    assert_eq!(read(response.await.expect("a response").into_body()).await.expect("read").0, 3);
    server.task.await.expect("no panic").expect("a graceful end");
}

/// Random frames, some of them nearly valid: nothing panics, and the connection is closed in time.
#[tokio::test]
async fn connections_with_random_frames_are_closed() {
    for seed in 1..300u64 {
        let (mut near, far) = duplex(1 << 16);
        let server = serve(far);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        let mut state = seed;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below) as u8
        };
        for _ in 0..40 {
            let len = random(24);
            bytes.extend([0, 0, len, random(11), random(64), 0, 0, 0, random(6)]);
            bytes.extend((0..len).map(|_| random(256)));
        }
        // The server may close the connection before everything is written.
        let _ = near.write_all(&bytes).await;
        let _ = near.shutdown().await;
        let mut replies = Vec::new();
        let _ = timeout(Duration::from_secs(5), near.read_to_end(&mut replies)).await.expect("the server closes");
        let ended = timeout(Duration::from_secs(5), server.task).await.expect("in time");
        assert!(ended.is_ok(), "seed {seed}: {ended:?}");
    }
}
