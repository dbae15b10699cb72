//! Laws T1 to T3: after any sequence of edits, what each proxy was sent adds up to a computation from scratch on the current objects and the
//! current holds, arrived in order, and is made from no object that is private to another namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::store::{Name, Snapshot, Store, StoreOptions};
use model::{Environment, Mesh, NodeInfo, Proxy};
use proptest::prelude::*;
use prost::Message;
use views::{ClassClient, Holds, NackedResource, ProxySet, Views};
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind as Json};
use xds::{
    Class, Connections, ContentDigest, Kinds, Membership, NackReport, Notifier, Provider, Seq, TypeUrl, Variant,
};

mod editing;
mod extending;
mod plaintext;

use editing::{Edit, NAMESPACES, edit, updates};

const KINDS: [TypeUrl; 6] =
    [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::Extension, TypeUrl::NameTable];

type Resources = BTreeMap<TypeUrl, BTreeMap<Arc<str>, Arc<str>>>;

/// A proxy that applies what it is sent, as Envoy would.
struct TestProxy {
    info: NodeInfo,
    class: Arc<dyn Class>,
    notifier: Arc<Notifier>,
    at: BTreeMap<TypeUrl, Seq>,
    resources: Resources,
}

impl TestProxy {
    /// Like a stream: a type without a notification is not read.
    fn catch_up(&mut self) {
        let notified = pin!(self.notifier.notified()).poll(&mut Context::from_waker(Waker::noop()));
        let due = match notified {
            _ if self.at.is_empty() => Kinds::ALL,
            Poll::Ready(notified) => notified.kinds,
            Poll::Pending => Kinds::NONE,
        };
        for kind in KINDS.into_iter().filter(|kind| due.contains(*kind)) {
            let at = self.at.entry(kind).or_default();
            let changes = self.class.since(kind, *at);
            // Law T3: sequences never decrease.
            assert!(changes.is_empty() || changes.seq > *at, "{kind:?} goes from {at} to {}", changes.seq);
            let versions = self.resources.entry(kind).or_default();
            for gone in &changes.removed {
                versions.remove(gone);
            }
            for resource in &changes.changed {
                versions.insert(resource.name.clone(), resource.version.clone());
            }
            *at = (*at).max(changes.seq);
        }
    }

    /// NACKs one of the resources that it has, or that it has missed so far.
    fn reject(&self, views: &Views, pick: usize) {
        let kind = [TypeUrl::Cluster, TypeUrl::Listener, TypeUrl::Route, TypeUrl::Extension][pick % 4];
        let all = self.class.since(kind, 0);
        let Some(resource) = all.changed.get(pick / 4 % all.changed.len().max(1)) else { return };
        let (variant, reason, resources) = (Variant::Delta, "no".into(), std::slice::from_ref(resource));
        let position = self.at.get(&kind).copied().unwrap_or_default();
        views.record_nack(&NackReport { class: &self.class, variant, kind, reason, resources, position });
    }

    /// What a computation from scratch says with these holds, and the names of which the proxy keeps what it has.
    fn with_holds(&self, mut all: Resources, holds: &Holds) -> (Resources, Vec<(TypeUrl, Arc<str>)>) {
        let mut left_out = Vec::new();
        let own = ProxySet::Proxy {
            id: self.info.id.split('~').nth(2).expect("set above").into(),
            client: ClassClient::Nobody,
        };
        for hold in holds.iter().filter(|hold| hold.proxies == own) {
            let (kind, name) = (hold.key.kind, &hold.key.name);
            let named = all.get_mut(&kind).expect("listed for every type");
            if named.get(name).is_none_or(|version| *version != hold.refused.version) {
                continue;
            }
            match hold.instead.content() {
                Some(content) => drop(named.insert(name.clone(), content.version.clone())),
                None => {
                    named.remove(name);
                    left_out.push((kind, name.clone()));
                }
            }
        }
        (all, left_out)
    }

    /// Law T2: nothing is made from objects private to another namespace. Checked on a computation from scratch, whose bytes equal the
    /// refreshed ones by law T1: a listener whose bytes stay may keep its first provenance.
    fn sees_nothing_private(&self, class: &dyn Class, private: &BTreeSet<String>) {
        let own = self.info.metadata["NAMESPACE"].as_str().expect("set above");
        for kind in KINDS {
            for resource in &class.since(kind, 0).changed {
                for id in resource.provenance.iter().filter(|id| private.contains(&***id)) {
                    assert!(id.contains(&format!(" {own}/")), "{own} gets {kind:?} {} made from {id}", resource.name);
                }
            }
        }
    }

    /// From scratch: a mesh and a provider without history.
    fn scratch(&self, snapshot: &Snapshot) -> Arc<dyn Class> {
        let views = Views::new(Environment::default());
        views.refresh(snapshot, Instant::now());
        views.join(&node(&self.info)).expect("it joined before").class
    }

