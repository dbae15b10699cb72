//! That responses decode, and that what many streams get is made once.

use std::sync::atomic::AtomicUsize;

use wire::{envoy::config::core::v3::Node, google::protobuf::Any};

use super::*;
use crate::{Joined, Refused};

/// Counts how often it was told to rest.
#[derive(Default)]
struct Resting(AtomicUsize);

impl Provider for Resting {
    fn ready(&self) -> bool {
        true
    }

    fn join(&self, _: &Node) -> Result<Joined, Refused> {
        Err(Refused::Node("nobody joins".into()))
    }

    fn rest(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn kept() -> Kept {
    let provider: Arc<dyn Provider> = Arc::new(Resting::default());
    Kept::new(&provider)
}

fn resource(name: &str, size: usize) -> Arc<Resource> {
    let any = Any { type_url: "t".into(), value: vec![7; size].into() };
    Arc::new(Resource::new(name.into(), "v".into(), &any, Vec::new()))
}

fn chunks(mut frame: Frame) -> Vec<Bytes> {
    std::iter::from_fn(|| frame.chunk()).collect()
}

fn message(chunks: &[Bytes]) -> Bytes {
    let all = chunks.concat();
    assert_eq!(all[0], 0);
    let len = u32::from_be_bytes(all[1..PREFIX].try_into().expect("four bytes"));
    assert_eq!(len as usize, all.len() - PREFIX);
    all[PREFIX..].to_vec().into()
}

#[test]
fn a_delta_response_decodes() {
    let resources = [resource("a", 10), resource("b", 40_000), resource("c", 3)];
    let head = Head { kind: TypeUrl::Cluster, version: 12, nonce: "n" };
    let frame = Frame::own(&head, Variant::Delta, &resources, &["gone".into()]).expect("a frame");
    let len = frame.len();
    let bytes = message(&chunks(frame));
    assert_eq!(bytes.len(), len);
    let response = DeltaDiscoveryResponse::decode(bytes).expect("decodes");
    assert_eq!((&*response.system_version_info, &*response.nonce), ("12", "n"));
    assert_eq!(response.type_url, TypeUrl::Cluster.url());
    assert_eq!(response.resources.iter().map(|r| &*r.name).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(response.removed_resources, ["gone"]);
}

#[test]
fn a_sotw_response_decodes() {
    let head = Head { kind: TypeUrl::Route, version: 3, nonce: "n" };
    let frame = Frame::own(&head, Variant::Sotw, &[resource("a", 10), resource("b", 20)], &[]).expect("a frame");
    let response = DiscoveryResponse::decode(message(&chunks(frame))).expect("decodes");
    assert_eq!((&*response.version_info, &*response.nonce, response.resources.len()), ("3", "n", 2));
}

#[test]
fn small_pieces_are_joined_and_large_ones_shared() {
    let large = resource("large", 20_000);
    let mut resources: Vec<_> = (0..2000).map(|n| resource(&n.to_string(), 40)).collect();
    resources.push(large.clone());
    let head = Head { kind: TypeUrl::Cluster, version: 3, nonce: "n" };
    let chunks = chunks(Frame::own(&head, Variant::Delta, &resources, &[]).expect("a frame"));
    assert!(
        chunks.iter().any(|chunk| chunk.as_ptr() == large.entry(Variant::Delta).as_ptr()),
        "the large one is not copied"
    );
    assert!(chunks.len() <= 6, "{} chunks", chunks.len());
    assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK));
    message(&chunks);
}

fn whole(changes: &Changes, variant: Variant, kept: &Kept) -> Arc<Whole> {
    changes.whole(variant, TypeUrl::Cluster, &Nonces::new(), kept).expect("a frame")
}

fn answer(seq: Seq, resources: Vec<Arc<Resource>>, removed: &[&str]) -> Changes {
    let removed = removed.iter().map(|name| Arc::from(*name)).collect();
    Changes { seq, changed: resources, removed, ..Changes::default() }
}

#[test]
fn a_giant_is_cut_without_a_copy() {
    let giant = resource("giant", 1 << 20);
    let head = Head { kind: TypeUrl::Cluster, version: 3, nonce: "n" };
    let chunks = chunks(Frame::own(&head, Variant::Delta, std::slice::from_ref(&giant), &[]).expect("a frame"));
    assert!(chunks.iter().all(|chunk| chunk.len() <= LARGEST));
    assert_eq!(chunks[2].as_ptr(), giant.entry(Variant::Delta)[LARGEST..].as_ptr());
    message(&chunks);
}

#[test]
fn one_answer_is_one_frame_for_all_streams() {
    let (changes, kept) = (answer(7, vec![resource("a", 10), resource("b", 40_000)], &["gone"]), kept());
    for variant in [Variant::Sotw, Variant::Delta] {
        let (one, two) = (whole(&changes, variant, &kept), whole(&changes, variant, &kept));
        assert!(Arc::ptr_eq(&one, &two));
        let (one, two) = (chunks(Frame::shared(one)), chunks(Frame::shared(two)));
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
    assert!(!Arc::ptr_eq(&whole(&changes.clone(), Variant::Delta, &kept), &whole(&changes, Variant::Delta, &kept)));
}

#[test]
fn a_few_resources_are_one_frame_for_all_streams() {
    let (kept, nonces) = (kept(), Nonces::new());
    let few = |version: Seq, resources: &[Arc<Resource>]| {
        kept.few(Variant::Delta, TypeUrl::Endpoints, version, resources, &nonces).expect("a frame")
    };
    let all: Vec<_> = (0..=FEW).map(|n| resource(&n.to_string(), 40)).collect();
    assert!(few(3, &all).is_none() && few(3, &[]).is_none());
    let two = few(3, &all[..2]).expect("few");
    assert!(few(3, &all[..2]).is_some_and(|again| Arc::ptr_eq(&two, &again)));
    let others = [few(3, &all[..1]), few(3, &all[1..2]), few(4, &all[..2])];
    assert!(others.into_iter().flatten().all(|other| other.nonce != two.nonce));
    let response = DeltaDiscoveryResponse::decode(message(&chunks(Frame::shared(two)))).expect("decodes");
    assert_eq!((response.resources.len(), &*response.system_version_info), (2, "3"));
}

#[test]
fn sums_share_the_bytes_of_their_parts() {
    let outbound = Arc::new(answer(3, (0..2000).map(|n| resource(&n.to_string(), 40)).collect(), &[]));
    let kept = kept();
    let sum = |inbound: &str| {
        let parts = vec![outbound.clone(), Arc::new(answer(4, vec![resource(inbound, 10)], &[]))];
        let changed = parts.iter().flat_map(|part| part.changed.clone()).collect();
        Changes { parts, ..answer(4, changed, &[]) }
    };
    let sums = [sum("x"), sum("y")].map(|sum| chunks(Frame::shared(whole(&sum, Variant::Delta, &kept))));
    let same = sums[0].iter().filter(|one| sums[1].iter().any(|two| one.as_ptr() == two.as_ptr())).count();
    assert!(same + 2 >= sums[0].len() && same >= 3, "{same} of {}", sums[0].len());
    let response = DeltaDiscoveryResponse::decode(message(&sums[1])).expect("decodes");
    assert_eq!((response.resources.len(), &*response.resources[2000].name), (2001, "y"));
}

#[test]
fn frames_that_nobody_gets_are_forgotten_beyond_the_budget() {
    let kept = kept();
    let first = answer(1, vec![resource("a", KEPT / 2)], &[]);
    let nonce = whole(&first, Variant::Delta, &kept).nonce.clone();
    assert_eq!(whole(&first, Variant::Delta, &kept).nonce, nonce);
    whole(&answer(2, vec![resource("b", KEPT / 2)], &[]), Variant::Delta, &kept);
    assert_ne!(whole(&first, Variant::Delta, &kept).nonce, nonce);
}

#[tokio::test(start_paused = true)]
async fn frames_that_nobody_asks_for_again_are_not_kept_for_ever() {
    let resting = Arc::new(Resting::default());
    let provider: Arc<dyn Provider> = resting.clone();
    let (kept, changes) = (Kept::new(&provider), answer(1, vec![resource("a", 10)], &[]));
    let a_moment = || tokio::time::sleep(LOOK + Duration::from_millis(1));
    for _ in 0..2 {
        let nonce = whole(&changes, Variant::Delta, &kept).nonce.clone();
        for _ in 0..5 {
            a_moment().await;
            assert_eq!(whole(&changes, Variant::Delta, &kept).nonce, nonce, "still asked for");
        }
        a_moment().await;
        a_moment().await;
        assert_eq!(kept.bytes(), 0);
        assert_ne!(whole(&changes, Variant::Delta, &kept).nonce, nonce);
        a_moment().await;
        a_moment().await;
    }
    assert_eq!(resting.0.load(Ordering::Relaxed), 4);
}
