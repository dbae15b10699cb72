//! Resource names, authorization of readers, and lookup of credentials.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use proptest::prelude::*;

use super::*;
use crate::{Environment, NodeInfo, Proxy};

/// The Gateway of `edge` names a Secret of its own namespace and one of another.
const OBJECTS: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: site, namespace: edge}, type: kubernetes.io/tls, stringData: {tls.crt: edge chain, tls.key: edge key, ca.crt: edge roots, ca.crl: edge revoked, tls.ocsp-staple: edge staple}}
---
{apiVersion: v1, kind: Secret, metadata: {name: old, namespace: edge}, stringData: {cert: old chain, key: old key, tls.crt: not this, tls.key: not this}}
---
{apiVersion: v1, kind: Secret, metadata: {name: old-cacert, namespace: edge}, stringData: {cacert: old roots, key: never this}}
---
{apiVersion: v1, kind: Secret, metadata: {name: hollow, namespace: edge}, stringData: {tls.crt: chain, tls.key: ''}}
---
{apiVersion: v1, kind: Secret, metadata: {name: site, namespace: shop}, stringData: {cert: shop chain, key: shop key, cacert: shop roots}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: roots, namespace: shop}, data: {ca.crt: public roots, key: never this}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: web, namespace: edge}, spec: {servers: [
  {port: {number: 443, name: a, protocol: HTTPS}, hosts: [a], tls: {mode: OPTIONAL_MUTUAL, credentialName: 'kubernetes-gateway://edge/site'}},
  {port: {number: 443, name: b, protocol: HTTPS}, hosts: [b], tls: {mode: SIMPLE, credentialNames: ['kubernetes-gateway://shop/site', 'kubernetes-gateway://edge/old']}}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: web, namespace: shop}, spec: {servers: [
  {port: {number: 443, name: c, protocol: HTTPS}, hosts: [c], tls: {mode: SIMPLE, credentialName: 'kubernetes-gateway://edge/hollow'}}]}}
";

struct GatewayMesh {
    mesh: Mesh,
    gateway: Arc<MergedGateway>,
}

impl GatewayMesh {
    fn new() -> Self {
        let parsed = parse_documents("test", OBJECTS);
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let mesh = Mesh::new(&snapshot, &Arc::new(Environment::default()));
        let info = NodeInfo { id: "router~10.0.0.1~in.edge~edge.svc.cluster.local".into(), ..NodeInfo::default() };
        let placement = mesh.place(&Arc::new(Proxy::new(&info).expect("well-formed")));
        Self { gateway: placement.gateway_facts.as_ref().expect("a router").gateway.clone(), mesh }
    }

