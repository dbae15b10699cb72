//! No accidental plaintext: in any mesh, a cluster whose policy requires TLS has a TLS transport socket, whatever the proxy's metadata
//! says. Cases in which istiod itself leaves the socket out are listed here and in `docs/differences.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kinds::client_tls::{ClientTlsMode, ClientTlsSettings};
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Environment, Mesh, MtlsMode, NodeInfo, Placement, Proxy, Service, TlsMode};
use proptest::prelude::*;
use serde_json::{Value, json};
use translate::ClusterName;
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::core::v3::{TransportSocket, transport_socket::ConfigType};
use wire::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use wire::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use xds::TypeUrl;

use crate::editing::{Edit, NAMESPACES, edit, updates};

const FILES: [&str; 6] = [
    "TLS_CLIENT_CERT_CHAIN",
    "TLS_CLIENT_KEY",
    "TLS_CLIENT_ROOT_CERT",
    "TLS_SERVER_CERT_CHAIN",
    "TLS_SERVER_KEY",
    "TLS_SERVER_ROOT_CERT",
];

const HOSTS: [&str; 6] =
    ["s0", "s1.bank.svc.cluster.local", "*.shop.svc.cluster.local", "e.example.com", "*.example.com", "*"];

/// Each as JSON.
const TLS: [&str; 9] = [
    r#"{"mode": "DISABLE"}"#,
    r#"{"mode": "SIMPLE"}"#,
    r#"{"mode": "SIMPLE", "insecureSkipVerify": true, "sni": "x.example"}"#,
    r#"{"mode": "SIMPLE", "credentialName": "c"}"#,
    r#"{"mode": "SIMPLE", "credentialName": "configmap://c"}"#,
    r#"{"mode": "MUTUAL", "clientCertificate": "/c.pem", "privateKey": "/k.pem", "caCertificates": "/r.pem"}"#,
    r#"{"mode": "MUTUAL", "credentialName": "c"}"#,
    r#"{"mode": "ISTIO_MUTUAL"}"#,
    r#"{"mode": "ISTIO_MUTUAL", "sni": "x.example", "subjectAltNames": ["spiffe://x/ns/y/sa/z"]}"#,
];

/// TLS settings of a service or a subset, and of one of its ports.
type Levels = (Option<&'static str>, Option<&'static str>);

fn levels() -> impl Strategy<Value = Levels> {
    let tls = || prop::option::of(prop::sample::select(&TLS[..]));
    (tls(), tls())
}

fn policy((tls, port): Levels) -> Value {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let mut policy = json!({});
    if let Some(tls) = tls {
        policy["tls"] = parsed(tls);
    }
    if let Some(tls) = port {
        policy["portLevelSettings"] = json!([{ "port": { "number": 80 }, "tls": parsed(tls) }]);
    }
    policy
}

/// A DestinationRule with TLS on some of its levels.
fn rule() -> impl Strategy<Value = Value> {
    let place = (prop::sample::select(&NAMESPACES[..]), 0..4u8, prop::sample::select(&HOSTS[..]));
    (place, levels(), levels(), any::<bool>(), 0..3u8).prop_map(|((ns, name, host), top, own, selected, more)| {
        let mut top = policy(top);
        match more {
            0 => top["proxyProtocol"] = json!({ "version": "V2" }),
            1 => top["loadBalancer"] = json!({ "simple": "PASSTHROUGH" }),
            _ => {}
        }
        let subset = json!({ "name": "v", "labels": { "app": "a0" }, "trafficPolicy": policy(own) });
        let mut spec = json!({ "host": host, "trafficPolicy": top, "subsets": [subset] });
        if selected {
            spec["workloadSelector"] = json!({ "matchLabels": { "app": "a1" } });
        }
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
            "metadata": { "name": format!("tls{name}"), "namespace": ns }, "spec": spec,
        })
    })
}

/// Clusters that users add by patches and plugins are excluded.
fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let made_by_us = |edit: &Edit| !matches!(edit, Edit::Filter(_) | Edit::Plugin(_));
    prop::collection::vec(edit().prop_filter("a patch", made_by_us), 1..60)
}

fn mesh(edits: &[Edit], rules: &[Value]) -> Mesh {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    for edit in edits {
        store.apply(updates(edit));
    }
    for rule in rules {
        let parsed = parse_documents("rule", &rule.to_string());
        assert!(parsed.rejected.is_empty(), "{rule}\n{:?}", parsed.diagnostics);
        store.apply(parsed.objects.into_iter().map(Update::Put).collect());
    }
    Mesh::new(&store.snapshot(), &Arc::new(Environment::default()))
}

/// `files`: a bit for each of FILES that its metadata names.
fn proxy(kind: &str, ns: &str, pod: usize, files: u8) -> Arc<Proxy> {
    let at = NAMESPACES.iter().position(|it| *it == ns).expect("one of them");
    let mut metadata = json!({ "NAMESPACE": ns, "LABELS": { "app": format!("a{pod}") } });
    for (bit, key) in FILES.iter().enumerate().filter(|(bit, _)| files >> bit & 1 == 1) {
        metadata[key] = json!(format!("/etc/{bit}.pem"));
    }
    let id = format!("{kind}~10.10.{at}.{pod}~p{pod}.{ns}~{ns}.svc.cluster.local");
    Arc::new(Proxy::new(&NodeInfo { id, metadata, ..NodeInfo::default() }).expect("well-formed"))
}

/// The TLS that a cluster must have.
#[derive(Debug, PartialEq)]
enum Required {
    Nothing,
    /// Configured by the user: never plaintext.
    Tls,
    /// The same with the mesh's certificate.
    IstioMutual,
    /// For endpoints that accept mutual TLS.
    Automatic,
}