    fn listed(class: &dyn Class) -> Resources {
        let listed = |kind| {
            let all = class.since(kind, 0);
            assert_eq!(class.content_digest(kind), ContentDigest::of(&all.changed).at(all.seq), "{kind:?} in short");
            let named: BTreeMap<_, _> = all.changed.iter().map(|r| (r.name.clone(), r.version.clone())).collect();
            assert_eq!(named.len(), all.changed.len(), "{kind:?}: proxies reject duplicate names");
            named
        };
        KINDS.into_iter().map(|kind| (kind, listed(kind))).collect()
    }
}

/// Objects that only their own namespace may see.
fn private(snapshot: &Snapshot) -> BTreeSet<String> {
    let own = |export_to: &[String]| matches!(export_to, [only] if only == ".");
    let id =
        |kind, name: &Name| ObjectId { kind, namespace: name.namespace.clone(), name: name.name.clone() }.to_string();
    let services = snapshot.services.iter().filter(|(_, object)| {
        object.meta.annotations.get("networking.istio.io/exportTo").is_some_and(|text| text == ".")
    });
    let routes = snapshot.virtual_services.iter().filter(|(_, object)| own(&object.spec.export_to));
    let rules = snapshot.destination_rules.iter().filter(|(_, object)| own(&object.spec.export_to));
    let entries = snapshot.service_entries.iter().filter(|(_, object)| own(&object.spec.export_to));
    let all = services.map(|(name, _)| id(Kind::Service, name));
    let all = all.chain(routes.map(|(name, _)| id(Kind::VirtualService, name)));
    let all = all.chain(rules.map(|(name, _)| id(Kind::DestinationRule, name)));
    all.chain(entries.map(|(name, _)| id(Kind::ServiceEntry, name))).collect()
}

fn info(ns: u8, pod: u8) -> NodeInfo {
    let namespace = NAMESPACES[usize::from(ns)];
    let kind = if ns == 2 && pod != 1 { "router" } else { "sidecar" };
    let network = ["", "near", "far"][usize::from(pod)];
    NodeInfo {
        id: format!("{kind}~10.10.{ns}.{pod}~p{pod}.{namespace}~{namespace}.svc.cluster.local"),
        metadata: serde_json::json!({"NAMESPACE": namespace, "LABELS": {"app": format!("a{pod}")}, "DNS_CAPTURE": (pod == 1).to_string(), "NETWORK": network}),
        ..NodeInfo::default()
    }
}

fn node(info: &NodeInfo) -> Node {
    let text =
        |value: &serde_json::Value| Value { kind: Some(Json::StringValue(value.as_str().unwrap_or_default().into())) };
    let fields = ["NAMESPACE", "DNS_CAPTURE", "NETWORK"].map(|key| (key.to_owned(), text(&info.metadata[key]))).into();
    Node { id: info.id.clone(), metadata: Some(Struct { fields }.encode_to_vec().into()), ..Node::default() }
}

/// Laws T1 to T3 for one sequence of edits. Every `lazy`th proxy reads several changes at once.
fn holds(edits: &[Edit], lazy: usize) {
    holds_with_rejections(edits, lazy, &[]);
}

/// `rejections`: what some proxy rejects after an edit.
fn holds_with_rejections(edits: &[Edit], lazy: usize, rejections: &[usize]) {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let views = Views::new(Environment::default());
    let nacked: Arc<Mutex<Vec<NackedResource>>> = Arc::default();
    let reported = nacked.clone();
    views.set_nack_listener(Box::new(move |nacked| reported.lock().expect("no panic").push(nacked)));
    views.refresh(&store.snapshot(), Instant::now());
    let mut proxies: Vec<TestProxy> = Vec::new();
    for (step, edit) in edits.iter().enumerate() {
        if let Edit::Join { ns, pod } = *edit {
            let info = info(ns, pod);
            let Membership { class, notifier, .. } = views.join(&node(&info)).expect("a well-formed node");
            proxies.push(TestProxy { info, class, notifier, at: BTreeMap::new(), resources: BTreeMap::new() });
        }
        let snapshot = store.apply(updates(edit));
        views.refresh(&snapshot, Instant::now());
        if let (Some(pick), false) = (rejections.get(step), proxies.is_empty()) {
            proxies[pick % proxies.len()].reject(&views, *pick);
            let refused = std::mem::take(&mut *nacked.lock().expect("no panic"));
            // Only the proxy itself is concerned: no stream is in the table.
            views.hold_refused(&refused, &Connections::new(), Duration::from_secs(1)).notify_all();
        }
        // Slow proxies read several changes at once.
        for (index, proxy) in proxies.iter_mut().enumerate() {
            if step % (index % lazy + 1) == 0 {
                proxy.catch_up();
            }
        }
    }
    let snapshot = store.snapshot();
    let private = private(&snapshot);
    for proxy in &mut proxies {
        proxy.catch_up();
        let scratch = proxy.scratch(&snapshot);
        proxy.sees_nothing_private(&*scratch, &private);
        let (want, left_out) = proxy.with_holds(TestProxy::listed(&*scratch), &views.holds());
        for (kind, name) in left_out {
            proxy.resources.get_mut(&kind).expect("read").remove(&name);
        }
        for kind in KINDS {
            assert_eq!(&proxy.resources[&kind], &want[&kind], "{} {:?}", proxy.info.id, kind);
        }
    }
}

