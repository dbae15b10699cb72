//! A plan names exactly the resources that change when it is carried out, proxy by proxy, and puts nothing in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use config::kind::Kind;
use config::store::{Store, StoreOptions, Update};
use model::Environment;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use prost::Message;
use views::{Plan, Views};
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind as Json};
use xds::{Class, Membership, Provider, TypeUrl};

#[allow(dead_code, reason = "shared with the tests of refreshes, which use all of it")]
mod editing;
#[allow(dead_code, reason = "shared with the tests of refreshes, which use all of it")]
mod extending;

use editing::{Edit, NAMESPACES, edit, updates};

const KINDS: [TypeUrl; 6] =
    [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::Extension, TypeUrl::NameTable];

type Resources = BTreeMap<(TypeUrl, Arc<str>), Arc<str>>;
/// Type and name, with the version that it gets. `None`: it is removed.
type Changes = BTreeSet<(TypeUrl, Arc<str>, Option<Arc<str>>)>;

fn node(ns: usize, pod: usize) -> Node {
    let namespace = NAMESPACES[ns];
    let kind = if ns == 2 && pod != 1 { "router" } else { "sidecar" };
    let text = |text: &str| Value { kind: Some(Json::StringValue(text.to_owned())) };
    let fields = [("NAMESPACE".to_owned(), text(namespace)), ("DNS_CAPTURE".to_owned(), text("true"))].into();
    Node {
        id: format!("{kind}~10.10.{ns}.{pod}~p{pod}.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(Struct { fields }.encode_to_vec().into()),
        ..Node::default()
    }
}

fn resources(class: &dyn Class) -> Resources {
    let of_kind = |kind| {
        let all = class.since(kind, 0);
        all.changed.iter().map(|it| ((kind, it.name.clone()), it.version.clone())).collect::<Vec<_>>()
    };
    KINDS.into_iter().flat_map(of_kind).collect()
}

fn difference(before: &Resources, after: &Resources) -> Changes {
    let changed = after.iter().filter(|(name, version)| before.get(*name) != Some(*version));
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let changed = changed.map(|((kind, name), version)| (*kind, name.clone(), Some(version.clone())));
    changed.chain(gone.map(|(kind, name)| (*kind, name.clone(), None))).collect()
}

fn planned(plan: &Plan) -> BTreeMap<String, Changes> {
    let mut of_proxies = BTreeMap::new();
    for group in &plan.groups {
        let changes: Changes = group
            .changes()
            .map(|it| (it.kind, it.name.clone(), it.after.as_ref().map(|after| after.version.clone())))
            .collect();
        for proxy in &group.proxies {
            assert!(of_proxies.insert(proxy.id.to_string(), changes.clone()).is_none(), "a proxy is in one group");
        }
    }
    of_proxies
}

/// Plans each edit, then makes it.
fn holds(edits: &[Edit]) {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let views = Views::new(Environment::default());
    views.refresh(&store.snapshot(), Instant::now());
    let joined: Vec<(String, Membership)> = (0..9)
        .map(|at| node(at / 3, at % 3))
        .map(|node| (node.id.split('~').nth(2).unwrap_or_default().to_owned(), views.join(&node).expect("well-formed")))
        .collect();
    for edit in edits {
        let before: Vec<Resources> = joined.iter().map(|(_, it)| resources(&*it.class)).collect();
        let snapshot = store.apply(updates(edit));
        let plan = views.plan(|_| snapshot.clone()).expect("objects are loaded");
        let unmoved: Vec<Resources> = joined.iter().map(|(_, it)| resources(&*it.class)).collect();
        assert_eq!(before, unmoved, "a plan changes nothing");
        assert_eq!(plan.proxies.len(), joined.len());
        let mut planned = planned(&plan);
        views.refresh(&snapshot, Instant::now());
        for ((id, member), before) in joined.iter().zip(before) {
            let wanted = difference(&before, &resources(&*member.class));
            assert_eq!(planned.remove(id).unwrap_or_default(), wanted, "{id} after {edit:?}");
        }
        assert!(planned.is_empty(), "{:?}", planned.keys());
    }
}

/// Secrets are not planned.
#[test]
fn edits_are_of_every_kind() {
    let (mut runner, strategy) = (TestRunner::deterministic(), edit());
    let mut kinds = BTreeSet::new();
    for _ in 0..5000 {
        let edit = strategy.new_tree(&mut runner).expect("an edit").current();
        kinds.extend(updates(&edit).iter().filter_map(|update| match update {
            Update::Put(object) => Some(object.id().kind.name()),
            _ => None,
        }));
    }
    let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !kinds.contains(kind.name())).collect();
    assert_eq!(missing, [Kind::Secret]);
}

proptest! {
    // PROPTEST_CASES sets the number of cases; a failure prints the shrunk edits.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    #[test]
    fn a_plan_names_exactly_the_resources_that_then_change(edits in prop::collection::vec(edit(), 1..30)) {
        holds(&edits);
    }
}
