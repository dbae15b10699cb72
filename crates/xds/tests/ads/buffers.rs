//! What a client makes the server keep: incomplete requests, requests that wait, unread responses. Each is limited in bytes and in time, and
//! other clients are not affected.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    time::{Instant, sleep, timeout},
};
use wire::envoy::{config::core::v3::Node, service::discovery::v3::DeltaDiscoveryRequest};
use xds::{CallError, Options, TypeUrl, Variant};

use crate::{
    authentication::{CSR, Scripted},
    floods::{END_HEADERS, GOAWAY, HEADERS, RST_STREAM, SETTINGS, ads_call, frame, raw, received, unharmed},
    harness::{BOTH, Harness},
    proxy::{self, NODE_ID, Proxy, call, with_grpc_prefix},
};

const DATA: u8 = 0;
const END_STREAM: u8 = 1;
const MIB: usize = 1 << 20;

/// The start of a message of 4 MiB; its last byte never comes.
fn incomplete() -> Bytes {
    let mut bytes = vec![0; 4 * MIB + 4];
    bytes[1..5].copy_from_slice(&(4 * MIB as u32).to_be_bytes());
    bytes.into()
}

async fn subscribed(harness: &Harness, variant: Variant) -> Proxy {
    let mut proxy = harness.proxy(variant).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    assert_eq!(proxy.ack_next().await, "CDS a=1");
    proxy
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_message_after_the_first_request_times_out() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = subscribed(&harness, variant).await;
        sleep(Duration::from_secs(60)).await;
        let begin = Instant::now();
        proxy.bytes(Bytes::from_static(b"\0\0\0\0\x09abc")).await;
        sleep(Duration::from_secs(5)).await;
        proxy.bytes(Bytes::from_static(b"d")).await;
        let (code, text) = proxy.status().await;
        assert_eq!((code, text.as_str()), (4, "a message was not complete within 10 seconds; send it without a pause"));
        assert_eq!(begin.elapsed().as_secs(), 10, "each byte does not begin it again");
        unharmed(&harness).await;
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_messages_of_an_address_are_limited_over_its_connections() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxies = Vec::new();
        for _ in 0..24 {
            proxies.push(subscribed(&harness, variant).await);
        }
        let mut witness = subscribed(&harness, variant).await;
        for proxy in &mut proxies {
            proxy.bytes(incomplete()).await;
        }
        sleep(Duration::from_secs(1)).await;
        harness.mesh.set("CDS a=2");
        assert_eq!(witness.ack_next().await, "CDS a=2", "whole messages need no room");
        let mut codes = Vec::new();
        for proxy in &mut proxies {
            while proxy.next_kind().await.is_some() {}
            codes.push(proxy.status_seen().0);
        }
        let [full, slow] = [8, 4].map(|code| codes.iter().filter(|it| **it == code).count());
        assert!(full >= 16 && slow >= 1 && full + slow == 24, "8 messages of 4 MiB have room in 32 MiB: {codes:?}");
        assert_eq!(harness.connections.len(), 1);
    }
}

/// Several streams of one connection, each with the start of a message.
#[tokio::test(start_paused = true)]
async fn incomplete_messages_of_a_connection_are_limited_over_its_streams() {
    let harness = Harness::with("CDS a=1", Options { max_message: 64 << 10, ..Options::default() });
    let mut io = raw(&harness).await;
    let mut message = vec![0; 60 << 10];
    message[1..5].copy_from_slice(&(64_u32 << 10).to_be_bytes());
    for stream in (1..20).step_by(2) {
        io.write_all(&frame(HEADERS, END_HEADERS, stream, &ads_call())).await.expect("written");
        for part in message.chunks(16 << 10) {
            io.write_all(&frame(DATA, 0, stream, part)).await.expect("written");
        }
    }
    let (kinds, _) = received(&mut io).await;
    let ended = kinds.iter().filter(|kind| **kind == RST_STREAM).count();
    assert_eq!(ended, 8, "two messages of 64 KiB have room: {kinds:?}");
}

