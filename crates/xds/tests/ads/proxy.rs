//! An ADS client, in both variants, over memory: subscribes, ACKs, NACKs, and shows responses as short texts.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, Request};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{io::DuplexStream, sync::mpsc, time::timeout};
use wire::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse},
    },
    google::rpc,
};
use xds::{TypeUrl, Variant};

/// Paused time only passes when every task waits, so that after this nothing is left to do.
const SETTLED: Duration = Duration::from_millis(500);
pub(crate) const NODE_ID: &str = "sidecar~10.0.0.1~cart-1.shop~shop.svc.cluster.local";

pub(crate) struct Proxy {
    pub(crate) variant: Variant,
    requests: mpsc::Sender<Bytes>,
    answer: Incoming,
    buffer: BytesMut,
    /// The message at the end of the stream.
    trailers: Option<HeaderMap>,
    /// The first message has it.
    node: Option<Node>,
    /// The names that a state-of-the-world request repeats, by type.
    names: BTreeMap<TypeUrl, Vec<String>>,
    nonces: BTreeMap<TypeUrl, String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Received {
    pub(crate) kind: TypeUrl,
    pub(crate) nonce: String,
    pub(crate) version: String,
    /// `CDS a=1 b=2 -c`, names sorted.
    pub(crate) text: String,
}

impl PartialEq<&str> for Received {
    fn eq(&self, text: &&str) -> bool {
        self.text == *text
    }
}

impl Proxy {
    pub(crate) async fn open(io: DuplexStream, variant: Variant) -> Proxy {
        Proxy::open_with(io, variant, None).await
    }

    /// With a flow-control window of this many bytes. `None`: that of hyper.
    pub(crate) async fn open_with(io: DuplexStream, variant: Variant, window: Option<u32>) -> Proxy {
        let method = match variant {
            Variant::Sotw => "StreamAggregatedResources",
            Variant::Delta => "DeltaAggregatedResources",
        };
        let path = format!("/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}");
        let (requests, answer, headers) = call_with(io, &path, window).await;
        let trailers = headers.contains_key("grpc-status").then_some(headers);
        Proxy {
            variant,
            requests,
            answer,
            buffer: BytesMut::new(),
            trailers,
            node: Some(Node { id: NODE_ID.into(), ..Node::default() }),
            names: BTreeMap::new(),
            nonces: BTreeMap::new(),
        }
    }

    pub(crate) fn with_node(mut self, node: Option<Node>) -> Proxy {
        self.node = node;
        self
    }

    /// Subscribes to more names. No names: as a first request, everything.
    pub(crate) async fn subscribe(&mut self, kind: TypeUrl, names: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let known = self.names.entry(kind).or_default();
        known.extend(names.iter().cloned());
        let resource_names = known.clone();
        match self.variant {
            Variant::Sotw => {
                let nonce = self.nonces.get(&kind).cloned().unwrap_or_default();
                self.sotw(DiscoveryRequest { resource_names, response_nonce: nonce, ..sotw(kind) }).await;
            }
            Variant::Delta => {
                self.delta(DeltaDiscoveryRequest { resource_names_subscribe: names, ..delta(kind) }).await;
            }
        }
    }

    pub(crate) async fn unsubscribe(&mut self, kind: TypeUrl, names: &[&str]) {
        let known = self.names.entry(kind).or_default();
        known.retain(|known| !names.contains(&known.as_str()));
        let resource_names = known.clone();
        let names = names.iter().map(ToString::to_string).collect();
        match self.variant {
            Variant::Sotw => {
                let nonce = self.nonces.get(&kind).cloned().unwrap_or_default();
                self.sotw(DiscoveryRequest { resource_names, response_nonce: nonce, ..sotw(kind) }).await;
            }
            Variant::Delta => {
                self.delta(DeltaDiscoveryRequest { resource_names_unsubscribe: names, ..delta(kind) }).await;
            }
        }
    }

    pub(crate) async fn ack(&mut self, got: &Received) {
        self.answer(got, &got.nonce, None).await;
    }

    pub(crate) async fn nack(&mut self, got: &Received, reason: &str) {
        self.answer(got, &got.nonce, Some(reason)).await;
    }

    /// An ACK or NACK, with any nonce.
    pub(crate) async fn answer(&mut self, got: &Received, nonce: &str, reason: Option<&str>) {
        let error_detail = reason.map(|reason| rpc::Status { code: 13, message: reason.into(), ..Default::default() });
        let resource_names = self.names.get(&got.kind).cloned().unwrap_or_default();
        let response_nonce = nonce.to_owned();
        // A proxy sends the nonce of the last response that it has read, not of one in its socket.
        self.nonces.insert(got.kind, got.nonce.clone());
        match self.variant {
            Variant::Sotw => {
                let request = DiscoveryRequest { resource_names, response_nonce, error_detail, ..sotw(got.kind) };
                self.sotw(DiscoveryRequest { version_info: got.version.clone(), ..request }).await;
            }
            Variant::Delta => {
                self.delta(DeltaDiscoveryRequest { response_nonce, error_detail, ..delta(got.kind) }).await;
            }
        }
    }

    /// ACKs the next response.
    pub(crate) async fn ack_next(&mut self) -> Received {
        let got = self.response().await;
        self.ack(&got).await;
        got
    }

    pub(crate) async fn response(&mut self) -> Received {
        self.try_response().await.expect("no response")
    }

    /// Asserts that nothing is sent.
    pub(crate) async fn expect_silence(&mut self) {
        let got = self.try_response().await;
        assert_eq!(got, None, "not quiet");
    }

    /// The next response, if there is one.
    pub(crate) async fn try_response(&mut self) -> Option<Received> {
        self.try_response_within(SETTLED).await
    }

