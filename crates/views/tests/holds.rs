//! Whom a hold is for: what one client rejects is held back from that client's proxy, whatever name it claims.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::store::{Store, StoreOptions};
use model::Environment;
use views::{NackedResource, Views};
use wire::envoy::config::core::v3::Node;
use xds::{Connections, Membership, NackReport, Provider, Resource, TypeUrl, Variant};

fn join(views: &Views, host: u8, variant: Variant) -> Membership {
    let id = "sidecar~10.10.0.1~p.shop~shop.svc.cluster.local".to_owned();
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
    views.join_as(None, address, variant, &Node { id, ..Node::default() }).expect("a well-formed node")
}

fn listed(joined: &Membership) -> Vec<Arc<Resource>> {
    joined.class.since(TypeUrl::Cluster, 0).changed.clone()
}

/// Views that hold nothing yet, and what is rejected.
struct Judged {
    views: Arc<Views>,
    nacked: Arc<Mutex<Vec<NackedResource>>>,
}

impl Judged {
    fn new() -> Judged {
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let views = Views::new(Environment::default());
        views.refresh(&store.apply(Vec::new()), Instant::now());
        let nacked: Arc<Mutex<Vec<NackedResource>>> = Arc::default();
        let reported = nacked.clone();
        views.set_nack_listener(Box::new(move |one| reported.lock().expect("no panic").push(one)));
        Judged { views, nacked }
    }

    /// Returns how many rejections are held.
    fn reject(&self, joined: &Membership, variant: Variant, rejected: &Arc<Resource>) -> usize {
        self.views.record_nack(&NackReport {
            class: &joined.class,
            variant,
            kind: TypeUrl::Cluster,
            reason: "no".into(),
            resources: std::slice::from_ref(rejected),
            position: 0,
        });
        let nacked = std::mem::take(&mut *self.nacked.lock().expect("no panic"));
        assert_eq!(nacked.len(), 1);
        // No stream of the proxy is known here: the decision for its class needs an answer of each.
        self.views.hold_refused(&nacked, &Connections::new(), Duration::from_secs(60)).notify_all();
        self.views.holds().iter().count()
    }
}

fn has(joined: &Membership, wanted: &Resource) -> bool {
    listed(joined).iter().any(|resource| resource.name == wanted.name)
}

#[test]
fn a_client_that_claims_a_proxys_name_holds_nothing_back_from_it() {
    let judged = Judged::new();
    let (attacker, proxy) = (join(&judged.views, 1, Variant::Delta), join(&judged.views, 2, Variant::Delta));
    let rejected = listed(&attacker).pop().expect("every proxy has a cluster");
    judged.reject(&attacker, Variant::Delta, &rejected);
    assert_eq!((has(&attacker, &rejected), has(&proxy, &rejected)), (false, true));
}

/// A complete response without it would remove what the proxy may have.
#[test]
fn nothing_is_left_out_of_a_state_of_the_world_stream_that_comes_later() {
    let judged = Judged::new();
    let delta = join(&judged.views, 1, Variant::Delta);
    let rejected = listed(&delta).pop().expect("every proxy has a cluster");
    assert_eq!(judged.reject(&delta, Variant::Delta, &rejected), 1);
    let sotw = join(&judged.views, 1, Variant::Sotw);
    assert_eq!((has(&delta, &rejected), has(&sotw, &rejected)), (false, true));
    assert!(delta.class.named(TypeUrl::Cluster, &rejected.name).is_none());
    assert!(sotw.class.named(TypeUrl::Cluster, &rejected.name).is_some());
    assert!(!sotw.class.has_changes(TypeUrl::Cluster, u64::MAX - 1), "what is held from others is no change");
    assert_eq!(judged.reject(&sotw, Variant::Sotw, &rejected), 1, "it is sent with the next change again");
    assert!(has(&sotw, &rejected));
}
