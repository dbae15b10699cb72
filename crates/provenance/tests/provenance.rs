//! Explanations on small meshes: each rule of precedence, fields, defaults, and what has no effect.

use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Environment, Mesh, NodeInfo, Proxy};
use provenance::{
    Decision, ObjectExplanation, ObjectHolder, ResourceExplanation, Role, blame, explain_object, explain_proxy,
    explain_resource,
};
use serde_json::json;
use xds::TypeUrl;

const BASE: &str = "
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.0.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {}, status: {podIP: 10.1.0.1, phase: Running}}
";

fn mesh(yaml: &str) -> Mesh {
    let parsed = parse_documents("mesh.yaml", &format!("{BASE}---\n{yaml}"));
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
    Mesh::new(&snapshot, &Arc::new(Environment::default()))
}

fn web() -> Arc<Proxy> {
    let node = NodeInfo {
        id: "sidecar~10.1.0.1~web.shop~shop.svc.cluster.local".into(),
        metadata: json!({"NAMESPACE": "shop", "LABELS": {"app": "web"}}),
        ..NodeInfo::default()
    };
    Arc::new(Proxy::new(&node).expect("well-formed"))
}

/// An object of Istio's kinds; a later `created` is younger.
fn object(group: &str, kind: &str, name: &str, created: u8, spec: &str) -> String {
    let (namespace, name) = name.split_once('/').expect("NAMESPACE/NAME");
    format!(
        "{{apiVersion: {group}.istio.io/v1, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: \
         \"2026-01-{created:02}T00:00:00Z\"}}, spec: {spec}}}\n---\n"
    )
}

fn networking(kind: &str, name: &str, created: u8, spec: &str) -> String {
    object("networking", kind, name, created, spec)
}

fn decision(mesh: &Mesh, about: &str) -> Decision {
    let decisions = explain_proxy(mesh, &web(), &[]).decisions;
    let found = decisions.iter().find(|it| it.about == about);
    found.unwrap_or_else(|| panic!("no decision about {about}: {decisions:#?}")).clone()
}

/// The winner, and the loser with a word of the reason.
fn check(mesh: &Mesh, about: &str, winner: &str, loser: &str, reason: &str) {
    let decision = decision(mesh, about);
    assert_eq!(decision.winners.first().map(String::as_str).unwrap_or_default(), winner, "{decision:#?}");
    let lost = decision.others.iter().find(|it| it.object == loser).unwrap_or_else(|| panic!("{decision:#?}"));
    assert!(lost.why.contains(reason), "{decision:#?}");
}

fn resource(mesh: &Mesh, kind: TypeUrl, name: &str) -> ResourceExplanation {
    explain_resource(mesh, &web(), kind, name, &|_, _| None).expect("the proxy has it")
}

const ROUTE: &str = "{hosts: [cart], http: [{name: a, timeout: 3s, route: [{destination: {host: cart}}]}]}";
const CART: &str = "outbound|80||cart.shop.svc.cluster.local";

#[test]
fn a_sidecar_that_selects_the_workload_wins_over_wider_ones() {
    let hosts = "egress: [{hosts: [\"*/*\"]}]";
    let yaml = networking("Sidecar", "istio-system/default", 1, &format!("{{{hosts}}}"))
        + &networking("Sidecar", "shop/default", 2, &format!("{{{hosts}}}"))
        + &networking("Sidecar", "shop/web", 3, &format!("{{workloadSelector: {{labels: {{app: web}}}}, {hosts}}}"))
        + &networking("Sidecar", "shop/other", 1, &format!("{{workloadSelector: {{labels: {{app: x}}}}, {hosts}}}"));
    let about = "services that are imported";
    check(&mesh(&yaml), about, "Sidecar shop/web", "Sidecar shop/default", "selects the workload");
    check(&mesh(&yaml), about, "Sidecar shop/web", "Sidecar shop/other", "does not select");
    let yaml = networking("Sidecar", "istio-system/default", 1, &format!("{{{hosts}}}"))
        + &networking("Sidecar", "shop/default", 2, &format!("{{{hosts}}}"));
    check(&mesh(&yaml), about, "Sidecar shop/default", "Sidecar istio-system/default", "root namespace");
}

#[test]
fn the_narrowest_peer_authentication_with_a_mode_decides() {
    let policy = |name: &str, spec: &str| object("security", "PeerAuthentication", name, 1, spec);
    let yaml =
        policy("istio-system/default", "{mtls: {mode: STRICT}}") + &policy("shop/default", "{mtls: {mode: DISABLE}}");
    let about = "mutual TLS of this workload's ports";
    check(
        &mesh(&yaml),
        about,
        "PeerAuthentication shop/default",
        "PeerAuthentication istio-system/default",
        "narrower",
    );
    let yaml = policy("istio-system/default", "{mtls: {mode: STRICT}}") + &policy("shop/default", "{}");
    check(&mesh(&yaml), about, "PeerAuthentication istio-system/default", "PeerAuthentication shop/default", "no mode");
    assert!(decision(&mesh(""), about).why.contains("default"));
}

#[test]
fn the_older_virtual_service_of_a_host_wins() {
    let yaml = networking("VirtualService", "shop/b", 1, ROUTE) + &networking("VirtualService", "shop/a", 2, ROUTE);
    let about = "routes of host cart.shop.svc.cluster.local";
    check(&mesh(&yaml), about, "VirtualService shop/b", "VirtualService shop/a", "shop/b is older");
}