#[test]
fn a_service_entry_that_becomes_private_leaves_another_with_its_host() {
    let entry = |ns, name, shape| Edit::Entry { name, ns, host: 0, shape };
    // Two entries with one host and equal content; then the first becomes private to its namespace.
    holds(&[entry(2, 2, 0), Edit::Join { ns: 0, pod: 0 }, entry(0, 0, 0), entry(2, 2, 4)], 1);
}

#[test]
fn a_pod_of_a_service_entry_shadowed_by_a_service_has_a_listener() {
    let entry = Edit::Entry { name: 0, ns: 0, host: 2, shape: 6 };
    for shape in [2, 6] {
        let service = Edit::Service { name: 0, ns: 0, port: 0, shape };
        let pod = Edit::Pod { name: 1, ns: 0, app: 2, mtls: false, account: 0 };
        holds(&[entry.clone(), service, Edit::Join { ns: 1, pod: 0 }, pod], 1);
    }
}

#[test]
fn an_inbound_cluster_does_not_take_the_name_of_an_outbound_one() {
    let service = |port| Edit::Service { name: 2, ns: 1, port, shape: 7 };
    let pod = Edit::Pod { name: 2, ns: 1, app: 2, mtls: false, account: 0 };
    let filter = Edit::Filter(extending::ObjectVariant::renaming(2));
    holds(&[pod, service(0), Edit::Join { ns: 1, pod: 2 }, filter, service(1)], 1);
}

#[test]
fn a_policy_of_an_entrys_namespace_reaches_the_clients_of_its_dynamic_host() {
    let entry = |shape| Edit::Entry { name: 0, ns: 1, host: 1, shape };
    let pod = Edit::Pod { name: 0, ns: 0, app: 1, mtls: true, account: 0 };
    let policy = |shape| Edit::Authorization { ns: 1, name: 0, shape };
    let join = Edit::Join { ns: 0, pod: 0 };
    holds(
        &[pod, join, entry(5), policy(1), policy(0), Edit::NoAuthorization { ns: 1, name: 0 }, policy(1), entry(0)],
        1,
    );
}

#[test]
fn a_pod_that_only_a_slice_names_serves_its_ports() {
    let pod = |app| Edit::Pod { name: 0, ns: 0, app, mtls: true, account: 0 };
    let service = Edit::Service { name: 0, ns: 0, port: 0, shape: 0 };
    let slice = |pods| Edit::Slice { service: 0, ns: 0, pods, ready: true, targets: true };
    holds(&[service, pod(2), Edit::Join { ns: 0, pod: 0 }, slice(1), slice(2), slice(1), pod(0), pod(1)], 1);
}

#[test]
fn a_rule_for_a_shadowed_service_changes_tcp_routing() {
    let service = Edit::Service { name: 0, ns: 0, port: 0, shape: 5 };
    let entry = Edit::Entry { name: 0, ns: 0, host: 2, shape: 0 };
    let rule = Edit::Rule { ns: 0, name: 0, host: 2, shape: 1 };
    holds(&[service, Edit::Join { ns: 0, pod: 0 }, entry, rule], 1);
}

proptest! {
    // PROPTEST_CASES sets the number of cases; a failure prints the shrunk edits, and its seed goes to proptest-regressions.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn refreshed_views_equal_a_computation_from_scratch(edits in prop::collection::vec(edit(), 1..60), lazy in 1..4usize) {
        holds(&edits, lazy);
    }

    #[test]
    fn so_do_views_with_holds(
        edits in prop::collection::vec(edit(), 1..60),
        lazy in 1..4usize,
        rejections in prop::collection::vec(0..10_000usize, 60),
    ) {
        holds_with_rejections(&edits, lazy, &rejections);
    }

    #[test]
    fn an_incremental_mesh_equals_a_new_one(edits in prop::collection::vec(edit(), 1..40)) {
        let env = Arc::new(Environment::default());
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mut mesh = Mesh::new(&store.snapshot(), &env);
        for edit in &edits {
            let snapshot = store.apply(updates(edit));
            mesh = mesh.next(&snapshot).0;
            let fresh = Mesh::new(&snapshot, &env);
            for (ns, pod) in [(0, 1), (1, 1), (2, 0), (2, 1)] {
                let proxy = Arc::new(Proxy::new(&info(ns, pod)).expect("well-formed"));
                let (a, b) = (mesh.place(&proxy), fresh.place(&proxy));
                prop_assert_eq!(views::render(&mesh, &a), views::render(&fresh, &b));
            }
        }
    }
}
