//! How connections and streams start and end.

use std::{sync::Arc, time::Duration};

use prometheus::Registry;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::{Instant, timeout},
};
use xds::{Connections, Metrics, Options, Server, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    mesh::Mesh,
    proxy,
};

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_ready_is_unavailable() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        harness.mesh.set_ready(false);
        let (code, text) = harness.proxy(variant).await.status().await;
        assert_eq!(code, 14);
        assert!(text.starts_with("not ready"), "{text}");
        harness.mesh.set_ready(true);
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_method_is_unimplemented() {
    let harness = Harness::new("");
    let (_requests, _answer, headers) = proxy::call(harness.io(), "/grpc.health.v1.Health/Check").await;
    assert_eq!(headers["grpc-status"], "12");
    assert!(headers["grpc-message"].to_str().expect("ascii").contains("/grpc.health.v1.Health/Check"));
}

#[tokio::test(start_paused = true)]
async fn rejects_requests_that_are_not_grpc() {
    let harness = Harness::new("");
    let io = hyper_util::rt::TokioIo::new(harness.io());
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.expect("a connection");
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://ads{DELTA}")).header("content-type", "text/html");
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).expect("a request");
    assert_eq!(sender.send_request(request).await.expect("an answer").status(), 415);
}

#[tokio::test(start_paused = true)]
async fn rejects_other_protocols() {
    for preface in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaaaaaaaaaa"]
    {
        let harness = Harness::new("");
        let mut io = harness.io();
        io.write_all(preface).await.expect("written");
        let mut rest = Vec::new();
        timeout(Duration::from_secs(1), io.read_to_end(&mut rest)).await.expect("closed").expect("read");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_a_first_request_times_out() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let start = Instant::now();
        let (code, text) = harness.proxy(variant).await.status().await;
        assert_eq!((code, text.as_str()), (4, "no first request within 10 seconds"));
        assert_eq!(start.elapsed().as_secs(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_stream_times_out() {
    let harness = Harness::new("");
    let mut io = harness.io();
    let start = Instant::now();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(60), io.read_to_end(&mut rest)).await.expect("closed").expect("read");
    assert!(start.elapsed() <= Duration::from_secs(12), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_stream_ends_with_ok() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        proxy.finish();
        assert_eq!(proxy.status().await, (0, String::new()));
        let method = if variant == Variant::Sotw { "StreamAggregatedResources" } else { "DeltaAggregatedResources" };
        let labels = format!(
            "grpc_code=\"OK\",grpc_method=\"{method}\",grpc_service=\"envoy.service.discovery.v3.AggregatedDiscoveryService\",grpc_type=\"bidi_stream\""
        );
        assert_eq!(harness.metric(&format!("grpc_server_handled_total{{{labels}}}")), Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_is_kept_alive() {
    let harness = Harness::new("CDS a=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy.ack_next().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    harness.mesh.set("CDS a=2");
    assert_eq!(proxy.ack_next().await, "CDS a=2");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_does_not_answer_pings_is_disconnected() {
    let harness = Harness::with("", Options { first_request: Duration::from_secs(600), ..Options::default() });
    let mut io = harness.io();
    // A preface and empty settings, then silence.
    io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("written");
    let start = Instant::now();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(120), io.read_to_end(&mut rest)).await.expect("closed").expect("read");
    assert_eq!(start.elapsed().as_secs(), 40, "30 to the ping, 10 for the answer");
}

#[tokio::test(start_paused = true)]
async fn a_connection_at_its_maximum_age_ends_after_all_acks() {
    for variant in BOTH {
        let options = Options { max_age: Some(Duration::from_secs(100)), ..Options::default() };
        let harness = Harness::with("CDS a=1", options);
        let start = Instant::now();
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        let (code, text) = proxy.status().await;
        assert_eq!((code, text.as_str()), (14, "this connection is closing; reconnect"));
        let age = start.elapsed().as_secs();
        assert!((90..=110).contains(&age), "{age}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_at_its_maximum_age_waits_for_acks_within_its_grace() {
    let options = Options { max_age: Some(Duration::from_secs(50)), ..Options::default() };
    let harness = Harness::with("CDS a=1", options);
    let start = Instant::now();
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy.response().await;
    assert_eq!(proxy.status().await.0, 14);
    let age = start.elapsed().as_secs();
    assert!((55..=66).contains(&age), "with the grace: {age}");
}

#[tokio::test(start_paused = true)]
async fn connections_close_over_the_drain_window() {
    let harness = Harness::new("CDS a=1");
    let mut proxies = Vec::new();
    for _ in 0..40 {
        let mut proxy = harness.proxy(Variant::Delta).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        proxies.push(proxy);
    }
    let start = Instant::now();
    harness.drain.send_replace(Some(start + Duration::from_secs(20)));
    let ends = proxies.iter_mut().map(|proxy| async move {
        assert_eq!(proxy.status().await.0, 14);
        start.elapsed().as_secs_f64()
    });
    let ends = futures_util::future::join_all(ends).await;
    let early = ends.iter().filter(|end| **end < 9.0).count();
    assert!((5..=35).contains(&early), "spread, not at once: {ends:?}");
    assert!(ends.iter().all(|end| *end <= 20.0));
    assert!(harness.connections.is_empty());
}

/// A real server on a real socket; `shutdown` ends it.
struct RunningServer {
    address: std::net::SocketAddr,
    connections: Arc<Connections>,
    shutdown: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

async fn start_server(drain: Duration) -> RunningServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let metrics = Metrics::new(&Registry::new()).expect("registers");
    let connections = Connections::new();
    let options = Options { drain, ..Options::default() };
    let server = Server::new(Arc::new(Mesh::new("CDS a=1")), options, metrics, connections.clone());
    let (shutdown, end) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let end = async {
            let _ = end.await;
        };
        server.serve(listener, xds::ServerPort::default(), end).await;
    });
    RunningServer { address, connections, shutdown, task }
}

#[tokio::test]
async fn a_server_without_streams_stops_at_once() {
    let RunningServer { address, shutdown, task, .. } = start_server(Duration::from_secs(30)).await;
    let _idle = TcpStream::connect(address).await.expect("connected");
    let start = std::time::Instant::now();
    shutdown.send(()).expect("it runs");
    task.await.expect("no panic");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    TcpStream::connect(address).await.expect_err("the port is closed");
}

#[tokio::test]
async fn the_end_of_the_drain_window_aborts_connections() {
    let RunningServer { address, connections, shutdown, task } = start_server(Duration::from_millis(300)).await;
    let mut socket = TcpStream::connect(address).await.expect("connected");
    let (mut pipe_end, io) = tokio::io::duplex(64 << 10);
    let pipe = tokio::spawn(async move {
        let _ = tokio::io::copy_bidirectional(&mut pipe_end, &mut socket).await;
    });
    let mut proxy = proxy::Proxy::open(io, Variant::Delta).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    // Real time: a busy machine may need more than one try.
    while proxy.try_response().await.is_none() {}
    assert_eq!(connections.len(), 1);
    shutdown.send(()).expect("it runs");
    timeout(Duration::from_secs(5), task).await.expect("within the window").expect("no panic");
    assert!(connections.is_empty());
    pipe.abort();
}