/// Its requests are read more slowly, and what waits is counted.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_are_limited_over_the_connections_of_an_address() {
    let options = Options {
        subscription_changes_per_second: 1,
        max_message: 256 << 10,
        max_buffered_per_address: MIB,
        ..Options::default()
    };
    let harness = Harness::with("CDS a=1", options);
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut proxy = subscribed(&harness, Variant::Delta).await;
        for n in 0..20 {
            proxy.subscribe(TypeUrl::Endpoints, &[&format!("n{n}")]).await;
        }
        for _ in 0..40 {
            proxy.subscribe(TypeUrl::Endpoints, &[&*"x".repeat(1000); 9]).await;
        }
        open.push(proxy);
    }
    sleep(Duration::from_secs(1)).await;
    let left = harness.connections.len();
    assert!((1..=4).contains(&left), "{left} of 20 connections have 256 KiB that wait");
}

/// Each stream has names that no other has, as long as a name may be.
#[tokio::test(start_paused = true)]
async fn names_that_streams_subscribe_to_are_limited_in_bytes() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_kept_per_address: MIB, ..Options::default() });
        let names = |stream: usize| -> Vec<String> {
            (0..300).map(|n| format!("{variant:?}-{stream}-{n}-{}", "x".repeat(950))).collect()
        };
        let mut open = Vec::new();
        for stream in [0, 1, 2, 0, 1, 2] {
            let mut proxy = subscribed(&harness, variant).await;
            let names = names(stream);
            proxy.subscribe(TypeUrl::Listener, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
            assert_eq!(proxy.next_kind().await, Some(TypeUrl::Listener), "equal names are counted once");
            open.push(proxy);
        }
        let mut one_more = subscribed(&harness, variant).await;
        let more = names(3);
        one_more.subscribe(TypeUrl::Listener, &more.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let (code, text) = one_more.status().await;
        assert!(code == 8 && text.starts_with("more than 1048576 bytes of names and nodes are kept"), "{code} {text}");
        drop(open);
        sleep(Duration::from_secs(1)).await;
        let mut next = subscribed(&harness, variant).await;
        next.subscribe(TypeUrl::Listener, &more.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(next.next_kind().await, Some(TypeUrl::Listener), "what ended streams had is not counted");
        drop(next);
        sleep(Duration::from_secs(1)).await;
        unharmed(&harness).await;
    }
}

/// Names and parts of messages together, from several addresses that each stay within their own limits.
#[tokio::test(start_paused = true)]
async fn addresses_share_a_pool_and_leave_room_in_it() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_shared: 16 * MIB, ..Options::default() });
        let names = |of: &str| -> Vec<String> {
            (0..300).map(|n| format!("{variant:?}-{of}-{n}-{}", "x".repeat(950))).collect()
        };
        let listen = async |address: &str, of: &str| {
            let mut proxy = Proxy::open(harness.io_from(address), variant).await;
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            assert_eq!(proxy.ack_next().await, "CDS a=1");
            let names = names(of);
            proxy.subscribe(TypeUrl::Listener, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
            proxy
        };
        let mut greedy = Vec::new();
        for stream in 0..10 {
            for host in 1..=4 {
                let mut proxy = listen(&format!("10.0.0.{host}:4711"), &format!("{host}-{stream}")).await;
                proxy.bytes(incomplete()).await;
                greedy.push(proxy);
            }
        }
        sleep(Duration::from_secs(1)).await;
        let bytes = |kind| harness.metric(&format!("meltemi_xds_client_bytes{{kind=\"{kind}\"}}")).expect("a gauge");
        let (held, most) = (bytes("buffered") + bytes("kept"), (16 * MIB + 4 * 5 * MIB) as f64);
        assert!(held <= most, "{variant:?}: {held} of 160 MiB, beside a reserve and a first buffer for each address");
        assert!(harness.metric("meltemi_xds_bytes_refused_total{limit=\"pool\"}").is_some_and(|count| count > 4.0));
        let mut others = Vec::new();
        for host in 1..=20 {
            let mut proxy = listen(&format!("10.0.1.{host}:4711"), &format!("other-{host}")).await;
            assert_eq!(proxy.next_kind().await, Some(TypeUrl::Listener), "{variant:?}: others have their reserve");
            others.push(proxy);
        }
        drop((greedy, others));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(bytes("buffered") + bytes("kept") + bytes("pool"), 0.0);
    }
}

