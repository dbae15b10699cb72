//! A connection with a client that we did not write (the crate h2), and with peers that make no sense.

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
use http2::{Call, Connection, Error, Incoming, Limits};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};

const LIMITS: Limits = Limits {
    streams: 100,
    headers: 16 << 10,
    stream_window: 64 << 10,
    connection_window: 128 << 10,
    ping_after: Duration::from_secs(30),
    ping_patience: Duration::from_secs(10),
};

/// Bytes of one value, then trailers.
struct Answer {
    left: usize,
    trailers: Option<HeaderMap>,
    /// Its work never rests and never gets anywhere.
    restless: bool,
    /// It is woken so often by others while it works, and says nothing before it has looked at that.
    looks: usize,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.restless || self.looks > 0 {
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

impl Call for Answer {
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.restless && self.looks == 0 {
            return Poll::Ready(());
        }
        self.looks = self.looks.saturating_sub(1);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn abandon(&mut self) {}
}

/// `/restless`: work without an end. `/woken`: work that is woken while it is done. `/N`: N bytes. `/echo`: as many as came. `/panic`: none. `/wait`: when it is told.
async fn answer(request: Request<Incoming>, go: Arc<Notify>) -> Response<Answer> {
    let path = request.uri().path().to_owned();
    let left = match &path[1..] {
        "restless" => 0,
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
    Response::new(Answer {
        left,
        trailers: Some(trailers),
        restless: path == "/restless",
        looks: if path == "/woken" { 3 } else { 0 },
    })
}

struct World {
    server: JoinHandle<Result<(), Error>>,
    go: Arc<Notify>,
    retire: Arc<Notify>,
}

fn world(io: DuplexStream) -> World {
    let (go, retire) = (Arc::<Notify>::default(), Arc::<Notify>::default());
    let (told, retired) = (go.clone(), retire.clone());
    let server = tokio::spawn(async move {
        let mut connection = Connection::new(io, LIMITS, move |request| answer(request, told.clone()));
        tokio::select! {
            done = &mut connection => return done,
            () = retired.notified() => connection.retire(),
        }
        connection.await
    });
    World { server, go, retire }
}

async fn client(builder: &client::Builder) -> (World, client::SendRequest<Bytes>) {
    let (near, far) = duplex(20_000);
    let world = world(far);
    let (sender, connection) = builder.handshake(near).await.expect("a handshake");
    tokio::spawn(connection);
    (world, sender.ready().await.expect("ready"))
}

fn call(path: &str) -> Request<()> {
    Request::post(format!("http://a{path}")).body(()).expect("a request")
}

/// How many bytes came, and the trailers.
async fn read(mut body: RecvStream) -> Result<(usize, Option<HeaderMap>), h2::Error> {
    let mut total = 0;
    while let Some(data) = body.data().await {
        total += data.as_ref().map_or(0, Bytes::len);
        body.flow_control().release_capacity(data?.len())?;
    }
    Ok((total, body.trailers().await?))
}

async fn get(sender: &mut client::SendRequest<Bytes>, path: &str) -> Result<usize, h2::Error> {
    let (response, _) = sender.send_request(call(path), true)?;
    let (total, trailers) = read(response.await?.into_body()).await?;
    assert!(trailers.is_some_and(|trailers| trailers["etag"] == "end"), "{path} has no trailers");
    Ok(total)
}

#[tokio::test]
async fn answers_of_every_size_arrive_whole_through_narrow_windows() {
    for window in [1, 100, 65_535, 1 << 20] {
        let (_world, mut sender) = client(client::Builder::new().initial_window_size(window)).await;
        for len in [0, 1, 99, 100, 101, 16_384, 16_385, 100_000] {
            if window > 1 || len < 1_000 {
                assert_eq!(get(&mut sender, &format!("/{len}")).await.expect("an answer"), len, "window {window}");
            }
        }
    }
}

#[tokio::test]
async fn requests_make_room_again_as_they_are_read() {
    let (_world, sender) = client(&client::Builder::new()).await;
    // Ten times the window of the connection.
    for _ in 0..2 {
        let (response, mut body) = sender.clone().send_request(call("/echo"), false).expect("sent");
        for _ in 0..64 {
            body.send_data(Bytes::from(vec![1; 10_000]), false).expect("queued");
        }
        body.send_data(Bytes::new(), true).expect("queued");
        let answer = timeout(Duration::from_secs(20), response).await.expect("in time").expect("an answer");
        assert_eq!(read(answer.into_body()).await.expect("read").0, 640_000);
    }
}

/// Each takes as much of the connection's window as there is of a stream's, and nobody reads it.
#[tokio::test]
async fn calls_that_are_dropped_unread_take_no_room_with_them() {
    let (_world, sender) = client(&client::Builder::new()).await;
    for _ in 0..20 {
        let (response, mut body) = sender.clone().send_request(call("/wait"), false).expect("sent");
        body.send_data(Bytes::from(vec![1; 60_000]), false).expect("queued");
        tokio::time::sleep(Duration::from_millis(5)).await;
        body.send_reset(h2::Reason::CANCEL);
        drop(response);
    }
    let (response, mut body) = sender.clone().send_request(call("/echo"), false).expect("sent");
    body.send_data(Bytes::from(vec![1; 200_000]), true).expect("queued");
    let answer = timeout(Duration::from_secs(20), response).await.expect("in time").expect("an answer");
    assert_eq!(read(answer.into_body()).await.expect("read").0, 200_000);
}

#[tokio::test]
async fn a_long_answer_does_not_hold_up_a_short_one() {
    let (_world, mut sender) = client(client::Builder::new().initial_window_size(1 << 24)).await;
    let (long, _) = sender.send_request(call("/8000000"), true).expect("sent");
    let body = long.await.expect("its head").into_body();
    let seen = Arc::new(AtomicUsize::new(0));
    let reading = {
        let seen = seen.clone();
        tokio::spawn(async move {
            let mut body = body;
            while let Some(Ok(data)) = body.data().await {
                seen.fetch_add(data.len(), Ordering::SeqCst);
                body.flow_control().release_capacity(data.len()).expect("it was received");
                tokio::task::yield_now().await;
            }
        })
    };
    assert_eq!(get(&mut sender, "/1000").await.expect("an answer"), 1000);
    assert!(seen.load(Ordering::SeqCst) < 7_000_000, "it waited for the long one");
    reading.await.expect("it ends");
    assert_eq!(seen.load(Ordering::SeqCst), 8_000_000);
}

#[tokio::test]
async fn a_call_that_panics_ends_alone() {
    let (world, mut sender) = client(&client::Builder::new()).await;
    let error = get(&mut sender, "/panic").await.expect_err("it ended");
    assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR));
    assert_eq!(get(&mut sender, "/5").await.expect("an answer"), 5);
    drop(sender);
    world.server.await.expect("no panic").expect("it ended in peace");
}

#[tokio::test]
async fn a_call_that_never_rests_lets_others_run() {
    let (_world, mut sender) = client(&client::Builder::new()).await;
    let (_restless, _) = sender.send_request(call("/restless"), true).expect("sent");
    for _ in 0..10 {
        assert_eq!(get(&mut sender, "/1000").await.expect("an answer"), 1000);
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_woken_while_it_works_looks_again() {
    let (_world, mut sender) = client(&client::Builder::new()).await;
    let answer = tokio::time::timeout(std::time::Duration::from_secs(5), get(&mut sender, "/woken")).await;
    assert_eq!(answer.expect("it is not forgotten").expect("an answer"), 5);
}

#[tokio::test]
async fn one_stream_too_many_is_refused_and_no_other() {
    let (mut near, far) = duplex(1 << 16);
    let _world = world(far);
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
    assert_eq!(resets, [(201, 7)], "the last one, as refused");
}

#[tokio::test]
async fn a_connection_that_retires_ends_after_its_last_call() {
    let (world, mut sender) = client(&client::Builder::new()).await;
    let (waiting, _) = sender.send_request(call("/wait"), true).expect("sent");
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.retire.notify_one();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(get(&mut sender, "/1").await.is_err(), "no more calls");
    assert!(!world.server.is_finished());
    world.go.notify_one();
    assert_eq!(read(waiting.await.expect("an answer").into_body()).await.expect("read").0, 3);
    world.server.await.expect("no panic").expect("it ended in peace");
}

/// Frames at random, some of them nearly right: nothing panics, and nobody waits for ever.
#[tokio::test]
async fn peers_that_make_no_sense_are_sent_away() {
    for seed in 1..300u64 {
        let (mut near, far) = duplex(1 << 16);
        let world = world(far);
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
        // It may be sent away before it has said everything.
        let _ = near.write_all(&bytes).await;
        let _ = near.shutdown().await;
        let mut said = Vec::new();
        let _ = timeout(Duration::from_secs(5), near.read_to_end(&mut said)).await.expect("the server closes");
        let ended = timeout(Duration::from_secs(5), world.server).await.expect("in time");
        assert!(ended.is_ok(), "seed {seed}: {ended:?}");
    }
}
