//! A change notifies the proxies that it affects, and no others.

use std::sync::Arc;
use std::time::Instant;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::object::parse_documents;
use config::store::{Snapshot, Store, StoreOptions, Update};
use model::Environment;
use prost::Message;
use views::{PendingNotifications, PushCause, Views};
use wire::envoy::config::core::v3::Node;
use xds::{Membership, Provider, Resource, Seq, TypeUrl};

struct StoredViews {
    store: Store,
    views: Arc<Views>,
}

impl StoredViews {
    /// Two namespaces that import only themselves.
    fn new() -> StoredViews {
        let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mut stored = StoredViews { store, views: Views::new(Environment::default()) };
        stored.set(&["shop", "bank"].map(sidecar).join("\n---\n"));
        stored
    }

    fn set(&mut self, text: &str) {
        self.notifications_of(text).notify_all();
    }

    fn notifications_of(&mut self, text: &str) -> PendingNotifications {
        let parsed = parse_documents("edit", text);
        assert!(parsed.rejected.is_empty(), "{text}\n{:?}", parsed.diagnostics);
        let snapshot: Arc<Snapshot> = self.store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        self.views.refresh_with_cause(&PushCause::text(text), &snapshot, Instant::now())
    }

    fn join(&self, namespace: &str) -> Membership {
        let id = format!("sidecar~10.10.0.1~p.{namespace}~{namespace}.svc.cluster.local");
        self.views.join(&Node { id, ..Node::default() }).expect("a well-formed node")
    }
}

fn sidecar(namespace: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {{name: only, namespace: {namespace}}}, spec: {{egress: [{{hosts: ['./*']}}]}}}}"
    )
}

fn service(namespace: &str, port: u16, annotation: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: s, namespace: {namespace}, annotations: {{note: {annotation}}}}}, spec: {{clusterIP: 10.96.0.1, ports: [{{name: http, port: {port}}}]}}}}"
    )
}

fn sequences(of: &[&Membership]) -> Vec<Seq> {
    of.iter().map(|joined| joined.notifier.seq()).collect()
}

#[test]
fn an_edit_in_one_namespace_notifies_only_its_streams() {
    let mut stored = StoredViews::new();
    let (shop, other, bank) = (stored.join("shop"), stored.join("shop"), stored.join("bank"));
    assert_eq!(sequences(&[&shop, &other, &bank]), [1, 1, 1]);
    stored.set(&service("shop", 80, "a"));
    assert_eq!(sequences(&[&shop, &other, &bank]), [2, 2, 1]);
    stored.set(&service("bank", 80, "a"));
    assert_eq!(sequences(&[&shop, &other, &bank]), [2, 2, 3]);
    assert!(!bank.class.since(TypeUrl::Cluster, 1).is_empty());
}

#[test]
fn streams_are_notified_in_batches_and_each_once() {
    let mut stored = StoredViews::new();
    let streams: Vec<Membership> = (0..5).map(|_| stored.join("shop")).collect();
    let notified = || streams.iter().filter(|joined| joined.notifier.seq() == 2).count();
    let mut pending = stored.notifications_of(&service("shop", 80, "a"));
    assert!(!pending.is_empty() && notified() == 0);
    assert!(pending.notify_batch(2) && notified() == 2);
    assert!(pending.notify_batch(2) && notified() == 4);
    assert!(!pending.notify_batch(2) && notified() == 5);
    assert!(pending.is_empty());
}

#[test]
fn an_edit_without_effect_notifies_no_stream() {
    let mut stored = StoredViews::new();
    stored.set(&service("shop", 80, "a"));
    let shop = stored.join("shop");
    let before = sequences(&[&shop]);
    stored.set(&service("shop", 80, "b"));
    assert_eq!(sequences(&[&shop]), before);
    stored.set(&service("shop", 81, "b"));
    assert!(sequences(&[&shop]) > before);
}

