//! HTTP/2 floods and aborted calls: they end their own connection, and affect no other.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    time::timeout,
};
use wire::envoy::{config::core::v3::Node, service::discovery::v3::DeltaDiscoveryRequest};
use xds::TypeUrl;

use crate::{
    harness::{BOTH, Harness},
    proxy::{self, NODE_ID, Proxy, with_grpc_prefix},
};

const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
pub(crate) const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u32 = 11;

/// HPACK: POST, http, path /, authority a.
const CALL: &[u8] = b"\x83\x86\x84\x41\x01a";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_uint(payload.len() as u64, 3);
    out.put_slice(&[kind, flags]);
    out.put_u32(stream);
    out.put_slice(payload);
    out.freeze()
}

/// A connection of raw frames, after its handshake.
pub(crate) async fn raw(harness: &Harness) -> DuplexStream {
    let mut io = harness.io_of(1 << 20);
    io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("written");
    io.write_all(&frame(SETTINGS, 0, 0, &[])).await.expect("written");
    io
}

/// What the server sends until it closes or is quiet: the types of its frames, and the code of its GOAWAY.
pub(crate) async fn received(io: &mut DuplexStream) -> (Vec<u8>, Option<u32>) {
    let (mut kinds, mut code) = (Vec::new(), None);
    loop {
        let mut head = [0; 9];
        match timeout(Duration::from_secs(5), io.read_exact(&mut head)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return (kinds, code),
        }
        let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
        if io.read_exact(&mut payload).await.is_err() {
            return (kinds, code);
        }
        kinds.push(head[3]);
        if head[3] == GOAWAY {
            code = Some(u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]));
        }
    }
}

