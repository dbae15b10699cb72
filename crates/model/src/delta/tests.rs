//! Which edits change nothing, and how far the others propagate.

use std::sync::Arc;

use config::host::Host;
use config::object::parse_documents;
use config::store::{Name, Store, StoreOptions, Update};

use super::Delta;
use crate::{Environment, Input, Mesh, NodeInfo, Placement, Proxy};

const BASE: &str = "
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.96.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: rates, namespace: bank}, spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: only, namespace: bank}, spec: {egress: [{hosts: ['./*']}]}}
";

const KINDS: [(&str, &str); 6] = [
    (
        "networking.istio.io/v1, kind: VirtualService",
        "hosts: [cart], http: [{timeout: 1s, route: [{destination: {host: cart}}]}]",
    ),
    (
        "networking.istio.io/v1, kind: DestinationRule",
        "host: cart, trafficPolicy: {connectionPool: {tcp: {maxConnections: 3}}}",
    ),
    (
        "networking.istio.io/v1, kind: ServiceEntry",
        "hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS",
    ),
    ("networking.istio.io/v1, kind: WorkloadEntry", "address: 10.1.1.1, labels: {app: cart}"),
    ("networking.istio.io/v1, kind: Sidecar", "egress: [{hosts: ['*/*']}]"),
    ("security.istio.io/v1, kind: PeerAuthentication", "mtls: {mode: STRICT}"),
];

struct EditedMesh {
    store: Store,
    mesh: Mesh,
}

impl EditedMesh {
    fn new() -> EditedMesh {
        let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mesh = Mesh::new(&store.snapshot(), &Arc::new(Environment::default()));
        let mut edited = EditedMesh { store, mesh };
        edited.set(BASE);
        edited
    }

    fn set(&mut self, text: &str) -> Delta {
        let parsed = parse_documents("test", text);
        assert!(parsed.rejected.is_empty(), "{text}\n{:?}", parsed.diagnostics);
        let snapshot = self.store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let (mesh, delta) = self.mesh.next(&snapshot);
        self.mesh = mesh;
        delta
    }

    fn place(&self, namespace: &str) -> Placement {
        let id = format!("sidecar~10.0.0.1~a.{namespace}~{namespace}.svc.cluster.local");
        let proxy = Proxy::new(&NodeInfo { id, ..NodeInfo::default() }).expect("well-formed");
        self.mesh.place(&Arc::new(proxy))
    }
}

fn object(kind: &str, spec: &str, diagnostic: &str) -> String {
    format!(
        "{{apiVersion: {kind}, metadata: {{name: x, namespace: shop, annotations: {{note: {diagnostic}}}}}, spec: {{{spec}}}}}"
    )
}

#[test]
fn a_changed_annotation_gives_an_empty_delta() {
    for (kind, spec) in KINDS {
        let mut edited = EditedMesh::new();
        assert!(!edited.set(&object(kind, spec, "a")).is_empty(), "{kind} is new");
        assert!(edited.set(&object(kind, spec, "b")).is_empty(), "{kind} says the same");
    }
}

#[test]
fn none_of_these_kinds_touches_everything() {
    for (kind, spec) in KINDS {
        let mut edited = EditedMesh::new();
        let bank = edited.place("bank");
        let delta = edited.set(&object(kind, spec, "a"));
        assert!(!delta.touches(&Input::Everything) && !delta.touches(&Input::ClassKeys), "{kind}");
        assert!(edited.mesh.scope_is_current(&bank), "{kind} of another namespace that is not imported");
        assert!(delta.inputs().count() > 0, "{kind} of its own");
    }
}

#[test]
fn a_changed_timeout_keeps_the_imports_of_a_scope() {
    let mut edited = EditedMesh::new();
    let (kind, spec) = KINDS[0];
    edited.set(&object(kind, spec, "a"));
    let before = edited.place("shop").scope;
    let delta = edited.set(&object(kind, &spec.replace("1s", "2s"), "a"));
    let after = edited.place("shop").scope;
    assert_eq!(delta.inputs().collect::<Vec<_>>(), [&Input::VirtualService(Name::new("shop", "x"))]);
    assert!(!Arc::ptr_eq(&before, &after));
    assert!(before.services.iter().zip(&after.services).all(|(one, two)| Arc::ptr_eq(one, two)));
    let timeout = |scope: &crate::Scope| scope.egress[0].virtual_services.iter().next().expect("one").http[0].timeout;
    assert_ne!(timeout(&before), timeout(&after));
}

#[test]
fn a_destination_rule_changes_only_its_host() {
    let mut edited = EditedMesh::new();
    let (kind, spec) = KINDS[1];
    edited.set(&object(kind, spec, "a"));
    let before = edited.place("shop").scope;
    let delta = edited.set(&object(kind, &spec.replace('3', "4"), "a"));
    let (after, host) = (edited.place("shop").scope, Host::new("cart.shop.svc.cluster.local"));
    assert_eq!(delta.inputs().collect::<Vec<_>>(), [&Input::DestinationRule(host.clone())]);
    assert_ne!(before.destination_rules(&host), after.destination_rules(&host));
}