    /// In real time.
    pub(crate) async fn response_within(&mut self, time: Duration) -> Received {
        self.try_response_within(time).await.expect("no response")
    }

    /// The type of the next response. `None`: the stream has ended.
    pub(crate) async fn next_kind(&mut self) -> Option<TypeUrl> {
        let message = timeout(Duration::from_secs(60), self.message()).await.expect("a response or the end")?;
        let url = match self.variant {
            Variant::Sotw => DiscoveryResponse::decode(message).expect("decodes").type_url,
            Variant::Delta => DeltaDiscoveryResponse::decode(message).expect("decodes").type_url,
        };
        TypeUrl::from_url(&url)
    }

    async fn try_response_within(&mut self, time: Duration) -> Option<Received> {
        let message = timeout(time, self.message()).await.ok()?;
        let message = message.unwrap_or_else(|| panic!("the stream ended: {:?}", self.trailers));
        let got = match self.variant {
            Variant::Sotw => parse_sotw(&DiscoveryResponse::decode(message).expect("decodes")),
            Variant::Delta => parse_delta(&DeltaDiscoveryResponse::decode(message).expect("decodes")),
        };
        Some(got)
    }

    /// The status with which the server ends the stream, and its text.
    pub(crate) async fn status(&mut self) -> (u16, String) {
        let message = timeout(Duration::from_secs(120), self.message()).await.expect("the stream goes on");
        assert_eq!(message, None, "a response instead of the end");
        self.status_seen()
    }

    /// Of a stream whose end was read.
    pub(crate) fn status_seen(&self) -> (u16, String) {
        let trailers = self.trailers.as_ref().expect("a status");
        let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        (text("grpc-status").parse().expect("a code"), text("grpc-message").to_owned())
    }

    pub(crate) async fn sotw(&mut self, mut request: DiscoveryRequest) {
        request.node = self.node.take();
        self.bytes(with_grpc_prefix(&request.encode_to_vec())).await;
    }

    pub(crate) async fn delta(&mut self, mut request: DeltaDiscoveryRequest) {
        request.node = self.node.take();
        self.bytes(with_grpc_prefix(&request.encode_to_vec())).await;
    }

    /// Sends raw bytes of the request body. A closed server is noticed by reading.
    pub(crate) async fn bytes(&mut self, bytes: Bytes) {
        let _ = self.requests.send(bytes).await;
    }

    /// Half-closes the stream.
    pub(crate) fn finish(&mut self) {
        self.requests = mpsc::channel(1).0;
    }

    async fn message(&mut self) -> Option<Bytes> {
        loop {
            if let Some(message) = split_message(&mut self.buffer) {
                return Some(message);
            }
            let frame = self.answer.frame().await?.expect("the connection is alive");
            match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }
}

/// A call of any method, and its response.
pub(crate) async fn call(io: DuplexStream, path: &str) -> (mpsc::Sender<Bytes>, Incoming, HeaderMap) {
    call_with(io, path, None).await
}

async fn call_with(io: DuplexStream, path: &str, window: Option<u32>) -> (mpsc::Sender<Bytes>, Incoming, HeaderMap) {
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    if let Some(window) = window {
        builder.initial_stream_window_size(window);
    }
    let (mut sender, connection) = builder.handshake(TokioIo::new(io)).await.expect("a connection");
    tokio::spawn(connection);
    let (requests, receiver) = mpsc::channel::<Bytes>(64);
    let body = StreamBody::new(stream::unfold(receiver, |mut receiver| async {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), receiver))
    }));
    let request = Request::post(format!("http://ads{path}")).header("content-type", "application/grpc");
    let response = sender.send_request(request.body(Box::pin(body)).expect("a request")).await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let (head, answer) = response.into_parts();
    (requests, answer, head.headers)
}

pub(crate) fn sotw(kind: TypeUrl) -> DiscoveryRequest {
    DiscoveryRequest { type_url: kind.url().into(), ..Default::default() }
}

pub(crate) fn delta(kind: TypeUrl) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { type_url: kind.url().into(), ..Default::default() }
}

pub(crate) fn with_grpc_prefix(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.len() as u32);
    bytes.put_slice(message);
    bytes.freeze()
}

fn split_message(buffer: &mut BytesMut) -> Option<Bytes> {
    let prefix = buffer.first_chunk::<5>()?;
    assert_eq!(prefix[0], 0, "not compressed");
    let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    (buffer.len() >= 5 + len).then(|| buffer.split_to(5 + len).freeze().slice(5..))
}

fn parse_sotw(response: &DiscoveryResponse) -> Received {
    let resources = response.resources.iter().map(|any| String::from_utf8_lossy(&any.value).into_owned()).collect();
    received(&response.type_url, &response.nonce, &response.version_info, resources)
}

fn parse_delta(response: &DeltaDiscoveryResponse) -> Received {
    let content = |any: &wire::google::protobuf::Any| String::from_utf8_lossy(&any.value).into_owned();
    let mut parts: Vec<String> = response.resources.iter().filter_map(|r| r.resource.as_ref().map(content)).collect();
    parts.extend(response.removed_resources.iter().map(|name| format!("-{name}")));
    received(&response.type_url, &response.nonce, &response.system_version_info, parts)
}

fn received(url: &str, nonce: &str, version: &str, mut parts: Vec<String>) -> Received {
    let kind = TypeUrl::from_url(url).expect("a known type");
    parts.sort();
    let unique = parts.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(unique, parts.len(), "a name comes twice: {parts:?}");
    parts.insert(0, kind.short().to_owned());
    Received { kind, nonce: nonce.into(), version: version.into(), text: parts.join(" ") }
}
