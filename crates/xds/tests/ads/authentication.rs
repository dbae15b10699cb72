//! Ports that ask who calls: in which order limits and authentication come, and what those hear who have no identity.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;
use wire::envoy::config::core::v3::Node;
use xds::{Caller, Door, Failure, Later, Methods, Options, Peer, Port, TypeUrl, Variant};

use crate::harness::{BOTH, Harness};
use crate::proxy::{Proxy, call};

const ROOM: usize = 64 << 10;
const CSR: &str = "/ca.Certificates/Create";

/// Answers as it was told to, one caller after the other, and then lets everybody in.
#[derive(Default)]
struct Scripted {
    failures: Mutex<VecDeque<Failure>>,
    asked: Mutex<usize>,
}

impl Scripted {
    fn with(failures: impl IntoIterator<Item = Failure>) -> Arc<Scripted> {
        Arc::new(Scripted { failures: Mutex::new(failures.into_iter().collect()), ..Scripted::default() })
    }

    fn port(self: &Arc<Self>) -> Port {
        Port { door: Some(self.clone()), methods: Some(self.clone()), ..Port::default() }
    }

    fn asked(&self) -> usize {
        *self.asked.lock().expect("no test panics with it")
    }
}

impl Door for Scripted {
    fn caller<'a>(&'a self, peer: &'a Peer, _: &'a HeaderMap) -> Later<'a, Result<Caller, Failure>> {
        *self.asked.lock().expect("no test panics with it") += 1;
        let caller =
            Caller { identities: vec!["spiffe://a".to_owned()], address: Some(peer.address.ip()), ..Caller::default() };
        let answer = self.failures.lock().expect("no test panics with it").pop_front().map_or(Ok(caller), Err);
        Box::pin(async move { answer })
    }

    fn denied(&self, _: &Caller, _: &Node, _: &str) {}
}

impl Methods for Scripted {
    fn serves(&self, path: &str) -> bool {
        path == CSR
    }

    fn call<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap, _: Bytes) -> Later<'a, Result<Bytes, Failure>> {
        Box::pin(async move { self.caller(peer, headers).await.map(|_| Bytes::new()) })
    }
}

async fn open(harness: &Harness, door: &Arc<Scripted>, variant: Variant) -> Proxy {
    Proxy::open(harness.io_on(door.port(), ROOM), variant).await
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_streams_do_not_use_up_the_rate_of_others() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_requests_per_second: 1, ..Options::default() });
        let door = Scripted::with((0..100).map(|_| Failure::Unauthenticated("junk".to_owned())));
        let began = Instant::now();
        for _ in 0..100 {
            let (code, text) = open(&harness, &door, variant).await.ended().await;
            assert_eq!(code, 16);
            assert!(!text.contains("junk"), "why is for the log: {text}");
        }
        let mut proxy = open(&harness, &door, variant).await;
        proxy.ask(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.take().await, "CDS a=1");
        assert_eq!(began.elapsed().as_secs(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_authenticated_now_is_told_to_try_again() {
    let harness = Harness::new("CDS a=1");
    let door = Scripted::with([Failure::Unavailable("the API server is away".to_owned())]);
    let (code, text) = open(&harness, &door, Variant::Delta).await.ended().await;
    assert_eq!(code, 14);
    assert!(text.contains("try again") && !text.contains("API server"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_an_address_comes_before_authentication_for_streams_and_calls() {
    let harness = Harness::with("CDS a=1", Options { max_streams_per_address: 1, ..Options::default() });
    let door = Scripted::with([]);
    let mut first = open(&harness, &door, Variant::Delta).await;
    first.ask(TypeUrl::Cluster, &[]).await;
    first.take().await;
    assert_eq!(door.asked(), 1);
    assert_eq!(open(&harness, &door, Variant::Delta).await.ended().await.0, 8);
    let (_, _, head) = call(harness.io_on(door.port(), ROOM), CSR).await;
    assert_eq!(head["grpc-status"], "8");
    assert_eq!(door.asked(), 1, "nobody was asked who they are");
}