/// What is encoded for one stream alone stays until its ACK, which never comes.
#[tokio::test(start_paused = true)]
async fn resources_of_made_up_names_are_limited_in_bytes_until_their_ack() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_kept_per_address: MIB, ..Options::default() });
        let names: Vec<String> = (0..250).map(|n| format!("{n}-{}", "x".repeat(950))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (mut open, mut served) = (Vec::new(), 0);
        for _ in 0..4 {
            let mut proxy = subscribed(&harness, variant).await;
            proxy.subscribe(TypeUrl::Endpoints, &names).await;
            served += usize::from(proxy.next_kind().await == Some(TypeUrl::Endpoints));
            open.push(proxy);
        }
        assert_eq!(served, 1, "{variant:?}: the names count once, each response counts");
        drop(open);
        sleep(Duration::from_secs(1)).await;
        unharmed(&harness).await;
    }
}

#[tokio::test(start_paused = true)]
async fn long_nodes_are_limited_in_bytes() {
    let harness = Harness::with("CDS a=1", Options { max_kept_per_address: MIB, ..Options::default() });
    let id = |number: usize, length: usize| format!("sidecar~10.0.0.1~{number}{}.b~c", "x".repeat(length));
    let mut open = Vec::new();
    let mut codes = Vec::new();
    for number in 0..6 {
        let node = Some(Node { id: id(number, 300 << 10), ..Node::default() });
        let mut proxy = harness.proxy(Variant::Delta).await.with_node(node);
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        codes.push(if proxy.next_kind().await.is_some() { 0 } else { proxy.status_seen().0 });
        open.push(proxy);
    }
    assert_eq!(codes, [0, 0, 0, 8, 8, 8]);
    for number in 0..200 {
        let node = Some(Node { id: id(number, 10 << 10), ..Node::default() });
        let mut proxy = harness.proxy(Variant::Delta).await.with_node(node);
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.next_kind().await, Some(TypeUrl::Cluster), "nodes of usual length do not count");
        open.push(proxy);
    }
}

/// Versions stay in the encoded request until the reply, which a stream that reads nothing never gets.
#[tokio::test(start_paused = true)]
async fn initial_versions_that_wait_for_a_reply_are_limited_in_bytes() {
    for (limit, left) in [(2 * MIB, 0), (32 * MIB, 1)] {
        let options = Options { max_kept_per_address: limit, ..Options::default() };
        let harness = Harness::with(&format!("CDS a={}", "x".repeat(300_000)), options);
        let mut slow = Proxy::open(harness.io_of(1024), Variant::Delta).await;
        slow.subscribe(TypeUrl::Cluster, &[]).await;
        for kind in [TypeUrl::Listener, TypeUrl::Endpoints, TypeUrl::Route, TypeUrl::Extension] {
            let versions = (0..1000).map(|n| (format!("{n}-{}", "x".repeat(900)), "v".to_owned())).collect();
            slow.delta(DeltaDiscoveryRequest { initial_resource_versions: versions, ..proxy::delta(kind) }).await;
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(harness.connections.len(), left, "4 requests of 900 kB with a limit of {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_admitted_before_its_request_is_read() {
    let harness = Harness::new("CDS a=1");
    let nobody = Scripted::with([CallError::Unauthenticated("request authenticate failure".to_owned())]);
    let (_requests, mut answer, _) = call(harness.io_on(nobody.port(), 64 << 10), CSR).await;
    let answered = timeout(Duration::from_secs(1), answer.frame()).await;
    let trailers = answered.expect("nothing was sent and nothing is waited for").expect("trailers").expect("a frame");
    assert_eq!(trailers.into_trailers().expect("trailers")["grpc-status"], "16");
}

#[tokio::test(start_paused = true)]
async fn a_call_has_64_kib_and_10_seconds_for_its_request() {
    let harness = Harness::new("CDS a=1");
    for (bytes, code) in [(&b"\0\0\x01\0\x01"[..], "8"), (b"\0\0\0\0\x02a", "4"), (b"", "4")] {
        let begin = Instant::now();
        let io = harness.io_on(Scripted::with([]).port(), 64 << 10);
        let (mut client, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("open");
        tokio::spawn(driver);
        let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(bytes)))]);
        let body = StreamBody::new(first.chain(stream::pending()));
        let request = Request::post(format!("http://ca{CSR}")).header("content-type", "application/grpc");
        let answer = client.send_request(request.body(body).expect("a request"));
        let answer = timeout(Duration::from_secs(60), answer).await.expect("it is answered").expect("a response");
        let body = answer.into_body().collect().await.expect("it is read");
        assert_eq!(body.trailers().expect("a status")["grpc-status"], code, "{bytes:?}");
        assert!(begin.elapsed() <= Duration::from_secs(10));
    }
}

