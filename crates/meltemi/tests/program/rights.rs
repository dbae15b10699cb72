//! The rights that the chart gives, against those that the program needs.

use std::collections::BTreeSet;

use config::kind::Kind;
use serde_json::{Value, json};

use crate::chart::{array, find, rendered};

/// Where, group, resource, name, verb. An empty name: any.
type Right = (&'static str, String, String, String, String);

fn right(place: &'static str, group: &str, resource: &str, name: &str, verb: &str) -> Right {
    (place, group.into(), resource.into(), name.into(), verb.into())
}

/// What the program does at an API server: what `sources` reads, and what `controllers` writes.
fn needed(read: &'static str, endpoints: Kind) -> BTreeSet<Right> {
    let mut needed = BTreeSet::new();
    for kind in Kind::ALL {
        let is_read = match kind {
            // Nothing is read of it but its name, which pods have too.
            Kind::ServiceAccount => false,
            Kind::Endpoints | Kind::EndpointSlice => kind == endpoints,
            _ => true,
        };
        let place = if kind.is_namespaced() { read } else { "cluster" };
        let verbs = ["list", "watch"].into_iter().filter(|_| is_read);
        needed.extend(verbs.map(|verb| right(place, kind.group(), &plural(kind), "", verb)));
        if kind.is_istio() {
            needed.insert(right(place, kind.group(), &format!("{}/status", plural(kind)), "", "patch"));
        }
    }
    for resource in ["gateways", "grpcroutes", "httproutes", "tcproutes", "tlsroutes"] {
        needed.insert(right(read, "gateway.networking.k8s.io", resource, "", "list"));
    }
    for (place, group, resource, name, verbs) in [
        (read, "", "configmaps", "istio-ca-root-cert", "create patch"),
        (read, "", "events", "", "create"),
        ("own", "", "secrets", "istio-ca-secret", "get update"),
        ("own", "", "secrets", "", "create"),
        ("own", "coordination.k8s.io", "leases", "meltemi-leader", "get update"),
        ("own", "coordination.k8s.io", "leases", "meltemi-status", "get update"),
        ("own", "coordination.k8s.io", "leases", "meltemi-replicas", "patch"),
        ("own", "coordination.k8s.io", "leases", "meltemi-acknowledgements", "patch"),
        ("own", "coordination.k8s.io", "leases", "meltemi-ca-rotation", "patch"),
        ("own", "coordination.k8s.io", "leases", "", "create"),
        ("cluster", "authentication.k8s.io", "tokenreviews", "", "create"),
        ("cluster", "authorization.k8s.io", "subjectaccessreviews", "", "create"),
        ("cluster", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "list"),
        (
            "cluster",
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            "istio-validator-istio-system",
            "update",
        ),
        (
            "cluster",
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            "istiod-default-validator",
            "update",
        ),
        ("cluster", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "list update"),
    ] {
        needed.extend(verbs.split(' ').map(|verb| right(place, group, resource, name, verb)));
    }
    needed
}

/// As in rules of RBAC.
fn plural(kind: Kind) -> String {
    let name = kind.name().to_ascii_lowercase();
    match kind {
        Kind::Endpoints => name,
        Kind::Gateway => "gateways".to_owned(),
        _ if name.ends_with('y') => format!("{}ies", &name[..name.len() - 1]),
        _ if name.ends_with('s') => format!("{name}es"),
        _ => format!("{name}s"),
    }
}

fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let mut granted = BTreeSet::new();
    for object in objects {
        let meta = &object["metadata"];
        let place = match (object["kind"].as_str(), meta["name"].as_str()) {
            (Some("ClusterRole"), _) => "cluster",
            (Some("Role"), Some("istiod")) => "own",
            (Some("Role"), _) => "watched",
            _ => continue,
        };
        for rule in array(&object["rules"]) {
            let texts = |key: &str| array(&rule[key]).iter().filter_map(|it| it.as_str().map(str::to_owned));
            let names: Vec<String> = texts("resourceNames").collect();
            let names = if names.is_empty() { vec![String::new()] } else { names };
            for (group, resource) in texts("apiGroups").flat_map(|it| texts("resources").map(move |r| (it.clone(), r)))
            {
                let rights = names.iter().flat_map(|name| texts("verbs").map(move |verb| (name, verb)));
                granted.extend(rights.map(|(name, verb)| right(place, &group, &resource, name, &verb)));
            }
        }
    }
    granted
}

