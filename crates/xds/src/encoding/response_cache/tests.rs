//! That responses decode, and that what many streams are sent is encoded once.

use std::sync::atomic::AtomicUsize;

use prost::Message;
use wire::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse},
    },
    google::protobuf::Any,
};

use super::*;
use crate::{
    Membership, NodeError,
    encoding::{
        chunks::{MAX_CHUNK, MAX_COPIED},
        grpc_message::{GRPC_PREFIX, GrpcMessage},
    },
};

/// Counts how often it had to release its caches.
#[derive(Default)]
struct IdleCounter(AtomicUsize);

impl Provider for IdleCounter {
    fn ready(&self) -> bool {
        true
    }

    fn join(&self, _: &Node) -> Result<Membership, NodeError> {
        Err(NodeError::Invalid("nothing joins".into()))
    }

    fn release_caches(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn cache() -> ResponseCache {
    let provider: Arc<dyn Provider> = Arc::new(IdleCounter::default());
    ResponseCache::new(&provider)
}

fn resource(name: &str, size: usize) -> Arc<Resource> {
    let any = Any { type_url: "t".into(), value: vec![7; size].into() };
    Arc::new(Resource::new(name.into(), "v".into(), &any, Vec::new()))
}

fn chunks(mut message: GrpcMessage) -> Vec<Bytes> {
    std::iter::from_fn(|| message.next_chunk()).collect()
}

fn message(chunks: &[Bytes]) -> Bytes {
    let all = chunks.concat();
    assert_eq!(all[0], 0);
    let len = u32::from_be_bytes(all[1..GRPC_PREFIX].try_into().expect("four bytes"));
    assert_eq!(len as usize, all.len() - GRPC_PREFIX);
    all[GRPC_PREFIX..].to_vec().into()
}

#[test]
fn a_delta_response_decodes() {
    let resources = [resource("a", 10), resource("b", 40_000), resource("c", 3)];
    let head = ResponseHead { kind: TypeUrl::Cluster, version: 12, nonce: "n" };
    let sent = GrpcMessage::own(&head, Variant::Delta, &resources, &["gone".into()]).expect("not too large");
    let len = sent.len();
    let bytes = message(&chunks(sent));
    assert_eq!(bytes.len(), len);
    let response = DeltaDiscoveryResponse::decode(bytes).expect("decodes");
    assert_eq!((&*response.system_version_info, &*response.nonce), ("12", "n"));
    assert_eq!(response.type_url, TypeUrl::Cluster.url());
    assert_eq!(response.resources.iter().map(|r| &*r.name).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(response.removed_resources, ["gone"]);
}

#[test]
fn a_sotw_response_decodes() {
    let head = ResponseHead { kind: TypeUrl::Route, version: 3, nonce: "n" };
    let sent =
        GrpcMessage::own(&head, Variant::Sotw, &[resource("a", 10), resource("b", 20)], &[]).expect("not too large");
    let response = DiscoveryResponse::decode(message(&chunks(sent))).expect("decodes");
    assert_eq!((&*response.version_info, &*response.nonce, response.resources.len()), ("3", "n", 2));
}

#[test]
fn short_entries_are_copied_together_and_long_ones_shared() {
    let large = resource("large", 20_000);
    let mut resources: Vec<_> = (0..2000).map(|n| resource(&n.to_string(), 40)).collect();
    resources.push(large.clone());
    let head = ResponseHead { kind: TypeUrl::Cluster, version: 3, nonce: "n" };
    let chunks = chunks(GrpcMessage::own(&head, Variant::Delta, &resources, &[]).expect("not too large"));
    assert!(
        chunks.iter().any(|chunk| chunk.as_ptr() == large.entry(Variant::Delta).as_ptr()),
        "the large one is not copied"
    );
    assert!(chunks.len() <= 6, "{} chunks", chunks.len());
    assert!(chunks.iter().all(|chunk| chunk.len() <= MAX_COPIED));
    message(&chunks);
}

fn shared(changes: &Changes, variant: Variant, cache: &ResponseCache) -> Arc<SharedResponse> {
    cache.of_changes(changes, variant, TypeUrl::Cluster, &Nonces::new()).expect("not too large")
}

fn answer(seq: Seq, resources: Vec<Arc<Resource>>, removed: &[&str]) -> Changes {
    let removed = removed.iter().map(|name| Arc::from(*name)).collect();
    Changes { seq, changed: resources, removed, ..Changes::default() }
}

#[test]
fn an_entry_over_64_kib_is_split_without_a_copy() {
    let huge = resource("huge", 1 << 20);
    let head = ResponseHead { kind: TypeUrl::Cluster, version: 3, nonce: "n" };
    let chunks =
        chunks(GrpcMessage::own(&head, Variant::Delta, std::slice::from_ref(&huge), &[]).expect("not too large"));
    assert!(chunks.iter().all(|chunk| chunk.len() <= MAX_CHUNK));
    assert_eq!(chunks[2].as_ptr(), huge.entry(Variant::Delta)[MAX_CHUNK..].as_ptr());
    message(&chunks);
}

#[test]
fn streams_with_the_same_changes_share_one_response() {
    let (changes, cache) = (answer(7, vec![resource("a", 10), resource("b", 40_000)], &["gone"]), cache());
    for variant in [Variant::Sotw, Variant::Delta] {
        let (one, two) = (shared(&changes, variant, &cache), shared(&changes, variant, &cache));
        assert!(Arc::ptr_eq(&one, &two));
        let (one, two) = (chunks(GrpcMessage::shared(one)), chunks(GrpcMessage::shared(two)));
        assert!(one.iter().zip(&two).all(|(one, two)| one.as_ptr() == two.as_ptr()), "the same memory");
        let bytes = message(&one);
        match variant {
            Variant::Sotw => assert_eq!(DiscoveryResponse::decode(bytes).expect("decodes").resources.len(), 2),
            Variant::Delta => {
                let response = DeltaDiscoveryResponse::decode(bytes).expect("decodes");
                assert_eq!((response.resources.len(), &*response.system_version_info), (2, "7"));
                assert_eq!(response.removed_resources, ["gone"]);
            }
        }
    }
    assert!(!Arc::ptr_eq(&shared(&changes.clone(), Variant::Delta, &cache), &shared(&changes, Variant::Delta, &cache)));
}

#[test]
fn streams_with_the_same_few_resources_share_one_response() {
    let (cache, nonces) = (cache(), Nonces::new());
    let small = |version: Seq, resources: &[Arc<Resource>]| {
        cache.small(Variant::Delta, TypeUrl::Endpoints, version, resources, &nonces).expect("not too large")
    };
    let all: Vec<_> = (0..=MAX_SMALL).map(|n| resource(&n.to_string(), 40)).collect();
    assert!(small(3, &all).is_none() && small(3, &[]).is_none());
    let two = small(3, &all[..2]).expect("small");
    assert!(small(3, &all[..2]).is_some_and(|again| Arc::ptr_eq(&two, &again)));
    let others = [small(3, &all[..1]), small(3, &all[1..2]), small(4, &all[..2])];
    assert!(others.into_iter().flatten().all(|other| other.nonce != two.nonce));
    let response = DeltaDiscoveryResponse::decode(message(&chunks(GrpcMessage::shared(two)))).expect("decodes");
    assert_eq!((response.resources.len(), &*response.system_version_info), (2, "3"));
}

#[test]
fn unions_share_the_bytes_of_their_parts() {
    let outbound = Arc::new(answer(3, (0..2000).map(|n| resource(&n.to_string(), 40)).collect(), &[]));
    let cache = cache();
    let sum = |inbound: &str| {
        let parts = vec![outbound.clone(), Arc::new(answer(4, vec![resource(inbound, 10)], &[]))];
        let changed = parts.iter().flat_map(|part| part.changed.clone()).collect();
        Changes { parts, ..answer(4, changed, &[]) }
    };
    let sums = [sum("x"), sum("y")].map(|sum| chunks(GrpcMessage::shared(shared(&sum, Variant::Delta, &cache))));
    let same = sums[0].iter().filter(|one| sums[1].iter().any(|two| one.as_ptr() == two.as_ptr())).count();
    assert!(same + 2 >= sums[0].len() && same >= 3, "{same} of {}", sums[0].len());
    let response = DeltaDiscoveryResponse::decode(message(&sums[1])).expect("decodes");
    assert_eq!((response.resources.len(), &*response.resources[2000].name), (2001, "y"));
}

#[test]
fn responses_beyond_the_budget_leave_the_cache() {
    let cache = cache();
    let first = answer(1, vec![resource("a", MAX_CACHED / 2)], &[]);
    let nonce = shared(&first, Variant::Delta, &cache).nonce.clone();
    assert_eq!(shared(&first, Variant::Delta, &cache).nonce, nonce);
    shared(&answer(2, vec![resource("b", MAX_CACHED / 2)], &[]), Variant::Delta, &cache);
    assert_ne!(shared(&first, Variant::Delta, &cache).nonce, nonce);
}

#[tokio::test(start_paused = true)]
async fn unused_responses_leave_the_cache() {
    let counter = Arc::new(IdleCounter::default());
    let provider: Arc<dyn Provider> = counter.clone();
    let (cache, changes) = (ResponseCache::new(&provider), answer(1, vec![resource("a", 10)], &[]));
    let next_sweep = || tokio::time::sleep(SWEEP_INTERVAL + Duration::from_millis(1));
    for _ in 0..2 {
        let nonce = shared(&changes, Variant::Delta, &cache).nonce.clone();
        for _ in 0..5 {
            next_sweep().await;
            assert_eq!(shared(&changes, Variant::Delta, &cache).nonce, nonce, "still used");
        }
        next_sweep().await;
        next_sweep().await;
        assert_eq!(cache.bytes(), 0);
        assert_ne!(shared(&changes, Variant::Delta, &cache).nonce, nonce);
        next_sweep().await;
        next_sweep().await;
    }
    assert_eq!(counter.0.load(Ordering::Relaxed), 4);
}
