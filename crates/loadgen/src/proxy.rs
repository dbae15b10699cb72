//! One simulated proxy: its connection, its stream, and its answers. Reconnects as Envoy does, with growing pauses.

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

use crate::held::Held;
use crate::round::{Round, Temper, called};
use crate::scan::{Response, Scan};
use crate::swarm::Shared;
use crate::tls;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// A window that the first responses fill, so that a proxy that never reads has a full one.
const STALLED_WINDOW: u32 = 8 << 10;
/// What pilot-agent, which stands between Envoy and istiod, gives a stream and its connection.
const WINDOW: u32 = 1 << 20;
/// Envoy's pauses between attempts: random below this, doubled each time, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(crate) struct Proxy {
    pub(crate) seat: usize,
    /// The node, encoded; the first request of a stream carries it.
    pub(crate) node: Bytes,
    /// `None`: plaintext.
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) temper: Temper,
    pub(crate) shared: Arc<Shared>,
    pub(crate) held: Held,
}

impl Proxy {
    /// Lives until the swarm ends. Each round that concerns it begins with a new connection.
    pub(crate) async fn live(mut self, mut rounds: watch::Receiver<Round>) {
        let mut call = called(&mut rounds, self.seat, self.temper).await;
        while let Some(round) = call {
            self.temper = round.temper(self.seat);
            if round.forgets() || self.temper == Temper::Stalled {
                self.held = Held::default();
            }
            let (seat, temper) = (self.seat, self.temper);
            call = tokio::select! {
                next = called(&mut rounds, seat, temper) => next,
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
            tokio::time::sleep(self.pause(failures)).await;
        }
    }

    async fn stream(&mut self) -> Result<(), String> {
        let (client, _task) = self.connected().await?;
        let mut client = client.ready().await.map_err(|e| format!("HTTP/2: {e}"))?;
        let (response, mut requests) = client.send_request(call(), false).map_err(|e| format!("call: {e}"))?;
        self.greet(&mut requests)?;
        let response = response.await.map_err(|e| format!("answer: {e}"))?;
        if let Some(status) = response.headers().get("grpc-status") {
            return Err(format!("refused: {status:?} {:?}", response.headers().get("grpc-message")));
        }
        let shared = Arc::clone(&self.shared);
        shared.tally.opened();
        let _open = Open(&shared);
        if self.temper == Temper::Stalled {
            return std::future::pending().await;
        }
        self.read(response.into_body(), requests).await
    }

    async fn connected(&self) -> Result<(SendRequest<Bytes>, Task), String> {
        let mut builder = Builder::new();
        match self.temper {
            Temper::Stalled => builder.initial_window_size(STALLED_WINDOW),
            Temper::Good | Temper::Silent => builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW),
        };
        let dialling = self.shared.dials.acquire().await.map_err(|e| e.to_string())?;
        let tcp = dial(self.seat, self.shared.server).await.map_err(|e| format!("connect: {e}"))?;
        tcp.set_nodelay(true).map_err(|e| format!("no delay: {e}"))?;
        let Some(tls) = &self.tls else {
            drop(dialling);
            return spoken(&builder, tcp).await;
        };
        // Waiting for its turn here, a proxy does not use up the time that the server gives to a handshake.
        let io = tls.connect(tls::server_name(), tcp).await.map_err(|e| format!("TLS: {e}"))?;
        drop(dialling);
        spoken(&builder, io).await
    }

    fn greet(&self, requests: &mut SendStream<Bytes>) -> Result<(), String> {
        let greeting = self.held.greeting(&self.shared.names.lock().expect("no panic while it is held"));
        for (at, request) in greeting.iter().enumerate() {
            let node: &[u8] = if at == 0 { &self.node } else { &[] };
            send(requests, node, request)?;
        }
        Ok(())
    }

