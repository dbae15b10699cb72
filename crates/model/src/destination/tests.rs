//! Lookup, merging, and the policy of a port or subset.

use std::sync::Arc;

use config::host::Host;
use config::kinds::destination_rule::TrafficPolicy;
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};

use crate::{Environment, MergedDestinationRule, Mesh, NodeInfo, Placement, Proxy};

const CART: &str = "cart.shop.svc.cluster.local";

fn rule(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{{spec}}}}}\n---\n"
    )
}

fn placed(rules: &[String], client: &str, app: &str) -> Placement {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}}\n---\n";
    let text = format!("{service}{}", rules.concat());
    let parsed = parse_documents("test", &text);
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
    let mesh = Mesh::new(&snapshot, &Arc::new(Environment::default()));
    let info = NodeInfo {
        id: format!("sidecar~10.0.0.1~a.{client}~{client}.svc.cluster.local"),
        metadata: serde_json::json!({"NAMESPACE": client, "LABELS": {"app": app}}),
        ..NodeInfo::default()
    };
    mesh.place(&Arc::new(Proxy::new(&info).expect("well-formed")))
}

fn names(placement: &Placement) -> Vec<String> {
    let found = placement.destination_rule(&Host::new(CART));
    found.map(|rule| rule.made_from.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

fn connections(policy: Option<&TrafficPolicy>) -> Option<i32> {
    Some(policy?.connection_pool.as_ref()?.tcp.as_ref()?.max_connections)
}

fn found(spec: &str) -> Arc<MergedDestinationRule> {
    let placement = placed(&[rule("shop", "r", &format!("host: cart, {spec}"))], "shop", "x");
    placement.destination_rule(&Host::new(CART)).expect("a rule for the host").clone()
}

#[test]
fn the_clients_namespace_goes_first_then_the_services_then_the_root() {
    let at = |namespace: &str| rule(namespace, "r", &format!("host: {CART}"));
    let all = [at("bank"), at("shop"), at("istio-system")];
    assert_eq!(names(&placed(&all, "bank", "x")), ["DestinationRule bank/r"]);
    assert_eq!(names(&placed(&all[1..], "bank", "x")), ["DestinationRule shop/r"]);
    assert_eq!(names(&placed(&all[2..], "bank", "x")), ["DestinationRule istio-system/r"]);
    assert_eq!(names(&placed(&all, "istio-system", "x")), ["DestinationRule shop/r"]);
}

#[test]
fn the_most_specific_host_wins_and_private_rules_stay_in_their_namespace() {
    let rules = [
        rule("shop", "all", "host: '*'"),
        rule("shop", "wide", "host: '*.shop.svc.cluster.local'"),
        rule("shop", "own", "host: cart, exportTo: ['.']"),
    ];
    assert_eq!(names(&placed(&rules, "shop", "x")), ["DestinationRule shop/own"]);
    assert_eq!(names(&placed(&rules, "bank", "x")), ["DestinationRule shop/wide"]);
}

#[test]
fn a_selector_chooses_clients_of_its_own_namespace_alone() {
    let selected = |namespace: &str| {
        rule(namespace, "few", &format!("host: {CART}, workloadSelector: {{matchLabels: {{app: front}}}}"))
    };
    let rules = [selected("shop"), rule("shop", "rest", "host: cart")];
    assert_eq!(names(&placed(&rules, "shop", "front")), ["DestinationRule shop/few"]);
    assert_eq!(names(&placed(&rules, "shop", "back"))[0], "DestinationRule shop/rest");
    assert_eq!(names(&placed(&[selected("shop")], "bank", "front")), Vec::<String>::new());
}

#[test]
fn rules_of_a_host_are_merged_and_the_first_setting_wins() {
    let rules = [
        rule("shop", "a", "host: cart, subsets: [{name: v1, labels: {version: v1}}]"),
        rule(
            "shop",
            "b",
            "host: cart, trafficPolicy: {connectionPool: {tcp: {maxConnections: 2}}}, subsets: [{name: v1}, {name: v2}]",
        ),
        rule("shop", "c", "host: cart, trafficPolicy: {connectionPool: {tcp: {maxConnections: 3}}}"),
    ];
    let placement = placed(&rules, "shop", "x");
    let merged = placement.destination_rule(&Host::new(CART)).expect("merged");
    assert_eq!(merged.made_from.len(), 3);
    assert_eq!(connections(merged.policy.as_deref()), Some(2));
    assert_eq!(merged.subsets.len(), 2);
    assert_eq!(merged.subset("v1").expect("kept").labels.get("version"), Some("v1"));
}

#[test]
fn port_settings_inherit_nothing_and_subsets_inherit_blocks() {
    let rule = found(
        "trafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}, tls: {mode: SIMPLE}, portLevelSettings: [{port: {number: 81}, tls: {mode: DISABLE}}]}, \
         subsets: [{name: v1, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}, {name: v2, trafficPolicy: {portLevelSettings: [{port: {number: 80}}]}}]",
    );
    assert_eq!(connections(rule.effective("", 80).as_ref()), Some(5));
    assert_eq!(connections(rule.effective("", 81).as_ref()), None);
    assert_eq!(connections(rule.effective("v1", 80).as_ref()), Some(5));
    assert_eq!(connections(rule.effective("v2", 80).as_ref()), None);
    assert!(rule.effective("v2", 80).expect("a policy").tls.is_none());
}