#[test]
fn a_scope_change_notifies_the_streams_that_move() {
    let mut stored = StoredViews::new();
    stored.set(&service("bank", 80, "a"));
    let (shop, bank) = (stored.join("shop"), stored.join("bank"));
    let before = sequences(&[&bank]);
    stored.set(&sidecar("shop").replace("./*", "*/*"));
    assert!(sequences(&[&shop]) > before);
    assert_eq!(sequences(&[&bank]), before);
}

/// A class for each value: it is part of the listeners.
fn join_with_idle_timeout(stored: &StoredViews, seconds: usize) -> Membership {
    let value = wire::google::protobuf::Value {
        kind: Some(wire::google::protobuf::value::Kind::StringValue(format!("{seconds}s"))),
    };
    let metadata = wire::google::protobuf::Struct { fields: [("IDLE_TIMEOUT".to_owned(), value)].into() };
    let id = "sidecar~10.10.0.1~p.shop~shop.svc.cluster.local".to_owned();
    stored
        .views
        .join(&Node { id, metadata: Some(metadata.encode_to_vec().into()), ..Node::default() })
        .expect("a well-formed node")
}

#[test]
fn classes_of_streams_that_ended_are_dropped_at_the_second_sweep() {
    let stored = StoredViews::new();
    let (_open, ended) = (join_with_idle_timeout(&stored, 1), join_with_idle_timeout(&stored, 2));
    assert_eq!(stored.views.class_count(), 2);
    drop(ended);
    stored.views.sweep_classes();
    assert_eq!(stored.views.class_count(), 2, "it may reconnect");
    stored.views.sweep_classes();
    assert_eq!(stored.views.class_count(), 1);
}

#[test]
fn streams_of_ever_new_classes_leave_few_behind() {
    let stored = StoredViews::new();
    let _open = join_with_idle_timeout(&stored, 1);
    for seconds in 2..500 {
        drop(join_with_idle_timeout(&stored, seconds));
    }
    assert!(stored.views.class_count() < 100, "{}", stored.views.class_count());
}

#[test]
fn the_journal_counts_affected_classes_and_streams() {
    let mut stored = StoredViews::new();
    let joined = [stored.join("shop"), stored.join("shop"), stored.join("bank")];
    let text = service("shop", 80, "a");
    stored.set(&text);
    let last = stored.views.journal().expect("it has a journal").snapshot().pop().expect("a push");
    assert_eq!((last.cause, last.classes, last.streams), (text, 1, 2));
    assert_eq!(last.seq, joined[0].notifier.seq());
}

#[test]
fn a_proxy_whose_pod_is_deleted_is_notified() {
    let pod = |namespace: &str| {
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: {namespace}}}, spec: {{}}}}")
    };
    let mut stored = StoredViews::new();
    stored.set(&pod("shop"));
    let (shop, bank) = (stored.join("shop"), stored.join("bank"));
    let gone = || [&shop, &bank].map(|joined| joined.notifier.workload_gone_since().is_some());
    let id = ObjectId { kind: Kind::Pod, namespace: "shop".into(), name: "p".into() };
    let snapshot = stored.store.apply(vec![Update::Delete(id)]);
    stored.views.refresh_with_cause(&PushCause::default(), &snapshot, Instant::now()).notify_all();
    assert_eq!(gone(), [true, false], "the pod of the other never existed");
    stored.set(&pod("bank"));
    assert_eq!(gone(), [true, false]);
    stored.set(&pod("shop"));
    assert_eq!(gone(), [false, false]);
}

