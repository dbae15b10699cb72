//! Whom a hold is for: what one client rejects is held back from that client's proxy, whatever name it claims.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::store::{Store, StoreOptions};
use model::Environment;
use views::{NackedResource, Views};
use wire::envoy::config::core::v3::Node;
use xds::{Connections, Membership, NackReport, Provider, Resource, TypeUrl, Variant};

fn join(views: &Views, host: u8) -> Membership {
    let id = "sidecar~10.10.0.1~p.shop~shop.svc.cluster.local".to_owned();
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
    views.join_as(None, address, &Node { id, ..Node::default() }).expect("a well-formed node")
}

fn listed(joined: &Membership) -> Vec<Arc<Resource>> {
    joined.class.since(TypeUrl::Cluster, 0).changed.clone()
}

#[test]
fn a_client_that_claims_a_proxys_name_holds_nothing_back_from_it() {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let views = Views::new(Environment::default());
    views.refresh(&store.apply(Vec::new()), Instant::now());
    let nacked: Arc<Mutex<Vec<NackedResource>>> = Arc::default();
    let reported = nacked.clone();
    views.set_nack_listener(Box::new(move |one| reported.lock().expect("no panic").push(one)));

    let (attacker, proxy) = (join(&views, 1), join(&views, 2));
    let rejected = listed(&attacker).pop().expect("every proxy has a cluster");
    views.record_nack(&NackReport {
        class: &attacker.class,
        variant: Variant::Delta,
        kind: TypeUrl::Cluster,
        reason: "no".into(),
        resources: std::slice::from_ref(&rejected),
        position: 0,
    });
    let nacked = std::mem::take(&mut *nacked.lock().expect("no panic"));
    assert_eq!(nacked.len(), 1);
    // No stream of the proxy is known here: the decision for its class needs an answer of each.
    views.hold_refused(&nacked, &Connections::new(), Duration::from_secs(60)).notify_all();

    let has = |joined: &Membership| listed(joined).iter().any(|resource| resource.name == rejected.name);
    assert_eq!((has(&attacker), has(&proxy)), (false, true));
}