    /// What the reader receives: `denied`, `missing`, `none`, or the secret itself.
    fn given(&self, name: &str, reader: &CredentialReader, lists: bool) -> String {
        let Ok(name) = name.parse::<CredentialName>() else { return "none".into() };
        if name.authorize(reader, &self.gateway, |_| lists).is_err() {
            return "denied".into();
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.mesh.credential(&name, reader).map(|found| found.credential) {
            Err(_) => "missing".into(),
            Ok(Credential::Pair { chain, key, staple }) => {
                format!(
                    "{}+{}{}",
                    text(chain),
                    text(key),
                    staple.map(|more| format!("+{}", text(more))).unwrap_or_default()
                )
            }
            Ok(Credential::Authorities { roots, revoked }) => {
                format!("{}{}", text(roots), revoked.map(|more| format!("-{}", text(more))).unwrap_or_default())
            }
        }
    }
}

fn reader(namespace: &str) -> CredentialReader {
    CredentialReader { namespace: namespace.into(), service_account: "in".into() }
}

#[test]
fn resource_names_round_trip_and_invalid_ones_are_rejected() {
    for name in ["kubernetes://a", "kubernetes://b/a", "kubernetes-gateway://b/a.c", "configmap://b/a-cacert"] {
        assert_eq!(name.parse::<CredentialName>().expect(name).to_string(), name);
    }
    let long = format!("kubernetes://{}", "a".repeat(254));
    for name in [
        "",
        "a",
        "default",
        "ROOTCA",
        "invalid://",
        "invalid://a",
        "kubernetes://",
        "kubernetes:///a",
        "kubernetes://b/",
        "kubernetes://../a",
        "kubernetes://b/../a",
        "kubernetes://b/a/c",
        "kubernetes-gateway://a",
        "configmap://a",
        "kubernetes://A",
        "kubernetes://a b",
        "kubernetes://a\0",
        "kubernetes://a\u{e9}",
        "file-cert:/a~/b",
        &long,
    ] {
        assert!(name.parse::<CredentialName>().is_err(), "{name}");
    }
}

#[test]
fn a_secret_is_readable_in_its_own_namespace() {
    let gateway_mesh = GatewayMesh::new();
    let check = |name: &str, namespace: &str, want: &str| {
        assert_eq!(gateway_mesh.given(name, &reader(namespace), true), want, "{name} for {namespace}");
    };
    check("kubernetes://site", "edge", "edge chain+edge key+edge staple");
    check("kubernetes://edge/site", "edge", "edge chain+edge key+edge staple");
    check("kubernetes://site", "shop", "shop chain+shop key");
    check("kubernetes://edge/site", "shop", "denied");
    check("kubernetes://old", "edge", "old chain+old key");
    check("kubernetes://absent", "edge", "missing");
    check("kubernetes://hollow", "edge", "missing");
}

#[test]
fn ca_certificates_are_public_in_their_namespace_and_never_include_a_key() {
    let gateway_mesh = GatewayMesh::new();
    let check = |name: &str, namespace: &str, want: &str| {
        assert_eq!(gateway_mesh.given(name, &reader(namespace), false), want, "{name} for {namespace}");
    };
    check("kubernetes://site", "edge", "denied");
    check("kubernetes://site-cacert", "edge", "edge roots-edge revoked");
    check("kubernetes://old-cacert", "edge", "old roots");
    check("kubernetes://edge/site-cacert", "shop", "denied");
    check("configmap://shop/roots", "edge", "public roots");
    check("configmap://shop/roots-cacert", "edge", "public roots");
}

#[test]
fn a_gateway_secret_is_readable_if_gateway_secret_and_proxy_share_a_namespace() {
    let gateway_mesh = GatewayMesh::new();
    let check = |name: &str, namespace: &str, want: &str| {
        assert_eq!(gateway_mesh.given(name, &reader(namespace), false), want, "{name} for {namespace}");
    };
    check("kubernetes-gateway://edge/site", "edge", "edge chain+edge key+edge staple");
    check("kubernetes-gateway://edge/site-cacert", "edge", "edge roots-edge revoked");
    check("kubernetes-gateway://edge/old", "edge", "old chain+old key");
    check("kubernetes-gateway://edge/old-cacert", "edge", "denied");
    check("kubernetes-gateway://shop/site", "edge", "denied");
    check("kubernetes-gateway://edge/hollow", "edge", "denied");
    check("kubernetes-gateway://edge/site", "shop", "denied");
}

#[test]
fn nothing_prints_a_key() {
    let gateway_mesh = GatewayMesh::new();
    let found = gateway_mesh.mesh.credential(&"kubernetes://site".parse().expect("a name"), &reader("edge"));
    assert!(format!("{found:?}").ends_with("credential: Pair(..) })"), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Lookups by other readers never change the answer for a reader: 100 times 100 requests.
    #[test]
    fn lookups_of_other_readers_do_not_change_the_answer(
        requests in prop::collection::vec((0..9usize, 0..3usize, any::<bool>()), 100),
    ) {
        const NAMES: [&str; 9] = [
            "kubernetes://site", "kubernetes://edge/site", "kubernetes://shop/site", "kubernetes://site-cacert",
            "kubernetes-gateway://edge/site", "kubernetes-gateway://shop/site", "kubernetes-gateway://edge/hollow",
            "configmap://shop/roots", "kubernetes://edge/../site",
        ];
        static SHARED: LazyLock<GatewayMesh> = LazyLock::new(GatewayMesh::new);
        static ALONE: Mutex<BTreeMap<(usize, usize, bool), String>> = Mutex::new(BTreeMap::new());
        for (name, namespace, lists) in requests {
            let reader = reader(["edge", "shop", "bank"][namespace]);
            let given = SHARED.given(NAMES[name], &reader, lists);
            for (other, secret) in [("edge", "edge key"), ("shop", "shop key")] {
                prop_assert!(*reader.namespace == *other || !given.contains(secret), "{given} for {}", reader.namespace);
            }
            let mut alone = ALONE.lock().expect("nobody panics with it");
            let fresh = alone.entry((name, namespace, lists)).or_insert_with(|| GatewayMesh::new().given(NAMES[name], &reader, lists));
            prop_assert_eq!(&given, fresh);
        }
    }
}
