//! Which patches apply to which proxy, in which order, and what an edit keeps.

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use serde_json::json;

use super::*;
use crate::environment::Environment;
use crate::input::Input;
use crate::mesh::Mesh;
use crate::proxy::NodeInfo;

fn filter(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{{spec}}}}}\n---\n"
    )
}

const ADD: &str = "{applyTo: CLUSTER, patch: {operation: ADD, value: {name: x}}}";

fn store(text: &str) -> Store {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    put(&mut store, text);
    store
}

fn put(store: &mut Store, text: &str) {
    let parsed = parse_documents("test.yaml", text);
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    store.apply(parsed.objects.into_iter().map(Update::Put).collect());
}

fn mesh(store: &Store) -> Mesh {
    Mesh::new(&store.snapshot(), &Arc::new(Environment::default()))
}

fn proxy(kind: &str, metadata: serde_json::Value) -> Arc<Proxy> {
    let id = format!("{kind}~10.0.0.1~cart-1.shop~shop.svc.cluster.local");
    Arc::new(Proxy::new(&NodeInfo { id, metadata, ..NodeInfo::default() }).expect("well-formed"))
}

fn cart() -> Arc<Proxy> {
    proxy("sidecar", json!({"LABELS": {"app": "cart"}, "ISTIO_VERSION": "1.30.1", "CLUSTER_ID": "one"}))
}

fn names(set: &PatchSet) -> Vec<String> {
    set.iter().map(|patch| patch.id.to_string().replace("EnvoyFilter ", "")).collect()
}

#[test]
fn priority_then_the_root_then_name_with_namespace() {
    let one = |priority: i32| format!("priority: {priority}, configPatches: [{ADD}]");
    let text = [
        filter("shop", "b", &one(0)),
        filter("shop", "a", &one(0)),
        filter("shop", "a-b", &one(0)),
        filter("istio-system", "z", &one(0)),
        filter("shop", "first", &one(-1)),
        filter("istio-system", "last", &one(1)),
        filter("bank", "other", &one(0)),
    ];
    let patches = mesh(&store(&text.concat())).place(&cart()).patches.clone();
    let order = ["shop/first", "istio-system/z", "shop/a-b", "shop/a", "shop/b", "istio-system/last"];
    assert_eq!(names(&patches.outbound), order.map(|name| format!("{name} configPatches[0]")));
}

#[test]
fn contexts_select_the_direction() {
    let patch = |context: &str, what: &str| format!("{{{what}, match: {{context: {context}}}}}");
    let add = "applyTo: CLUSTER, patch: {operation: INSERT_FIRST, value: {name: x}}";
    let merge = "applyTo: CLUSTER, patch: {operation: MERGE, value: {name: x}}";
    let all = ["ANY", "SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY"];
    let patches = all.iter().flat_map(|context| [patch(context, add), patch(context, merge)]).collect::<Vec<_>>();
    let mesh = mesh(&store(&filter("shop", "a", &format!("configPatches: [{}]", patches.join(", ")))));
    let indices = |set: &PatchSet| set.iter().map(|patch| patch.id.index).collect::<Vec<_>>();
    let sidecar = mesh.place(&cart()).patches.clone();
    assert_eq!((indices(&sidecar.outbound), indices(&sidecar.inbound)), (vec![0, 1, 2, 4, 5], vec![1, 3]));
    let router = mesh.place(&proxy("router", json!({}))).patches.clone();
    assert_eq!((indices(&router.outbound), indices(&router.inbound)), (vec![0, 1, 6, 7], vec![]));
    assert!(
        sidecar.outbound.iter().filter(|patch| patch.id.index % 2 == 0).all(|patch| patch.operation == Operation::Add)
    );
}

#[test]
fn selectors_versions_and_metadata_choose_proxies() {
    let holds = |spec: &str, proxy: &Arc<Proxy>| {
        !mesh(&store(&filter("shop", "a", spec))).place(proxy).patches.outbound.is_empty()
    };
    let matched = |wanted: &str| {
        format!("configPatches: [{{applyTo: CLUSTER, match: {{proxy: {wanted}}}, patch: {{operation: REMOVE}}}}]")
    };
    for (spec, want) in [
        (format!("workloadSelector: {{labels: {{app: cart}}}}, configPatches: [{ADD}]"), true),
        (format!("workloadSelector: {{labels: {{app: web}}}}, configPatches: [{ADD}]"), false),
        (format!("workloadSelector: {{}}, configPatches: [{ADD}]"), true),
        (
            format!(
                "targetRefs: [{{kind: Gateway, name: a, group: gateway.networking.k8s.io}}], configPatches: [{ADD}]"
            ),
            false,
        ),
        (matched(r"{proxyVersion: '^1\.30.*'}"), true),
        (matched(r"{proxyVersion: '^1\.2'}"), false),
        (matched("{metadata: {CLUSTER_ID: one}}"), true),
        (matched("{metadata: {CLUSTER_ID: one, NETWORK: none}}"), false),
    ] {
        assert_eq!(holds(&spec, &cart()), want, "{spec}");
    }
    assert!(!holds(&matched(r"{proxyVersion: '.*'}"), &proxy("sidecar", json!({}))), "an unknown version");
}

#[test]
fn an_edit_keeps_the_patches_of_other_objects() {
    let text = [
        filter("shop", "a", &format!("configPatches: [{ADD}]")),
        filter("shop", "b", &format!("configPatches: [{ADD}]")),
    ];
    let mut store = store(&text.concat());
    let first = mesh(&store);
    put(&mut store, &filter("shop", "b", &format!("priority: 1, configPatches: [{ADD}]")));
    let (second, delta) = first.next(&store.snapshot());
    let (old, new) = (first.place(&cart()).patches.outbound.clone(), second.place(&cart()).patches.outbound.clone());
    let same = |index: usize| Arc::ptr_eq(&old.of(ApplyTo::Cluster)[index], &new.of(ApplyTo::Cluster)[index]);
    assert!(same(0) && !same(1) && old != new);
    assert_eq!(delta.inputs().collect::<Vec<_>>(), [&Input::EnvoyFilters("shop".into())]);
}