#[test]
fn rights_are_those_that_the_program_needs_and_no_more() {
    let Some(objects) = rendered(&[], &[]) else { return };
    assert_rights(&objects, &needed("cluster", Kind::EndpointSlice));
    let Some(objects) = rendered(&[], &["--set-string", "env.PILOT_USE_ENDPOINT_SLICE=false"]) else { return };
    assert_rights(&objects, &needed("cluster", Kind::Endpoints));
}

#[test]
fn signing_requests_are_a_right_with_a_kubernetes_signer() {
    let set = "env.EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API,env.K8S_SIGNER=a.example/mesh,env.PILOT_CERT_PROVIDER=k8s.io/a.example/server";
    let Some(objects) = rendered(&[], &["--set", set]) else { return };
    let mut needed = needed("cluster", Kind::EndpointSlice);
    let group = "certificates.k8s.io";
    needed.extend(
        ["create", "get", "delete"].map(|verb| right("cluster", group, "certificatesigningrequests", "", verb)),
    );
    needed.insert(right("cluster", group, "certificatesigningrequests/approval", "", "update"));
    needed
        .extend(["a.example/mesh", "a.example/server"].map(|name| right("cluster", group, "signers", name, "approve")));
    assert_rights(&objects, &needed);
}

fn assert_rights(objects: &[Value], needed: &BTreeSet<Right>) {
    let granted = granted(objects);
    let missing: Vec<_> = needed.difference(&granted).collect();
    let useless: Vec<_> = granted.difference(needed).collect();
    assert!(missing.is_empty() && useless.is_empty(), "missing: {missing:#?}, useless: {useless:#?}");
}

#[test]
fn watched_namespaces_have_the_rights_and_the_cluster_has_not() {
    let Some(objects) = rendered(&[], &["--set", "watchedNamespaces={shop,bank}"]) else { return };
    assert_rights(&objects, &needed("watched", Kind::EndpointSlice));
    let of = |kind: &str| -> BTreeSet<String> {
        let own = objects.iter().filter(|it| it["kind"] == kind && it["metadata"]["name"] == "istiod-watch");
        own.map(|it| it["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let expected: BTreeSet<String> = ["bank", "istio-system", "shop"].map(str::to_owned).into();
    assert_eq!((of("Role"), of("RoleBinding")), (expected.clone(), expected));
    let env = &find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"]["containers"][0]["env"];
    assert!(array(env).contains(&json!({ "name": "WATCHED_NAMESPACES", "value": "shop,bank" })), "{env}");
}

#[test]
fn every_role_is_bound_to_the_account() {
    let Some(objects) = rendered(&[], &["--set", "revision=canary,watchedNamespaces={shop}"]) else { return };
    let account = json!([{ "kind": "ServiceAccount", "name": "istiod-canary", "namespace": "istio-system" }]);
    let place = |object: &Value, name: &Value| (object["metadata"]["namespace"].to_string(), name.to_string());
    let of = |kind: &str| {
        objects.iter().filter(|it| it["kind"].as_str().is_some_and(|it| it.ends_with(kind))).collect::<Vec<_>>()
    };
    let bound: BTreeSet<_> = of("RoleBinding").iter().map(|it| place(it, &it["roleRef"]["name"])).collect();
    let roles: BTreeSet<_> = of("Role").iter().map(|it| place(it, &it["metadata"]["name"])).collect();
    assert_eq!(bound, roles);
    assert!(of("RoleBinding").iter().all(|it| it["subjects"] == account));
}
