//! A proxy between a client and an API server that injects faults: cut connections, error codes, stalls, and dropped, doubled or reordered
//! events.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sources::kube::{JSON, KubeClient, RequestError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;

/// The fault that is injected now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ApiFault {
    #[default]
    None,
    /// No connection comes about, and those that are there break.
    Cut,
    /// Every request gets this code.
    ErrorStatus(u16),
    /// Every new watch gets 410 Gone.
    Gone,
    /// Watches stay open and bring no events.
    Stall,
    /// Events are dropped.
    Drop,
    /// Every event comes twice.
    Double,
    /// Every two events that come together change places.
    Reorder,
    /// Answers wait this long.
    Slow(Duration),
    /// Requests whose path has this part are taken, and passed on when the fault is over.
    Hold(&'static str),
    /// Requests with any other token get 401.
    Token(String),
    /// Every answer is JSON, whatever else was asked for.
    JsonOnly,
}

/// A request that the proxy received.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    pub path: String,
    pub watch: bool,
    /// The types that it may be answered in.
    pub accept: String,
}

/// The proxy; gone when dropped.
pub struct FaultProxy {
    pub address: SocketAddr,
    fault: watch::Sender<ApiFault>,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    swallowed: Arc<AtomicUsize>,
    _running: JoinSet<()>,
}

type Outgoing = UnsyncBoxBody<Bytes, std::io::Error>;

#[derive(Clone)]
struct Upstream {
    client: KubeClient,
    fault: watch::Receiver<ApiFault>,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    swallowed: Arc<AtomicUsize>,
}

impl FaultProxy {
    /// In front of what the client reaches.
    pub async fn start(client: KubeClient) -> Result<FaultProxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (fault, seen) = (watch::Sender::default(), Arc::<Mutex<Vec<SeenRequest>>>::default());
        let swallowed = Arc::<AtomicUsize>::default();
        let (address, mut running) = (listener.local_addr()?, JoinSet::new());
        let way = Upstream { client, fault: fault.subscribe(), seen: seen.clone(), swallowed: swallowed.clone() };
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection(stream, way.clone()));
            }
        });
        Ok(FaultProxy { address, fault, seen, swallowed, _running: running })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn set(&self, fault: ApiFault) {
        self.fault.send_replace(fault);
    }

    /// Events dropped so far.
    pub fn swallowed(&self) -> usize {
        self.swallowed.load(Ordering::Relaxed)
    }

    /// Requests received since the last call.
    pub fn seen(&self) -> Vec<SeenRequest> {
        std::mem::take(&mut *locked(&self.seen))
    }
}

fn locked(seen: &Mutex<Vec<SeenRequest>>) -> MutexGuard<'_, Vec<SeenRequest>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connection(stream: TcpStream, way: Upstream) {
    let mut fault = way.fault.clone();
    let service = service_fn(move |request| {
        let way = way.clone();
        async move { Ok::<_, Infallible>(way.answer(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = served => {}
        _ = fault.wait_for(|fault| *fault == ApiFault::Cut) => {}
    }
}

impl Upstream {
    async fn answer(self, request: Request<Incoming>) -> Response<Outgoing> {
        let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        let watch = path.contains("watch=1");
        let accept = request.headers().get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or("*/*").to_owned();
        locked(&self.seen).push(SeenRequest { path: path.clone(), watch, accept: accept.clone() });
        let fault = self.fault.borrow().clone();
        let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match &fault {
            ApiFault::ErrorStatus(code) => return error_response(*code),
            ApiFault::Gone if watch => return error_response(410),
            ApiFault::Token(good) if token != Some(format!("Bearer {good}").as_str()) => return error_response(401),
            ApiFault::Slow(wait) => sleep(*wait).await,
            ApiFault::Hold(part) if path.contains(part) => {
                let _ = self.fault.clone().wait_for(|fault| !matches!(fault, ApiFault::Hold(_))).await;
            }
            _ => {}
        }
        let (parts, body) = request.into_parts();
        let accept = if fault == ApiFault::JsonOnly { JSON } else { &accept };
        if parts.method == http::Method::GET {
            return match self.client.open(&path, accept).await {
                Ok((headers, body)) => self.passed(&headers, watch, body),
                Err(failure) => failed(&failure),
            };
        }
        let content = parts.headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let body = body.collect().await.map(|it| it.to_bytes().to_vec()).unwrap_or_default();
        match self.client.send(parts.method, &path, content, body).await {
            Ok((code, text)) => response(code, text),
            Err(failure) => failed(&failure),
        }
    }

    fn passed<B>(self, headers: &HeaderMap, watch: bool, mut body: B) -> Response<Outgoing>
    where
        B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (out, frames) = mpsc::channel(16);
        let kind = headers.get(header::CONTENT_TYPE).cloned();
        let is_json = kind.as_ref().is_some_and(|kind| kind.as_bytes().starts_with(JSON.as_bytes()));
        tokio::spawn(async move {
            let split = if is_json { whole_lines } else { whole_frames };
            let mut text = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                let data = if watch { self.harmed(split, &mut text, &data) } else { data };
                if !data.is_empty() && out.send(Ok(Frame::data(data))).await.is_err() {
                    return;
                }
            }
        });
        let mut response = Response::new(StreamBody::new(ReceiverStream::new(frames)).boxed_unsync());
        if let Some(kind) = kind {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    }

    /// Whole events, as far as they are let through.
    fn harmed(&self, split: fn(&[u8]) -> Vec<&[u8]>, arrived: &mut Vec<u8>, data: &[u8]) -> Bytes {
        arrived.extend_from_slice(data);
        let mut events = split(arrived);
        let whole: usize = events.iter().map(|event| event.len()).sum();
        match &*self.fault.borrow() {
            ApiFault::Stall | ApiFault::Drop => {
                let is_bookmark =
                    |event: &[u8]| event.get(..32.min(event.len())).is_some_and(|head| contains(head, b"BOOKMARK"));
                let changes = events.iter().filter(|event| !is_bookmark(event));
                self.swallowed.fetch_add(changes.count(), Ordering::Relaxed);
                events.clear();
            }
            ApiFault::Double => events = events.iter().flat_map(|event| [*event, *event]).collect(),
            ApiFault::Reorder => events.reverse(),
            _ => {}
        }
        let passed = events.concat().into();
        arrived.drain(..whole);
        passed
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Of a watch in JSON.
fn whole_lines(arrived: &[u8]) -> Vec<&[u8]> {
    let end = arrived.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    arrived[..end].split_inclusive(|byte| *byte == b'\n').collect()
}

/// Of a watch in protobuf: each event has its length before it, in big endian.
fn whole_frames(mut arrived: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((head, _)) = arrived.split_first_chunk()
        && let Some((frame, rest)) = arrived.split_at_checked(head.len() + u32::from_be_bytes(*head) as usize)
    {
        frames.push(frame);
        arrived = rest;
    }
    frames
}

fn failed(failure: &RequestError) -> Response<Outgoing> {
    match failure {
        RequestError::Status { code, .. } => error_response(*code),
        other => response(StatusCode::BAD_GATEWAY, other.to_string().into()),
    }
}

fn error_response(code: u16) -> Response<Outgoing> {
    let status = serde_json::json!({ "kind": "Status", "code": code, "message": format!("injected error {code}") });
    response(StatusCode::from_u16(code).unwrap_or_default(), status.to_string().into())
}

fn response(code: StatusCode, text: Bytes) -> Response<Outgoing> {
    let mut response = Response::new(Full::new(text).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code;
    response
}
