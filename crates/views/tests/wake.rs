//! A change wakes the proxies that it concerns, and no others.

use std::sync::Arc;
use std::time::Instant;

use config::kind::Kind;
use config::note::ObjectId;
use config::object::parse_documents;
use config::store::{Snapshot, Store, StoreOptions, Update};
use model::Environment;
use views::{News, Views};
use wire::envoy::config::core::v3::Node;
use xds::{Joined, Provider, Seq, TypeUrl};

struct World {
    store: Store,
    views: Arc<Views>,
}

impl World {
    /// Two namespaces that see only themselves.
    fn new() -> World {
        let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mut world = World { store, views: Views::new(Environment::default()) };
        world.set(&["shop", "bank"].map(sidecar).join("\n---\n"));
        world
    }

    fn set(&mut self, text: &str) {
        self.news_of(text).tell_all();
    }

    fn news_of(&mut self, text: &str) -> News {
        let parsed = parse_documents("edit", text);
        assert!(parsed.refused.is_empty(), "{text}\n{:?}", parsed.notes);
        let snapshot: Arc<Snapshot> = self.store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        self.views.refresh_for(text, &snapshot, Instant::now())
    }

    fn join(&self, namespace: &str) -> Joined {
        let id = format!("sidecar~10.10.0.1~p.{namespace}~{namespace}.svc.cluster.local");
        self.views.join(&Node { id, ..Node::default() }).expect("a well-formed node")
    }
}

fn sidecar(namespace: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {{name: only, namespace: {namespace}}}, spec: {{egress: [{{hosts: ['./*']}}]}}}}"
    )
}

fn service(namespace: &str, port: u16, note: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: s, namespace: {namespace}, annotations: {{note: {note}}}}}, spec: {{clusterIP: 10.96.0.1, ports: [{{name: http, port: {port}}}]}}}}"
    )
}

fn heard(of: &[&Joined]) -> Vec<Seq> {
    of.iter().map(|joined| joined.news.seq()).collect()
}

#[test]
fn an_edit_in_one_namespace_wakes_only_its_streams() {
    let mut world = World::new();
    let (shop, other, bank) = (world.join("shop"), world.join("shop"), world.join("bank"));
    assert_eq!(heard(&[&shop, &other, &bank]), [1, 1, 1]);
    world.set(&service("shop", 80, "a"));
    assert_eq!(heard(&[&shop, &other, &bank]), [2, 2, 1]);
    world.set(&service("bank", 80, "a"));
    assert_eq!(heard(&[&shop, &other, &bank]), [2, 2, 3]);
    assert!(!bank.class.since(TypeUrl::Cluster, 1).is_empty());
}

#[test]
fn streams_are_told_a_few_at_a_time_and_each_once() {
    let mut world = World::new();
    let streams: Vec<Joined> = (0..5).map(|_| world.join("shop")).collect();
    let told = || streams.iter().filter(|joined| joined.news.seq() == 2).count();
    let mut news = world.news_of(&service("shop", 80, "a"));
    assert!(!news.is_empty() && told() == 0);
    assert!(news.tell(2) && told() == 2);
    assert!(news.tell(2) && told() == 4);
    assert!(!news.tell(2) && told() == 5);
    assert!(news.is_empty());
}

#[test]
fn an_edit_that_means_nothing_wakes_nobody() {
    let mut world = World::new();
    world.set(&service("shop", 80, "a"));
    let shop = world.join("shop");
    let before = heard(&[&shop]);
    world.set(&service("shop", 80, "b"));
    assert_eq!(heard(&[&shop]), before);
    world.set(&service("shop", 81, "b"));
    assert!(heard(&[&shop]) > before);
}

#[test]
fn a_change_of_scope_wakes_those_who_move() {
    let mut world = World::new();
    world.set(&service("bank", 80, "a"));
    let (shop, bank) = (world.join("shop"), world.join("bank"));
    let before = heard(&[&bank]);
    world.set(&sidecar("shop").replace("./*", "*/*"));
    assert!(heard(&[&shop]) > before);
    assert_eq!(heard(&[&bank]), before);
}

