//! One simulated proxy: its connection, its delta ADS stream, its ACKs. Reconnects as Envoy does, with jittered exponential backoff.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use prost::encoding::encode_varint;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use wire::google::rpc::Status;

use crate::names::NameId;
use crate::resource_type::ResourceType;
use crate::round::{Behaviour, Round, next_round};
use crate::scan::{Response, ResponseScanner};
use crate::swarm::SwarmState;
use crate::tls;
use crate::xds_state::XdsState;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// A window that the first responses fill, so that a proxy that never reads has a full one.
const STALLED_WINDOW: u32 = 8 << 10;
/// A slow proxy reads a window of that size, and waits so long before the next one: 160 KB in a second at most.
const SLOW_PAUSE: Duration = Duration::from_millis(50);
/// What pilot-agent, which stands between Envoy and istiod, gives a stream and its connection.
const WINDOW: u32 = 1 << 20;
/// Envoy's jittered backoff: random below the first, which doubles with each failure, up to the second.
const BASE_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

pub(crate) struct Proxy {
    pub(crate) index: usize,
    /// The node, encoded; the first request of a stream carries it.
    pub(crate) node: Bytes,
    /// `None`: plaintext.
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) behaviour: Behaviour,
    pub(crate) shared: Arc<SwarmState>,
    pub(crate) state: XdsState,
}

impl Proxy {
    /// Lives until the swarm ends. Each round that concerns it begins with a new connection.
    pub(crate) async fn run(mut self, mut rounds: watch::Receiver<Round>) {
        let mut next = next_round(&mut rounds, self.index, self.behaviour).await;
        while let Some(round) = next {
            self.behaviour = round.behaviour(self.index);
            if round.forgets() || self.behaviour == Behaviour::Stalled {
                self.state = XdsState::default();
            }
            let (index, behaviour) = (self.index, self.behaviour);
            next = tokio::select! {
                following = next_round(&mut rounds, index, behaviour) => following,
                never = self.stay_connected() => match never {},
            };
        }
    }

    async fn stay_connected(&mut self) -> Infallible {
        let mut failures = 0;
        loop {
            let why = self.stream().await.err().unwrap_or_else(|| "the server ended the stream".to_owned());
            self.shared.tally.failed(why);
            failures += 1;
            tokio::time::sleep(self.backoff(failures)).await;
        }
    }

    async fn stream(&mut self) -> Result<(), String> {
        let (client, _task) = self.connect().await?;
        let mut client = client.ready().await.map_err(|e| format!("HTTP/2: {e}"))?;
        let (response, mut requests) = client.send_request(request(), false).map_err(|e| format!("call: {e}"))?;
        self.send_initial_requests(&mut requests)?;
        let response = response.await.map_err(|e| format!("answer: {e}"))?;
        if let Some(status) = response.headers().get("grpc-status") {
            return Err(format!("rejected: {status:?} {:?}", response.headers().get("grpc-message")));
        }
        let shared = Arc::clone(&self.shared);
        shared.tally.opened();
        let _open = Open(&shared);
        if self.behaviour == Behaviour::Stalled {
            return std::future::pending().await;
        }
        self.read(response.into_body(), requests).await
    }

    async fn connect(&self) -> Result<(SendRequest<Bytes>, Task), String> {
        let mut builder = Builder::new();
        match self.behaviour {
            Behaviour::Stalled | Behaviour::Slow => builder.initial_window_size(STALLED_WINDOW),
            Behaviour::Normal | Behaviour::Silent => {
                builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW)
            }
        };
        let pending = self.shared.dials.acquire().await.map_err(|e| e.to_string())?;
        let tcp = dial(self.index, self.shared.server).await.map_err(|e| format!("connect: {e}"))?;
        tcp.set_nodelay(true).map_err(|e| format!("no delay: {e}"))?;
        let Some(tls) = &self.tls else {
            drop(pending);
            return handshake(&builder, tcp).await;
        };
        // Waiting for its turn here, a proxy does not use up the time that the server gives to a handshake.
        let io = tls.connect(tls::server_name(), tcp).await.map_err(|e| format!("TLS: {e}"))?;
        drop(pending);
        handshake(&builder, io).await
    }

    fn send_initial_requests(&self, requests: &mut SendStream<Bytes>) -> Result<(), String> {
        let initial = self.state.initial_requests(&self.shared.names.lock().expect("no panic while it is held"));
        for (at, request) in initial.iter().enumerate() {
            let node: &[u8] = if at == 0 { &self.node } else { &[] };
            send(requests, node, request)?;
        }
        Ok(())
    }

    async fn read(&mut self, mut body: RecvStream, mut requests: SendStream<Bytes>) -> Result<(), String> {
        let mut scan = ResponseScanner::default();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.map_err(|e| format!("read: {e}"))?;
            if self.behaviour == Behaviour::Slow {
                tokio::time::sleep(SLOW_PAUSE).await;
            }
            body.flow_control().release_capacity(chunk.len()).map_err(|e| format!("window: {e}"))?;
            for response in self.scan(&mut scan, &chunk)? {
                self.respond(&mut requests, &response)?;
            }
        }
        let trailers = body.trailers().await.map_err(|e| format!("trailers: {e}"))?;
        Err(format!("ended: {:?}", trailers.unwrap_or_default().get("grpc-message")))
    }

    fn scan(&self, scan: &mut ResponseScanner, chunk: &[u8]) -> Result<Vec<Response>, String> {
        let mut complete = Vec::new();
        let mut names = self.shared.names.lock().expect("no panic while it is held");
        scan.feed(&mut names, chunk, |_, response| complete.push(response))
            .map_err(|malformed| format!("malformed response: {}", malformed.0))?;
        Ok(complete)
    }

    fn respond(&mut self, requests: &mut SendStream<Bytes>, response: &Response) -> Result<(), String> {
        self.shared.tally.received(self.index, response);
        let Some(kind) = response.kind else { return Ok(()) };
        if kind == ResourceType::Listener && self.shared.rejects_listeners(self.index) {
            let changed = self.state.changed_by(kind, response);
            if !changed.is_empty() {
                return self.reject(requests, kind, response, &changed);
            }
        }
        if matches!(self.behaviour, Behaviour::Normal | Behaviour::Slow) {
            let nonce = response.nonce.clone();
            let ack =
                DeltaDiscoveryRequest { type_url: kind.url().to_owned(), response_nonce: nonce, ..Default::default() };
            send(requests, &[], &ack)?;
        }
        let update = self.state.apply(&self.shared.names.lock().expect("no panic while it is held"), kind, response);
        update.map_or(Ok(()), |request| send(requests, &[], &request))
    }

    /// In Envoy's words, which name what it does not accept. Nothing of the response is kept.
    fn reject(
        &self,
        requests: &mut SendStream<Bytes>,
        kind: ResourceType,
        response: &Response,
        changed: &[NameId],
    ) -> Result<(), String> {
        let names = self.shared.names.lock().expect("no panic while it is held");
        let listeners: Vec<&str> = changed.iter().map(|name| names.text(*name)).collect();
        let message = format!("Error adding/updating listener(s) {}: rejected on request\n", listeners.join(", "));
        let nack = DeltaDiscoveryRequest {
            type_url: kind.url().to_owned(),
            response_nonce: response.nonce.clone(),
            error_detail: Some(Status { code: 13, message, ..Default::default() }),
            ..Default::default()
        };
        send(requests, &[], &nack)
    }

    fn backoff(&self, failures: u32) -> Duration {
        let longest = MAX_BACKOFF.min(BASE_BACKOFF * 2_u32.pow(failures.clamp(1, 10) - 1));
        longest.mul_f64(fraction(self.index as u64 ^ (u64::from(failures) << 32)))
    }
}

