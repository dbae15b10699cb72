//! How many classes one client can have built, and how many there can be: what a client makes the server compute and keep.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use config::store::{Store, StoreOptions};
use model::Environment;
use prost::Message;
use views::{ClassLimits, Views};
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind};
use xds::{Caller, Membership, NodeError, Provider, TypeUrl, Variant};

fn views(per_client: usize, total: usize) -> Arc<Views> {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let views = Views::limited(Environment::default(), ClassLimits { per_client, total });
    views.refresh(&store.apply(Vec::new()), Instant::now());
    views
}

/// A class for each number of seconds.
fn join(views: &Views, caller: Option<&str>, host: u8, seconds: usize) -> Result<Membership, NodeError> {
    let value = Value { kind: Some(Kind::StringValue(format!("{seconds}s"))) };
    let metadata = Struct { fields: [("IDLE_TIMEOUT".to_owned(), value)].into() };
    let id = "sidecar~10.10.0.1~p.shop~shop.svc.cluster.local".to_owned();
    let node = Node { id, metadata: Some(metadata.encode_to_vec().into()), ..Node::default() };
    let caller = caller.map(|account| Caller {
        identities: vec![format!("spiffe://cluster.local/ns/shop/sa/{account}")],
        ..Caller::default()
    });
    views.join_as(caller.as_ref(), IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), Variant::Delta, &node)
}

fn is_rejected(joined: Result<Membership, NodeError>, why: &str) -> bool {
    matches!(joined, Err(NodeError::TooManyClasses(text)) if text.contains(why))
}

#[test]
fn classes_of_one_identity_are_limited() {
    let views = views(2, 100);
    let mut open: Vec<_> = (1..=2).map(|seconds| join(&views, Some("cart"), 1, seconds).expect("room")).collect();
    let why = "spiffe://cluster.local/ns/shop/sa/cart has 2 proxies of different configuration; raise MELTEMI_MAX_CLASSES_PER_IDENTITY";
    assert!(is_rejected(join(&views, Some("cart"), 2, 3), why), "from any address");
    open.push(join(&views, Some("cart"), 1, 2).expect("a replica needs no class"));
    open.push(join(&views, Some("stock"), 1, 3).expect("another identity"));
    open.push(join(&views, Some("cart"), 1, 3).expect("another identity has that class"));
    assert_eq!(views.class_count(), 3);
}

#[test]
fn without_identities_classes_of_one_address_are_limited() {
    let views = views(2, 100);
    let _open: Vec<_> = (1..=2).map(|seconds| join(&views, None, 1, seconds).expect("room")).collect();
    assert!(is_rejected(join(&views, None, 1, 3), "10.0.0.1 has 2 proxies"));
    assert!(join(&views, None, 2, 3).is_ok(), "another address");
}

#[test]
fn classes_are_limited_in_total() {
    let views = views(100, 3);
    let open: Vec<_> = (1..=3).map(|n| join(&views, None, n, n.into()).expect("room")).collect();
    assert!(is_rejected(join(&views, None, 9, 9), "3 different configurations are served; raise MELTEMI_MAX_CLASSES"));
    drop(open);
    views.sweep_classes();
    views.sweep_classes();
    assert!(join(&views, None, 9, 9).is_ok());
}

/// One that opens and closes streams of ever new classes is not kept from the next.
#[test]
fn classes_that_nobody_uses_make_room() {
    let views = views(2, 3);
    for seconds in 1..50 {
        drop(join(&views, Some("cart"), 1, seconds).expect("the others have ended"));
    }
}

/// A client makes up names of load assignments and routes, as long and as many as it likes.
#[test]
fn made_up_names_are_kept_by_the_stream_only() {
    let views = views(2, 3);
    let joined = join(&views, Some("cart"), 1, 1).expect("room");
    for (kind, name) in [(TypeUrl::Endpoints, "outbound|80||made.up"), (TypeUrl::Route, "made.up:80")] {
        let resource = joined.class.named(kind, name).expect("such resources are empty");
        assert_eq!((&*resource.name, Arc::strong_count(&resource.name)), (name, 1), "{kind:?}");
    }
}