#[test]
fn the_journal_says_how_far_a_change_reaches() {
    let mut world = World::new();
    let joined = [world.join("shop"), world.join("shop"), world.join("bank")];
    let text = service("shop", 80, "a");
    world.set(&text);
    let last = world.views.journal().expect("it keeps one").snapshot().pop().expect("a push");
    assert_eq!((last.cause, last.classes, last.streams), (text, 1, 2));
    assert_eq!(last.seq, joined[0].news.seq());
}

#[test]
fn a_proxy_whose_pod_is_gone_is_told() {
    let pod = |namespace: &str| {
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: {namespace}}}, spec: {{}}}}")
    };
    let mut world = World::new();
    world.set(&pod("shop"));
    let (shop, bank) = (world.join("shop"), world.join("bank"));
    let gone = || [&shop, &bank].map(|joined| joined.news.gone().is_some());
    let id = ObjectId { kind: Kind::Pod, namespace: "shop".into(), name: "p".into() };
    let snapshot = world.store.apply(vec![Update::Delete(id)]);
    world.views.refresh_for("", &snapshot, Instant::now()).tell_all();
    assert_eq!(gone(), [true, false], "nobody ever saw the pod of the other");
    world.set(&pod("bank"));
    assert_eq!(gone(), [true, false]);
    world.set(&pod("shop"));
    assert_eq!(gone(), [false, false]);
}

/// Its layers were refreshed for others before it was looked at.
#[test]
fn a_proxy_that_might_have_moved_hears_what_its_neighbours_hear() {
    let pod = |number: usize, account: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p{number}, namespace: shop, labels: {{service.istio.io/canonical-name: p{number}}}}}, spec: {{serviceAccountName: {account}}}}}"
        )
    };
    let slice = |last: usize| {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: s, namespace: shop, labels: {{kubernetes.io/service-name: s}}}}, addressType: IPv4, ports: [{{name: http, port: 80}}], endpoints: [{{addresses: [10.10.1.{last}]}}]}}"
        )
    };
    let mut world = World::new();
    let pods: Vec<_> = (0..6).map(|number| pod(number, "a")).collect();
    world.set(&[service("shop", 80, "a"), slice(100), pods.join("\n---\n")].join("\n---\n"));
    let join = |number: usize| {
        let id = format!("sidecar~10.10.0.{number}~p{number}.shop~shop.svc.cluster.local");
        world.views.join(&Node { id, ..Node::default() }).expect("a well-formed node")
    };
    let joined: Vec<_> = (0..6).map(join).collect();
    assert_eq!(world.views.classes(), 6);
    for number in 0..6 {
        let before = joined[0].news.seq();
        world.set(&[slice(number), pod(number, "b")].join("\n---\n"));
        for (other, joined) in joined.iter().enumerate() {
            assert!(joined.news.seq() > before, "p{other} after a change of p{number}");
            assert_eq!(joined.class.since(TypeUrl::Endpoints, before).changed.len(), 1);
        }
    }
}

#[test]
fn a_type_without_resources_has_a_position_all_the_same() {
    let world = World::new();
    assert_eq!(world.join("shop").class.since(TypeUrl::Secret, 0).seq, 1);
}

/// Its listeners are made from Gateways, which did not change; what guards them did.
#[test]
fn an_edited_policy_reaches_a_router() {
    let mut world = World::new();
    let gateway = "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: g, namespace: shop}, spec: {selector: {app: edge}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ['*']}]}}";
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, labels: {app: edge}}, spec: {containers: []}, status: {phase: Running, podIP: 10.10.0.1}}";
    let policy = |path: &str| {
        format!(
            "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: a, namespace: shop}}, spec: {{action: DENY, rules: [{{to: [{{operation: {{paths: [{path}]}}}}]}}]}}}}"
        )
    };
    world.set(&[pod, gateway, &policy("/a")].join("\n---\n"));
    let id = "router~10.10.0.1~p.shop~shop.svc.cluster.local".to_owned();
    let joined = world.views.join(&Node { id, ..Node::default() }).expect("a well-formed node");
    let listeners = |since| joined.class.since(TypeUrl::Listener, since);
    let first = listeners(0);
    assert_eq!(first.changed.len(), 1, "the router listens");
    world.set(&policy("/b"));
    assert_eq!(listeners(first.seq).changed.len(), 1);
}
