//! A fault in the translation of each group of resources.

use std::cell::RefCell;
use std::time::Instant;

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::Environment;
use wire::envoy::config::core::v3::Node;
use xds::{Class, Membership, Provider, TypeUrl};

use super::*;
use crate::Views;

thread_local! {
    /// The beginning of the resources whose translation panics.
    static INJECTED: RefCell<Option<&'static str>> = const { RefCell::new(None) };
}

pub(super) fn panic_if_injected(resources: &str) {
    let injected = INJECTED.with_borrow(|part| part.is_some_and(|part| resources.starts_with(part)));
    assert!(!injected, "injected");
}

struct Fixture {
    store: Store,
    views: Arc<Views>,
}

impl Fixture {
    fn new(text: &str) -> Fixture {
        let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mut fixture = Fixture { store, views: Views::new(Environment::default()) };
        fixture.set(text);
        fixture
    }

    fn set(&mut self, text: &str) {
        let parsed = parse_documents("objects.yaml", text);
        assert!(parsed.rejected.is_empty(), "{text}: {:?}", parsed.diagnostics);
        let snapshot = self.store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        self.views.refresh(&snapshot, Instant::now());
    }

    /// Makes a change while the translation of these resources panics.
    fn set_with_fault(&mut self, fault: &'static str, text: &str) {
        INJECTED.set(Some(fault));
        self.set(text);
        INJECTED.set(None);
    }

    fn join(&self) -> Membership {
        let id = "sidecar~10.10.0.1~p.shop~shop.svc.cluster.local".to_owned();
        self.views.join(&Node { id, ..Node::default() }).expect("a well-formed node")
    }

    fn notes(&self) -> Vec<String> {
        self.views.translation_diagnostics().iter().map(ToString::to_string).collect()
    }
}

fn service(name: &str, address: u8, port: u16) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{clusterIP: 10.0.0.{address}, ports: [{{name: http, port: {port}}}]}}}}"
    )
}

fn two_services(port: u16) -> String {
    format!("{}\n---\n{}", service("a", 1, port), service("b", 2, port))
}

fn route(timeout: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: v, namespace: shop}}, spec: {{hosts: [a], http: [{{timeout: {timeout}, route: [{{destination: {{host: a}}}}]}}]}}}}"
    )
}

fn versions(class: &dyn Class, kind: TypeUrl) -> BTreeMap<String, String> {
    let all = class.since(kind, 0);
    all.changed.iter().map(|resource| (resource.name.to_string(), resource.version.to_string())).collect()
}

const KINDS: [TypeUrl; 4] = [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route];

#[test]
fn a_service_that_cannot_be_translated_keeps_its_clusters_and_others_change() {
    let mut fixture = Fixture::new(&two_services(80));
    let joined = fixture.join();
    let before = versions(&*joined.class, TypeUrl::Cluster);
    fixture.set_with_fault("clusters and load assignments of a.", &two_services(81));
    let after = versions(&*joined.class, TypeUrl::Cluster);
    let a = |port: u16| format!("outbound|{port}||a.shop.svc.cluster.local");
    assert!(!after.contains_key(&a(81)), "{after:?}");
    assert!(after.contains_key("outbound|81||b.shop.svc.cluster.local"), "{after:?}");
    let notes = fixture.notes();
    assert!(notes.len() == 1 && notes[0].contains("Service shop/a"), "{notes:?}");
    // The same object again, now without the fault.
    fixture.set(&two_services(80));
    assert_eq!(versions(&*joined.class, TypeUrl::Cluster), before);
    assert_eq!(fixture.notes(), Vec::<String>::new());
}

#[test]
fn a_changed_rule_that_cannot_be_translated_leaves_the_last_good_clusters() {
    let rule = |connections: u32| {
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: r, namespace: shop}}, spec: {{host: a, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {connections}}}}}}}}}}}"
        )
    };
    let mut fixture = Fixture::new(&format!("{}\n---\n{}", two_services(80), rule(1)));
    let joined = fixture.join();
    let before = versions(&*joined.class, TypeUrl::Cluster);
    fixture.set_with_fault("clusters and load assignments of a.", &rule(2));
    assert_eq!(versions(&*joined.class, TypeUrl::Cluster), before);
    let notes = fixture.notes().join("\n");
    assert!(notes.contains("DestinationRule shop/r"), "{notes}");
    fixture.set(&rule(3));
    assert_ne!(versions(&*joined.class, TypeUrl::Cluster), before);
}

#[test]
fn a_route_configuration_that_cannot_be_translated_stays() {
    let mut fixture = Fixture::new(&format!("{}\n---\n{}", two_services(80), route("1s")));
    let joined = fixture.join();
    let before = KINDS.map(|kind| versions(&*joined.class, kind));
    fixture.set_with_fault("route configuration 80", &route("2s"));
    assert_eq!(KINDS.map(|kind| versions(&*joined.class, kind)), before);
    let notes = fixture.notes();
    assert!(notes.len() == 1 && notes[0].contains("VirtualService shop/v"), "{notes:?}");
    fixture.set(&route("3s"));
    assert_ne!(versions(&*joined.class, TypeUrl::Route), before[3]);
    assert_eq!(fixture.notes(), Vec::<String>::new());
}

#[test]
fn listeners_that_cannot_be_translated_stay_and_clusters_change() {
    for fault in ["outbound listeners", "outbound HTTP listeners", "inbound resources of"] {
        let mut fixture = Fixture::new(&two_services(80));
        let joined = fixture.join();
        let before = versions(&*joined.class, TypeUrl::Listener);
        fixture.set_with_fault(fault, &format!("{}\n---\n{}", two_services(80), service("c", 3, 82)));
        let after = versions(&*joined.class, TypeUrl::Listener);
        assert!(before.keys().all(|name| after.contains_key(name)), "{fault}: {after:?}");
        assert!(versions(&*joined.class, TypeUrl::Cluster).contains_key("outbound|82||c.shop.svc.cluster.local"));
        assert!(!fixture.views.is_broken());
    }
}

#[test]
fn a_proxy_joins_without_what_cannot_be_translated() {
    let fixture = Fixture::new(&format!("{}\n---\n{}", two_services(80), route("1s")));
    for fault in ["clusters and", "route", "outbound listeners", "outbound HTTP", "inbound", "the name table"] {
        let fixture = Fixture::new(&two_services(80));
        INJECTED.set(Some(fault));
        let joined = fixture.join();
        INJECTED.set(None);
        assert!(KINDS.iter().any(|kind| !versions(&*joined.class, *kind).is_empty()), "{fault}");
    }
    INJECTED.set(Some("clusters and load assignments of a."));
    let joined = fixture.join();
    INJECTED.set(None);
    let clusters = versions(&*joined.class, TypeUrl::Cluster);
    assert!(clusters.contains_key("outbound|80||b.shop.svc.cluster.local"), "{clusters:?}");
    assert!(fixture.notes()[0].contains("Service shop/a"), "{:?}", fixture.notes());
}