    async fn read(&mut self, mut body: RecvStream, mut requests: SendStream<Bytes>) -> Result<(), String> {
        let mut scan = Scan::default();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.map_err(|e| format!("read: {e}"))?;
            body.flow_control().release_capacity(chunk.len()).map_err(|e| format!("window: {e}"))?;
            for response in self.scanned(&mut scan, &chunk)? {
                self.answer(&mut requests, &response)?;
            }
        }
        let trailers = body.trailers().await.map_err(|e| format!("trailers: {e}"))?;
        Err(format!("ended: {:?}", trailers.unwrap_or_default().get("grpc-message")))
    }

    fn scanned(&self, scan: &mut Scan, chunk: &[u8]) -> Result<Vec<Response>, String> {
        let mut complete = Vec::new();
        let mut names = self.shared.names.lock().expect("no panic while it is held");
        scan.feed(&mut names, chunk, |_, response| complete.push(response))
            .map_err(|malformed| format!("malformed response: {}", malformed.0))?;
        Ok(complete)
    }

    fn answer(&mut self, requests: &mut SendStream<Bytes>, response: &Response) -> Result<(), String> {
        self.shared.tally.received(self.seat, response);
        let Some(kind) = response.kind else { return Ok(()) };
        if self.temper == Temper::Good {
            let nonce = response.nonce.clone();
            let ack =
                DeltaDiscoveryRequest { type_url: kind.url().to_owned(), response_nonce: nonce, ..Default::default() };
            send(requests, &[], &ack)?;
        }
        let asked = self.held.take(&self.shared.names.lock().expect("no panic while it is held"), kind, response);
        asked.map_or(Ok(()), |request| send(requests, &[], &request))
    }

    fn pause(&self, failures: u32) -> Duration {
        let longest = LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow(failures.clamp(1, 10) - 1));
        longest.mul_f64(fraction(self.seat as u64 ^ (u64::from(failures) << 32)))
    }
}

/// HTTP/2 on a connection, and the task that drives it.
async fn spoken<T>(builder: &Builder, io: T) -> Result<(SendRequest<Bytes>, Task), String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (client, connection) = builder.handshake::<_, Bytes>(io).await.map_err(|e| format!("HTTP/2: {e}"))?;
    Ok((client, Task(tokio::spawn(async { connection.await.ok() }).abort_handle())))
}

/// Ends the connection's task with the stream.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An open stream, counted as long as it lives.
struct Open<'a>(&'a Shared);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.tally.closed();
    }
}

/// Each proxy has an address of its own, as in a cluster: limits by address and ports that are used up would be no property of the server.
async fn dial(seat: usize, server: SocketAddr) -> std::io::Result<TcpStream> {
    let SocketAddr::V4(_) = server else { return TcpStream::connect(server).await };
    let socket = TcpSocket::new_v4()?;
    socket.bind((address(seat), 0).into())?;
    socket.connect(server).await
}

/// In 127.0.0.0/8, all of which is this machine on Linux.
fn address(seat: usize) -> Ipv4Addr {
    let part = |value: usize| u8::try_from(value % 250).expect("below 250");
    Ipv4Addr::new(127, 1 + part(seat / 62_500), part(seat / 250), 1 + part(seat))
}

fn call() -> Request<()> {
    let request = Request::post(format!("http://control-plane{METHOD}"));
    request.header("content-type", "application/grpc").header("te", "trailers").body(()).expect("a constant request")
}

fn send(requests: &mut SendStream<Bytes>, node: &[u8], request: &DeltaDiscoveryRequest) -> Result<(), String> {
    requests.send_data(frame(node, request), false).map_err(|e| format!("send: {e}"))
}

/// A gRPC frame with the request, and the encoded node (field 1) before its other fields.
fn frame(node: &[u8], request: &DeltaDiscoveryRequest) -> Bytes {
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
    fn pauses_are_spread() {
        let all: Vec<f64> = (0..100).map(fraction).collect();
        assert!(all.iter().all(|f| (0.0..1.0).contains(f)));
        assert!(all.iter().filter(|f| **f < 0.5).count() > 30);
    }
}