/// Its layers were refreshed for other members first.
#[test]
fn a_proxy_that_may_have_moved_is_notified_like_its_class() {
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
    let mut stored = StoredViews::new();
    let pods: Vec<_> = (0..6).map(|number| pod(number, "a")).collect();
    stored.set(&[service("shop", 80, "a"), slice(100), pods.join("\n---\n")].join("\n---\n"));
    let join = |number: usize| {
        let id = format!("sidecar~10.10.0.{number}~p{number}.shop~shop.svc.cluster.local");
        stored.views.join(&Node { id, ..Node::default() }).expect("a well-formed node")
    };
    let joined: Vec<_> = (0..6).map(join).collect();
    assert_eq!(stored.views.class_count(), 6);
    for number in 0..6 {
        let before = joined[0].notifier.seq();
        stored.set(&[slice(number), pod(number, "b")].join("\n---\n"));
        for (other, joined) in joined.iter().enumerate() {
            assert!(joined.notifier.seq() > before, "p{other} after a change of p{number}");
            assert_eq!(joined.class.since(TypeUrl::Endpoints, before).changed.len(), 1);
        }
    }
}

#[test]
fn a_type_without_resources_has_a_sequence() {
    let stored = StoredViews::new();
    assert_eq!(stored.join("shop").class.since(TypeUrl::Secret, 0).seq, 1);
}

/// Its listeners are made from Gateways, which did not change; the authorization policy did.
#[test]
fn an_edited_policy_reaches_a_gateway() {
    let mut stored = StoredViews::new();
    let gateway = "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: g, namespace: shop}, spec: {selector: {app: edge}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ['*']}]}}";
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, labels: {app: edge}}, spec: {containers: []}, status: {phase: Running, podIP: 10.10.0.1}}";
    let policy = |path: &str| {
        format!(
            "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: a, namespace: shop}}, spec: {{action: DENY, rules: [{{to: [{{operation: {{paths: [{path}]}}}}]}}]}}}}"
        )
    };
    stored.set(&[pod, gateway, &policy("/a")].join("\n---\n"));
    let id = "router~10.10.0.1~p.shop~shop.svc.cluster.local".to_owned();
    let joined = stored.views.join(&Node { id, ..Node::default() }).expect("a well-formed node");
    let listeners = |since| joined.class.since(TypeUrl::Listener, since);
    let first = listeners(0);
    assert_eq!(first.changed.len(), 1, "the gateway has a listener");
    stored.set(&policy("/b"));
    assert_eq!(listeners(first.seq).changed.len(), 1);
}

/// The proxy moves to another class. Else one filter would build the routes of the whole mesh again.
#[test]
fn a_new_envoy_filter_leaves_resources_as_they_are_that_it_does_not_patch() {
    let filter = |name: &str, apply_to: &str, value: &str| {
        format!(
            "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: {name}, namespace: shop}}, spec: {{configPatches: [{{applyTo: {apply_to}, patch: {{operation: MERGE, value: {value}}}}}]}}}}"
        )
    };
    let mut stored = StoredViews::new();
    stored.set(&service("shop", 80, "a"));
    let shop = stored.join("shop");
    let all = |kind: TypeUrl| shop.class.since(kind, 0).changed.clone();
    let kept = |before: &[Arc<Resource>], now: &[Arc<Resource>]| {
        before.iter().filter(|old| now.iter().any(|new| Arc::ptr_eq(old, new))).count()
    };
    let kinds = [TypeUrl::Route, TypeUrl::Cluster, TypeUrl::Listener];
    let first = kinds.map(all);
    let count = first.each_ref().map(Vec::len);
    assert!(count.iter().all(|count| *count > 0), "{count:?}");

    stored.set(&filter("listeners", "LISTENER", "{continueOnListenerFiltersTimeout: false}"));
    let second = kinds.map(all);
    let [routes, clusters, listeners] = [0, 1, 2].map(|at| kept(&first[at], &second[at]));
    assert_eq!(routes, count[0]);
    assert!(clusters > 0 && listeners < count[2], "{clusters} clusters, {listeners} listeners");

    stored.set(&filter("routes", "ROUTE_CONFIGURATION", "{maxDirectResponseBodySizeBytes: 8}"));
    let third = kinds.map(all);
    assert!(kept(&second[0], &third[0]) < count[0]);
    assert_eq!(kept(&first[1], &third[1]), clusters);
}
