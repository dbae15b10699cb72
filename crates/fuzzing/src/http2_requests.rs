//! HTTP/2: what a client sends, read by our server and by the crate h2. Where neither complains, both see the same requests.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use http2::{ConnectionConfig, RequestBody, ResponseBody, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const WINDOW: u32 = 64 << 10;
const HEADER_LIST: u32 = 16 << 10;
/// Passes of the scheduler in which a server is done with what it has got: its tasks wait for nothing else.
const PASSES: usize = 200;
const SLOW: Duration = Duration::from_secs(10);

/// Any bytes after the preface and the client's settings.
pub fn http2(data: &[u8]) {
    compare(&[PREFACE, &EMPTY_SETTINGS, data].concat());
}

/// Header blocks, each after a byte with its length (64 at most). In the two highest bits: whether it follows the pseudo-header fields of a GET, and whether
/// it is split into CONTINUATION frames.
pub fn hpack(data: &[u8]) {
    let mut sent = [PREFACE, &EMPTY_SETTINGS].concat();
    let (mut rest, mut stream) = (data, 1_u32);
    while let Some((head, after)) = rest.split_first() {
        let (block, after) = after.split_at(usize::from(head & 63).min(after.len()));
        rest = after;
        // GET, http, / of the static table.
        let block = if head & 0x80 == 0 { [&[0x82, 0x86, 0x84], block].concat() } else { block.to_vec() };
        let (first, more) = block.split_at(if head & 0x40 == 0 { block.len() } else { block.len() / 2 });
        let end_headers = if head & 0x40 == 0 { 4 } else { 0 };
        sent.extend(frame(1, 1 | end_headers, stream, first));
        if end_headers == 0 {
            sent.extend(frame(9, 4, stream, more));
        }
        stream += 2;
    }
    compare(&sent);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("payloads are short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn compare(sent: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let began = Instant::now();
    let ours = runtime.block_on(exchange(sent, our_server));
    assert!(began.elapsed() < SLOW, "it took {:?}", began.elapsed());
    let theirs = runtime.block_on(exchange(sent, h2_server));
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        assert_eq!(ours, theirs, "ours, and h2's");
    }
}

/// A request as a handler sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SeenRequest {
    method: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    /// `None`: it did not end.
    body: Option<Vec<u8>>,
}

impl SeenRequest {
    fn new<B>(request: &Request<B>) -> SeenRequest {
        let headers = |headers: &HeaderMap| {
            let mut all: Vec<_> =
                headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
            all.sort();
            all
        };
        // Our server leaves the scheme out where there is no authority.
        let uri = request.uri();
        let target = format!("{:?} {:?}", uri.authority(), uri.path_and_query());
        SeenRequest { method: request.method().to_string(), target, headers: headers(request.headers()), body: None }
    }
}

type SeenRequests = Arc<Mutex<Vec<SeenRequest>>>;

fn add(seen: &SeenRequests, request: SeenRequest) -> usize {
    let mut seen = seen.lock().expect("no holder panics");
    seen.push(request);
    seen.len() - 1
}

fn finish(seen: &SeenRequests, index: usize, body: Vec<u8>) {
    seen.lock().expect("no holder panics")[index].body = Some(body);
}

/// `None`: the server complained, by an error, RST_STREAM or GOAWAY.
async fn exchange<F: Future<Output = bool> + Send + 'static>(
    sent: &[u8],
    serve: fn(DuplexStream, SeenRequests) -> F,
) -> Option<Vec<SeenRequest>> {
    let (mut near, far) = duplex(sent.len() + (1 << 20));
    let seen = SeenRequests::default();
    let server = tokio::spawn(serve(far, seen.clone()));
    near.write_all(sent).await.ok()?;
    let (mut reading, mut writing) = tokio::io::split(near);
    let reader = tokio::spawn(async move {
        let mut output = Vec::new();
        // An error ends the output too.
        let _ = reading.read_to_end(&mut output).await;
        output
    });
    for _ in 0..PASSES {
        tokio::task::yield_now().await;
    }
    let _ = writing.shutdown().await;
    let end = tokio::time::timeout(SLOW, server).await.expect("the server ends with its client");
    let complained = !end.expect("the server does not panic");
    let output = reader.await.expect("the reader does not panic");
    let mut seen = seen.lock().expect("no holder panics").clone();
    seen.sort();
    (!complained && !complains(&output)).then_some(seen)
}

/// Whether there is RST_STREAM, or GOAWAY with an error.
fn complains(mut output: &[u8]) -> bool {
    while let [a, b, c, kind, _flags, _, _, _, _, rest @ ..] = output {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let (payload, after) = rest.split_at(length.min(rest.len()));
        let is_error = *kind == 7 && payload.get(4..8).is_some_and(|code| code != [0; 4]);
        if *kind == 3 || is_error {
            return true;
        }
        output = after;
    }
    false
}

async fn our_server(io: DuplexStream, seen: SeenRequests) -> bool {
    let config = ConnectionConfig {
        max_concurrent_streams: 100,
        max_header_list_size: HEADER_LIST,
        stream_window: WINDOW,
        connection_window: 4 * WINDOW,
        keepalive_interval: 10 * SLOW,
        keepalive_timeout: SLOW,
    };
    let respond = move |request: Request<RequestBody>| {
        let seen = seen.clone();
        async move {
            let index = add(&seen, SeenRequest::new(&request));
            if let Ok(body) = request.into_body().collect().await {
                finish(&seen, index, body.to_bytes().to_vec());
            }
            Response::new(NoBody)
        }
    };
    ServerConnection::new(io, config, respond).await.is_ok()
}

async fn h2_server(io: DuplexStream, seen: SeenRequests) -> bool {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(100).max_header_list_size(HEADER_LIST).initial_window_size(WINDOW);
    let Ok(mut connection) = builder.initial_connection_window_size(4 * WINDOW).handshake::<_, Bytes>(io).await else {
        return false;
    };
    while let Some(accepted) = connection.accept().await {
        let Ok((request, mut respond)) = accepted else { return false };
        let seen = seen.clone();
        tokio::spawn(async move {
            let index = add(&seen, SeenRequest::new(&request));
            let (mut body, mut read) = (request.into_body(), Vec::new());
            while let Some(data) = body.data().await {
                let Ok(data) = data else { return };
                let _ = body.flow_control().release_capacity(data.len());
                read.extend_from_slice(&data);
            }
            // It may have trailers.
            if body.trailers().await.is_ok() {
                finish(&seen, index, read);
            }
            let _ = respond.send_response(Response::new(()), true);
        });
    }
    true
}

/// The body of a response without one.
struct NoBody;

impl Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}

impl ResponseBody for NoBody {
    fn poll_background(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn on_stream_closed(&mut self) {}
}