#[test]
fn a_destination_rule_of_the_clients_namespace_wins() {
    let base = BASE.replace("namespace: shop", "namespace: far");
    let rule = "{host: cart.far.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: {maxConnections: 3}}}}";
    let yaml = base.replace("kind: Pod", "kind: ServiceAccount")
        + "---\n"
        + &networking("DestinationRule", "shop/near", 2, rule)
        + &networking("DestinationRule", "far/own", 1, rule);
    let about = "traffic policy of host cart.far.svc.cluster.local";
    check(&mesh(&yaml), about, "DestinationRule shop/near", "DestinationRule far/own", "wins over");
}

#[test]
fn a_route_names_the_field_of_each_part_and_defaults() {
    let mesh = mesh(&networking("VirtualService", "shop/a", 1, ROUTE));
    let explained = resource(&mesh, TypeUrl::Route, "80");
    let cause = explained.causes.iter().find(|it| it.object == "VirtualService shop/a").unwrap();
    assert_eq!(cause.role, Role::Shapes);
    assert!(cause.at.as_deref().is_some_and(|at| at.starts_with("mesh.yaml:")), "{cause:?}");
    assert!(cause.fields.iter().any(|it| it.field == "spec.http[0].timeout"), "{cause:#?}");
    let route = explained.parts.iter().find(|it| it.part.ends_with("routes[a]")).unwrap();
    assert!(route.from.iter().any(|from| from == "VirtualService shop/a spec.http[0].timeout"), "{route:?}");
    assert!(explained.parts.iter().any(|it| it.from == ["default"]), "{:#?}", explained.parts);
    assert!(!explained.incomplete);
}

#[test]
fn a_cluster_names_rule_fields_mesh_config_and_its_service() {
    let config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio, namespace: istio-system}, data: {mesh: \"connectTimeout: 7s\"}}\n---\n";
    let rule = "{host: cart, trafficPolicy: {connectionPool: {tcp: {maxConnections: 3}}}}";
    let mesh = mesh(&(config.to_owned() + &networking("DestinationRule", "shop/a", 1, rule)));
    let explained = resource(&mesh, TypeUrl::Cluster, CART);
    let from = |part: &str| &explained.parts.iter().find(|it| it.part == part).unwrap_or_else(|| panic!("{part}")).from;
    assert_eq!(from("connectTimeout"), &["mesh config connectTimeout"]);
    assert_eq!(
        from("circuitBreakers"),
        &[
            "DestinationRule shop/a spec.host",
            "DestinationRule shop/a spec.trafficPolicy.connectionPool.tcp.maxConnections"
        ]
    );
    let makes: Vec<_> = explained.causes.iter().filter(|it| it.role == Role::Makes).map(|it| &*it.object).collect();
    assert_eq!(makes, ["Service shop/cart"]);
}

fn explained(mesh: &Mesh, kind: Kind, name: &str, held: &[(TypeUrl, &str)]) -> ObjectExplanation {
    let id = ObjectId { kind, namespace: "shop".into(), name: name.into() };
    let resources = held.iter().map(|(kind, name)| (*kind, Arc::from(*name))).collect();
    explain_object(mesh, &id, &[], &[ObjectHolder { proxy: web(), resources }], &[web()])
}

#[test]
fn a_route_after_one_that_matches_everything_has_no_effect_in_the_resource_that_was_examined() {
    let two = "{hosts: [cart], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: cart}}]}, {route: [{destination: {host: cart}}]}, \
               {timeout: 9s, route: [{destination: {host: cart}}]}]}";
    let mesh = mesh(&networking("VirtualService", "shop/a", 1, two));
    let explained = explained(&mesh, Kind::VirtualService, "a", &[(TypeUrl::Route, "80")]);
    assert_eq!((explained.examined, explained.proxies.len(), explained.in_use), (1, 1, true));
    assert!(explained.without_effect.contains(&"spec.http[2]".to_owned()), "{explained:#?}");
    assert!(!explained.without_effect.contains(&"spec.http[0]".to_owned()), "{explained:#?}");
}

#[test]
fn an_object_that_loses_says_against_which() {
    let yaml = networking("VirtualService", "shop/b", 1, ROUTE) + &networking("VirtualService", "shop/a", 2, ROUTE);
    let explained = explained(&mesh(&yaml), Kind::VirtualService, "a", &[]);
    assert!(explained.decisions[0].others[0].why.contains("shop/b is older"), "{explained:#?}");
}

#[test]
fn a_rejection_leads_to_the_patch_that_holds_its_word() {
    let filter = "{configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {name: \"outbound|80||cart.shop.svc.cluster.local\"}}, \
                  patch: {operation: MERGE, value: {metadata: {filter_metadata: {bogus.word: {a: b}}}}}}]}";
    let mesh =
        mesh(&object("networking", "EnvoyFilter", "shop/bad", 1, filter).replace("istio.io/v1,", "istio.io/v1alpha3,"));
    let reason = format!("Error adding/updating cluster(s) {CART}: unknown thing 'bogus.word'");
    let blamed = blame(&mesh, &web(), TypeUrl::Cluster, CART, &reason).unwrap();
    assert_eq!(blamed.parts, ["metadata"]);
    assert_eq!(blamed.objects[0].object, "EnvoyFilter shop/bad");
    assert!(blamed.objects[0].fields.iter().any(|it| it.starts_with("spec.configPatches[0]")), "{blamed:#?}");
}