/// HTTP/2 on a connection, and the task that drives it.
pub(crate) async fn handshake<T>(builder: &Builder, io: T) -> Result<(SendRequest<Bytes>, Task), String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (client, connection) = builder.handshake::<_, Bytes>(io).await.map_err(|e| format!("HTTP/2: {e}"))?;
    Ok((client, Task(tokio::spawn(async { connection.await.ok() }).abort_handle())))
}

/// Ends the connection's task with the stream.
pub(crate) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An open stream, counted as long as it lives.
struct Open<'a>(&'a SwarmState);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.tally.closed();
    }
}

/// Each proxy has an address of its own, as in a cluster: limits by address and ports that are used up would be no property of the server.
async fn dial(index: usize, server: SocketAddr) -> std::io::Result<TcpStream> {
    let SocketAddr::V4(_) = server else { return TcpStream::connect(server).await };
    let socket = TcpSocket::new_v4()?;
    socket.bind((address(index), 0).into())?;
    socket.connect(server).await
}

/// In 127.0.0.0/8, all of which is this machine on Linux.
fn address(index: usize) -> Ipv4Addr {
    let part = |value: usize| u8::try_from(value % 250).expect("below 250");
    Ipv4Addr::new(127, 1 + part(index / 62_500), part(index / 250), 1 + part(index))
}

pub(crate) fn request() -> Request<()> {
    let request = Request::post(format!("http://control-plane{METHOD}"));
    request.header("content-type", "application/grpc").header("te", "trailers").body(()).expect("a constant request")
}

fn send(requests: &mut SendStream<Bytes>, node: &[u8], request: &DeltaDiscoveryRequest) -> Result<(), String> {
    requests.send_data(frame(node, request), false).map_err(|e| format!("send: {e}"))
}

/// A gRPC frame with the request, and the encoded node (field 1) before its other fields.
pub(crate) fn frame(node: &[u8], request: &DeltaDiscoveryRequest) -> Bytes {
    let mut body = BytesMut::with_capacity(5 + node.len() + 16 + request.encoded_len());
    body.put_bytes(0, 5);
    if !node.is_empty() {
        body.put_u8(0x0a);
        encode_varint(node.len() as u64, &mut body);
        body.put_slice(node);
    }
    request.encode(&mut body).expect("the buffer grows");
    let length = u32::try_from(body.len() - 5).expect("requests are small");
    body[1..5].copy_from_slice(&length.to_be_bytes());
    body.freeze()
}

/// The same for the same seed, spread over 0..1 (the finisher of the splitmix generator).
fn fraction(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::envoy::config::core::v3::Node;

    #[test]
    fn the_first_request_carries_the_node() {
        let node = Node { id: "sidecar~1.2.3.4~a.b~b.svc".into(), ..Default::default() };
        let request = DeltaDiscoveryRequest { type_url: "t".into(), ..Default::default() };
        let bytes = frame(&node.encode_to_vec(), &request);
        let read = DeltaDiscoveryRequest::decode(&bytes[5..]).unwrap();
        assert_eq!((read.node, read.type_url), (Some(node), "t".to_owned()));
        assert_eq!(u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize, bytes.len() - 5);
    }

    #[test]
    fn backoff_is_jittered() {
        let all: Vec<f64> = (0..100).map(fraction).collect();
        assert!(all.iter().all(|f| (0.0..1.0).contains(f)));
        assert!(all.iter().filter(|f| **f < 0.5).count() > 30);
    }
}