/// A cluster to check.
struct CheckedCluster<'a> {
    mesh: &'a Mesh,
    placement: &'a Placement,
    service: &'a Service,
    port: u16,
    tls: Option<ClientTlsSettings>,
    selected: bool,
}

impl CheckedCluster<'_> {
    fn new<'a>(
        mesh: &'a Mesh,
        placement: &'a Placement,
        name: &str,
        from: &BTreeSet<ObjectId>,
    ) -> Option<CheckedCluster<'a>> {
        let Ok(ClusterName::Outbound { port, subset, host }) = name.parse() else { return None };
        let services = placement.scope.services.iter();
        let service = services.into_iter().find(|it| it.host == host && from.contains(&it.made_from))?;
        let rule = placement.destination_rule(&host);
        let tls = rule.and_then(|rule| rule.effective(&subset, port)).and_then(|policy| policy.tls);
        let selected = rule.is_some_and(|rule| rule.selector.is_some());
        Some(CheckedCluster { mesh, placement, service, port, tls, selected })
    }

    fn required(&self) -> Required {
        if self.istiod_sends_plaintext().is_some() {
            return Required::Nothing;
        }
        match self.tls.as_ref().map(|tls| tls.mode) {
            Some(ClientTlsMode::Disable) => Required::Nothing,
            Some(ClientTlsMode::Simple | ClientTlsMode::Mutual) => Required::Tls,
            Some(ClientTlsMode::IstioMutual) if self.uses_files() => Required::Tls,
            Some(ClientTlsMode::IstioMutual) => Required::IstioMutual,
            None if self.is_strict() => Required::Automatic,
            None => Required::Nothing,
        }
    }

    /// Every endpoint requires mutual TLS.
    fn is_strict(&self) -> bool {
        let endpoints = self.mesh.endpoints_at(self.service, self.port);
        let strict = self.mesh.namespace_mtls(&self.service.namespace) == MtlsMode::Strict;
        let able =
            !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.workload.tls_mode == TlsMode::Istio);
        self.mesh.config.enable_auto_mtls && !self.service.external && strict && able
    }

    /// Inside the mesh the certificate files of the proxy's metadata replace those of a rule.
    fn uses_files(&self) -> bool {
        let files = self.placement.proxy.metadata.client_certificate.as_ref();
        !self.service.external && files.is_some_and(|files| !files.chain.is_empty())
    }

    fn istiod_sends_plaintext(&self) -> Option<&'static str> {
        let mutual =
            self.tls.as_ref().is_none_or(|tls| matches!(tls.mode, ClientTlsMode::Mutual | ClientTlsMode::IstioMutual));
        let files = self.placement.proxy.metadata.client_certificate.as_ref();
        if mutual && self.uses_files() && files.is_some_and(|files| files.key.is_empty()) {
            return Some("the metadata names a certificate chain without its key");
        }
        let secret = self.tls.as_ref().is_some_and(|tls| {
            let originated =
                tls.mode == ClientTlsMode::Simple || tls.mode == ClientTlsMode::Mutual && !self.uses_files();
            originated && !tls.credential_name.is_empty() && !tls.credential_name.starts_with("configmap://")
        });
        let sidecar = !self.placement.is_gateway() && !self.selected;
        (secret && sidecar).then_some("a rule without a workloadSelector names a credential, which sidecars do not get")
    }
}

/// The TLS context of a transport socket, also within the PROXY protocol one. `None`: plaintext.
fn context(socket: &TransportSocket) -> Option<UpstreamTlsContext> {
    let Some(ConfigType::TypedConfig(config)) = &socket.config_type else { return None };
    match wire::any::unpack::<ProxyProtocolUpstreamTransport>(config) {
        Some(wrapped) => context(wrapped.transport_socket.as_ref()?),
        None => wire::any::unpack(config),
    }
}

fn is_met(required: &Required, cluster: &Cluster) -> bool {
    let socket = cluster.transport_socket.as_ref().and_then(context);
    match required {
        Required::Nothing => true,
        Required::Tls => socket.is_some(),
        Required::IstioMutual => socket.is_some_and(|context| {
            let common = context.common_tls_context.unwrap_or_default();
            let names = common.tls_certificate_sds_secret_configs.iter().map(|secret| secret.name.as_str());
            names.eq(["default"]) && common.alpn_protocols.starts_with(&["istio-peer-exchange".to_owned()])
        }),
        Required::Automatic => {
            let mut sockets = cluster.transport_socket_matches.iter().filter_map(|it| it.transport_socket.as_ref());
            socket.is_some() || sockets.any(|it| context(it).is_some())
        }
    }
}

proptest! {
    #[test]
    fn a_cluster_whose_policy_requires_tls_has_a_tls_socket(
        edits in edits(), rules in prop::collection::vec(rule(), 1..8), files in 0..64u8,
    ) {
        let mesh = mesh(&edits, &rules);
        for (kind, ns, pod) in [("sidecar", "shop", 1), ("sidecar", "bank", 0), ("router", "istio-system", 0)] {
            let placement = mesh.place(&proxy(kind, ns, pod, files));
            for made in views::render(&mesh, &placement).iter().filter(|made| made.kind == TypeUrl::Cluster) {
                let Some(asked) = CheckedCluster::new(&mesh, &placement, &made.name, &made.made_from) else { continue };
                let cluster: Cluster = wire::any::unpack(&made.any).expect("a cluster");
                let required = asked.required();
                prop_assert!(is_met(&required, &cluster), "{required:?} for {:?}: {cluster:?}", asked.tls);
            }
        }
    }
}