async fn closes(io: &mut DuplexStream, within: Duration) -> bool {
    let mut rest = Vec::new();
    timeout(within, io.read_to_end(&mut rest)).await.is_ok()
}

/// With a window of zero bytes no reply can be written.
#[tokio::test(start_paused = true)]
async fn replies_that_are_never_read_end_their_connection() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    io.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await.expect("written");
    for stream in (1..40).step_by(2) {
        // Not gRPC: answered with a text.
        let get = b"\x82\x86\x84\x41\x01a";
        io.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, stream, get)).await.expect("written");
    }
    assert!(closes(&mut io, Duration::from_secs(15)).await);
    unharmed(&harness).await;
}

/// The response before an error has a deadline too.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_stream_that_has_ended_is_not_kept() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    io.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await.expect("written");
    io.write_all(&frame(HEADERS, END_HEADERS, 1, &ads_call())).await.expect("written");
    let node = Some(Node { id: NODE_ID.into(), ..Node::default() });
    let request = DeltaDiscoveryRequest { node, ..proxy::delta(TypeUrl::Cluster) }.encode_to_vec();
    io.write_all(&frame(DATA, 0, 1, &with_grpc_prefix(&request))).await.expect("written");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(harness.connections.len(), 1);
    io.write_all(&frame(DATA, 0, 1, b"\x01\0\0\0\0")).await.expect("written");
    assert!(closes(&mut io, Duration::from_secs(15)).await);
    unharmed(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_when_its_last_stream_has_ended() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    io.write_all(&frame(HEADERS, END_HEADERS, 1, &ads_call())).await.expect("written");
    sleep(Duration::from_secs(5)).await;
    io.write_all(&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes())).await.expect("written");
    sleep(Duration::from_secs(8)).await;
    io.write_all(&frame(HEADERS, END_HEADERS, 3, &ads_call())).await.expect("a stream keeps it open");
    sleep(Duration::from_secs(5)).await;
    io.write_all(&frame(RST_STREAM, 0, 3, &8_u32.to_be_bytes())).await.expect("written");
    assert!(closes(&mut io, Duration::from_secs(12)).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_has_at_most_100_streams() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    for stream in (1..300).step_by(2) {
        io.write_all(&frame(HEADERS, END_HEADERS, stream, &ads_call())).await.expect("written");
    }
    let (kinds, _) = received(&mut io).await;
    let refused = kinds.iter().filter(|kind| **kind == RST_STREAM).count();
    assert_eq!(refused, 50, "{kinds:?}");
    assert!(!kinds.contains(&GOAWAY));
}

#[tokio::test(start_paused = true)]
async fn headers_that_never_end_close_the_connection() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    io.write_all(&frame(HEADERS, END_HEADERS, 1, &ads_call())).await.expect("written");
    io.write_all(&frame(HEADERS, 0, 3, b"\x83\x86\x84")).await.expect("written");
    let begin = Instant::now();
    while io.write_all(&frame(9, 0, 3, b"\x41\x01a")).await.is_ok() && begin.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_secs(4)).await;
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

/// A connection beyond the limit is closed before anything is read from it.
#[tokio::test(start_paused = true)]
async fn connections_of_an_address_are_limited() {
    let harness = Harness::with("CDS a=1", Options { max_streams_per_address: 2, ..Options::default() });
    let open: Vec<_> = (0..16).map(|_| harness.io()).collect();
    assert!(closes(&mut harness.io(), Duration::from_millis(10)).await);
    drop(open);
    sleep(Duration::from_secs(1)).await;
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    assert_eq!(proxy.ack_next().await, "CDS a=1", "there is room again");
}
