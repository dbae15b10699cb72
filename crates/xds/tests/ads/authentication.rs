//! Ports with authentication: the order of limits and authentication, and the status of unauthenticated calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::HeaderMap;
use tokio::time::Instant;
use wire::envoy::config::core::v3::Node;
use xds::{
    Authenticator, BoxFuture, CallError, Caller, Options, Peer, ServerPort, TypeUrl, UnaryCall, UnaryMethods, Variant,
};

use crate::harness::{BOTH, Harness};
use crate::proxy::{Proxy, call};

const ROOM: usize = 64 << 10;
pub(crate) const CSR: &str = "/ca.Certificates/Create";

/// Fails with the given errors, one after the other, and then accepts every caller.
#[derive(Default)]
pub(crate) struct Scripted {
    failures: Mutex<VecDeque<CallError>>,
    calls: Mutex<usize>,
}

impl Scripted {
    pub(crate) fn with(failures: impl IntoIterator<Item = CallError>) -> Arc<Scripted> {
        Arc::new(Scripted { failures: Mutex::new(failures.into_iter().collect()), ..Scripted::default() })
    }

    pub(crate) fn port(self: &Arc<Self>) -> ServerPort {
        ServerPort { authenticator: Some(self.clone()), methods: Some(self.clone()), ..ServerPort::default() }
    }

    fn calls(&self) -> usize {
        *self.calls.lock().expect("no test panics with it")
    }
}

impl Authenticator for Scripted {
    fn authenticate<'a>(&'a self, peer: &'a Peer, _: &'a HeaderMap) -> BoxFuture<'a, Result<Caller, CallError>> {
        *self.calls.lock().expect("no test panics with it") += 1;
        let caller =
            Caller { identities: vec!["spiffe://a".to_owned()], address: Some(peer.address.ip()), ..Caller::default() };
        let answer = self.failures.lock().expect("no test panics with it").pop_front().map_or(Ok(caller), Err);
        Box::pin(async move { answer })
    }

    fn on_denied(&self, _: &Caller, _: &Node, _: &str) {}
}

impl UnaryMethods for Scripted {
    fn serves(&self, path: &str) -> bool {
        path == CSR
    }

    fn admit<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap) -> BoxFuture<'a, Result<UnaryCall<'a>, CallError>> {
        Box::pin(async move {
            self.authenticate(peer, headers).await?;
            Ok(Box::new(|request| -> BoxFuture<'a, _> { Box::pin(async move { Ok(request) }) }) as UnaryCall<'a>)
        })
    }
}

async fn open(harness: &Harness, authenticator: &Arc<Scripted>, variant: Variant) -> Proxy {
    Proxy::open(harness.io_on(authenticator.port(), ROOM), variant).await
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_streams_do_not_use_the_rate_limit() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_requests_per_second: 1, ..Options::default() });
        let authenticator = Scripted::with((0..100).map(|_| CallError::Unauthenticated("junk".to_owned())));
        let start = Instant::now();
        for _ in 0..100 {
            let (code, text) = open(&harness, &authenticator, variant).await.status().await;
            assert_eq!(code, 16);
            assert!(!text.contains("junk"), "why is for the log: {text}");
        }
        let mut proxy = open(&harness, &authenticator, variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1");
        assert_eq!(start.elapsed().as_secs(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_authenticator_is_reported_as_unavailable() {
    let harness = Harness::new("CDS a=1");
    let authenticator = Scripted::with([CallError::Unavailable("the API server is away".to_owned())]);
    let (code, text) = open(&harness, &authenticator, Variant::Delta).await.status().await;
    assert_eq!(code, 14);
    assert!(text.contains("try again") && !text.contains("API server"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_an_address_comes_before_authentication_for_streams_and_calls() {
    let harness = Harness::with("CDS a=1", Options { max_streams_per_address: 1, ..Options::default() });
    let authenticator = Scripted::with([]);
    let mut first = open(&harness, &authenticator, Variant::Delta).await;
    first.subscribe(TypeUrl::Cluster, &[]).await;
    first.ack_next().await;
    assert_eq!(authenticator.calls(), 1);
    assert_eq!(open(&harness, &authenticator, Variant::Delta).await.status().await.0, 8);
    let (_, _, head) = call(harness.io_on(authenticator.port(), ROOM), CSR).await;
    assert_eq!(head["grpc-status"], "8");
    assert_eq!(authenticator.calls(), 1, "the limit comes before authentication");
}