/// Other connections are served, and no state is left.
pub(crate) async fn unharmed(harness: &Harness) {
    for variant in BOTH {
        let mut good = harness.proxy(variant).await;
        good.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(good.ack_next().await, "CDS a=1");
        assert_eq!(harness.connections.len(), 1);
        drop(good);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(harness.connections.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn rapid_resets_end_the_connection() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    let mut flood = BytesMut::new();
    for stream in (1..4000).step_by(2) {
        flood.extend_from_slice(&frame(HEADERS, END_HEADERS, stream, CALL));
        flood.extend_from_slice(&frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
    }
    io.write_all(&flood).await.expect("written");
    assert_eq!(received(&mut io).await.1, Some(ENHANCE_YOUR_CALM));
    unharmed(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn endless_continuation_frames_end_the_connection() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    io.write_all(&frame(HEADERS, 0, 1, CALL)).await.expect("written");
    let mut written = 0;
    // Each brings one header of 15,000 bytes: 0x40, a name of one byte, a value of 15,000.
    let mut header = b"\x40\x01x\x7f\x99\x74".to_vec();
    header.resize(header.len() + 15_000, b'v');
    while written < 10_000 && io.write_all(&frame(CONTINUATION, 0, 1, &header)).await.is_ok() {
        written += 1;
    }
    assert!(written < 10_000, "the server goes on reading");
    unharmed(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn rejects_oversized_headers() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    io.write_all(&frame(HEADERS, 0, 1, CALL)).await.expect("written");
    let mut header = b"\x40\x01x\x7f\x99\x74".to_vec();
    header.resize(header.len() + 15_000, b'v');
    for _ in 0..3 {
        io.write_all(&frame(CONTINUATION, 0, 1, &header)).await.expect("written");
    }
    io.write_all(&frame(CONTINUATION, END_HEADERS, 1, &header)).await.expect("written");
    let (kinds, _) = received(&mut io).await;
    assert!(kinds.contains(&HEADERS) || kinds.contains(&RST_STREAM) || kinds.contains(&GOAWAY), "{kinds:?}");
    assert!(harness.connections.is_empty());
    unharmed(&harness).await;
}

/// Replies to pings and settings are not queued: a client that does not read them is not read either.
#[tokio::test(start_paused = true)]
async fn floods_of_pings_and_settings_are_not_queued() {
    for flood in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[])] {
        let harness = Harness::new("CDS a=1");
        let mut io = raw(&harness).await;
        let many: Bytes = flood.iter().copied().cycle().take(flood.len() * 1000).collect::<Vec<_>>().into();
        let mut taken = 0;
        while taken < 1000 && timeout(Duration::from_millis(10), io.write_all(&many)).await.is_ok_and(|it| it.is_ok()) {
            taken += 1;
        }
        assert!(taken < 1000, "a million frames were taken and none of the answers");
        unharmed(&harness).await;
    }
}

#[tokio::test(start_paused = true)]
async fn empty_data_frames_end_the_connection() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    io.write_all(&frame(HEADERS, END_HEADERS, 1, &ads_call())).await.expect("written");
    for _ in 0..5000 {
        if io.write_all(&frame(DATA, 0, 1, &[])).await.is_err() {
            break;
        }
    }
    assert_eq!(received(&mut io).await.1, Some(ENHANCE_YOUR_CALM));
    unharmed(&harness).await;
}

/// A message may come in frames of one byte; it has as much time as any other, and is served.
#[tokio::test(start_paused = true)]
async fn a_message_in_frames_of_one_byte_is_one_message() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    io.write_all(&frame(HEADERS, END_HEADERS, 1, &ads_call())).await.expect("written");
    let node = Node { id: NODE_ID.into(), cluster: "c".repeat(20_000), ..Node::default() };
    let request = DeltaDiscoveryRequest { node: Some(node), ..proxy::delta(TypeUrl::Cluster) };
    for byte in with_grpc_prefix(&request.encode_to_vec()) {
        io.write_all(&frame(DATA, 0, 1, &[byte])).await.expect("written");
    }
    let (kinds, code) = received(&mut io).await;
    assert!(kinds.contains(&DATA) && code.is_none(), "{kinds:?} {code:?}");
    drop(io);
    tokio::time::sleep(Duration::from_secs(1)).await;
    unharmed(&harness).await;
}

/// Sixteen thousand references to one entry of the dynamic table: 16 kB that stand for 2 MB.
#[tokio::test(start_paused = true)]
async fn header_bombs_are_rejected() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    let stored = [&ads_call()[..], b"\x40\x01x\x78", &[b'v'; 120]].concat();
    io.write_all(&frame(HEADERS, END_HEADERS, 1, &stored)).await.expect("written");
    for stream in (3..50).step_by(2) {
        let bomb = [ads_call(), vec![0xbe; 16_000]].concat();
        io.write_all(&frame(HEADERS, END_HEADERS, stream, &bomb)).await.expect("written");
    }
    let (kinds, _) = received(&mut io).await;
    let answers = kinds.iter().filter(|kind| matches!(**kind, HEADERS | RST_STREAM | GOAWAY)).count();
    assert!(answers > 0 && harness.connections.is_empty(), "{kinds:?}");
    unharmed(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn floods_of_window_updates_and_priorities_keep_nothing() {
    let harness = Harness::new("CDS a=1");
    let mut io = raw(&harness).await;
    for stream in (1..20_000).step_by(2) {
        let window = frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
        let priority = frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 1]);
        if io.write_all(&[window, priority].concat()).await.is_err() {
            break;
        }
    }
    unharmed(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_pings_are_answered_or_end_the_connection() {
    let harness = Harness::new("CDS a=1");
    let (mut read, mut write) = tokio::io::split(raw(&harness).await);
    let reader = tokio::spawn(async move {
        let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
        while let Ok(Ok(some @ 1..)) = timeout(Duration::from_secs(60), read.read(&mut buffer)).await {
            total += some;
        }
        total
    });
    let many: Bytes = frame(PING, 0, 0, &[7; 8]).iter().copied().cycle().take(17 * 1000).collect::<Vec<_>>().into();
    for _ in 0..100 {
        if write.write_all(&many).await.is_err() {
            break;
        }
    }
    unharmed(&harness).await;
    drop(write);
    let answered = reader.await.expect("it reads");
    assert!(answered <= 17 * 100_000 + 1000, "{answered} bytes for as many pings");
}

/// HPACK: a call of the delta variant.
pub(crate) fn ads_call() -> Vec<u8> {
    let path = b"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
    let mut block = b"\x83\x86\x41\x01a\x44".to_vec();
    block.push(u8::try_from(path.len()).expect("short"));
    block.extend(path);
    block.extend(b"\x5f\x10application/grpc");
    block
}

#[tokio::test(start_paused = true)]
async fn a_call_received_before_a_deadline_is_served_after_it() {
    let harness = Harness::new("CDS a=1");
    for _ in 0..30 {
        let mut io = raw(&harness).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        io.write_all(&frame(HEADERS, END_HEADERS, 1, &ads_call())).await.expect("written");
        // The timeout of a connection without a stream passes before the server runs.
        tokio::time::advance(Duration::from_secs(10)).await;
        let (kinds, _) = received(&mut io).await;
        assert!(kinds.contains(&HEADERS) && !kinds.contains(&GOAWAY), "{kinds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn aborted_calls_leave_no_state() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        for round in 0..500 {
            let mut proxy: Proxy = harness.proxy(variant).await;
            match round % 4 {
                0 => proxy.bytes(Bytes::from_static(b"\0\0\0\0\x09abc")).await,
                1 => proxy.subscribe(TypeUrl::Cluster, &[]).await,
                2 => {
                    proxy.subscribe(TypeUrl::Cluster, &[]).await;
                    proxy.response().await;
                    proxy.bytes(Bytes::from_static(b"\0\0\0\x01\0")).await;
                }
                _ => {}
            }
            drop(proxy);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(harness.connections.is_empty());
        assert_eq!(harness.metric("meltemi_push_slots_in_use"), Some(0.0));
        assert_eq!(harness.metric("meltemi_push_queue_depth"), Some(0.0));
        assert_eq!(harness.metric("pilot_total_xds_internal_errors"), Some(0.0));
        unharmed(&harness).await;
    }
}
