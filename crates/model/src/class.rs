//! Classes: proxies that receive identical resources. Resources come in layers, and the key of a layer holds everything that translation reads
//! of a proxy for that layer and nothing else. Pod name and address are absent, so that all replicas of a Deployment share their layers. Layers
//! are looked up by the hash of the key, so that the hash covers the whole key.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::locality::Locality;
use config::mesh::ProxyHeaders;

use crate::authn::PortModes;
use crate::gateway::GatewayKey;
use crate::mesh::Mesh;
use crate::metadata::{CertificateFiles, Interception};
use crate::patch::PatchId;
use crate::placement::Placement;
use crate::plugin::PluginKey;
use crate::proxy::{Extension, ProxyKind};
use crate::proxy_settings::ProxySettings;
use crate::release::Release;
use crate::scope::ScopeKey;
use crate::telemetry::{AccessLogs, ProviderMetrics, Side, WorkloadTracing};
use crate::topology::GatewayTopology;

/// The layer keys of one proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClassKeys {
    pub outbound: OutboundKey,
    pub listeners: ListenerKey,
    pub inbound: InboundKey,
}

/// Clusters, load assignments, routes and TCP listeners: shared by the workloads of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutboundKey {
    pub scope: ScopeKey,
    /// The DNS domain that short host names are relative to.
    domain: Arc<str>,
    own: NodeFacts,
    headers: ProxyHeaders,
    logs: AccessLogs,
    metrics: Vec<ProviderMetrics>,
    /// Telemetry objects that decided `logs` and `metrics`.
    telemetry_objects: Vec<ObjectId>,
    client_certificate: Option<Box<CertificateFiles>>,
    exact_balance: bool,
    http_proxy_port: Option<u16>,
    /// Set only where a listener per endpoint of a headless service would cover the proxy itself.
    own_address: Option<IpAddr>,
    /// Set only where some service has `internalTrafficPolicy: Local`.
    node: Option<Arc<str>>,
    /// The proxy runs in the cluster of the endpoints.
    in_own_cluster: bool,
    /// Labels that some rule or route matches on.
    labels: Vec<(String, String)>,
    /// Set only where some traffic policy prefers localities.
    locality: Option<Locality>,
    network: Arc<str>,
    network_view: Box<[String]>,
    /// `None`: not a gateway.
    gateway: Option<GatewayKeyFacts>,
    /// Those that apply to outbound listeners: of a gateway, and of a client of hosts that are resolved per request.
    policies: Vec<ObjectId>,
    patches: Vec<PatchId>,
    plugins: PluginKey,
}

/// The listeners of a gateway, and the proxies in front of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GatewayKeyFacts {
    key: GatewayKey,
    /// Presented by servers with mutual TLS.
    server_certificate: Option<Box<CertificateFiles>>,
    topology: GatewayTopology,
    /// It has SNI-DNAT clusters (AUTO_PASSTHROUGH).
    auto_passthrough: bool,
}

/// Outbound HTTP listeners: what they read besides the outbound key. They name the workload in traces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListenerKey {
    tracing: WorkloadTracing,
    settings: Arc<ProxySettings>,
    tags: Tags,
}

/// The inbound listeners, clusters and routes of the workload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InboundKey {
    scope: ScopeKey,
    own: NodeFacts,
    settings: Arc<ProxySettings>,
    telemetry: Side,
    telemetry_objects: Vec<ObjectId>,
    tags: Tags,
    server_certificate: Option<Box<CertificateFiles>>,
    exact_balance: bool,
    modes: PortModes,
    policies: Vec<ObjectId>,
    patches: Vec<PatchId>,
    /// Extension configurations (ECDS) that filters refer to.
    extensions: Vec<PatchId>,
    plugins: PluginKey,
    /// Host, namespace, service port and workload port of each target.
    targets: Vec<(String, Arc<str>, u16, u16)>,
    /// Set only where listeners or clusters are named after it.
    own_address: Option<IpAddr>,
}

/// Facts of the node that every layer reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeFacts {
    kind: ProxyKind,
    interception: Interception,
    ipv4: bool,
    ipv6: bool,
    lacks: BTreeSet<Extension>,
    http10: bool,
    reserved_ports: Box<[u16]>,
    unprivileged: bool,
    dns_capture: bool,
    idle_timeout: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tags {
    canonical_name: Option<String>,
    canonical_revision: Option<String>,
    cluster_id: Arc<str>,
    mesh_id: Arc<str>,
    namespace: Option<Arc<str>>,
    release: Release,
    /// Set only where spans carry the name of the proxy.
    trace_service_name: Option<String>,
}

impl OutboundKey {
    /// Everything that clusters and load assignments read of a proxy besides the services and rules of its scope, before EnvoyFilter patches.
    pub fn client(&self) -> Self {
        let scope = ScopeKey { namespace: Arc::from(""), sidecar: None, gateway: false };
        let (policies, patches) = (Vec::new(), Vec::new());
        Self { scope, domain: Arc::default(), policies, patches, plugins: PluginKey::default(), ..self.clone() }
    }

    /// The keys differ at most in the EnvoyFilter patches that apply.
    pub fn is_equal_before_patches(&self, other: &Self) -> bool {
        let patches = self.patches.clone();
        *self == Self { patches, ..other.clone() }
    }

    pub fn of(mesh: &Mesh, placement: &Placement) -> Self {
        outbound(mesh, placement)
    }
}

impl InboundKey {
    /// Without names that only this workload has, or its namespace: its own, and those of its services and their ports. A scope is its namespace
    /// and its Sidecar, which inbound listeners read only if it has ingress listeners.
    pub fn without_names(&self) -> Self {
        let tags = Tags {
            canonical_name: None,
            canonical_revision: None,
            namespace: None,
            trace_service_name: None,
            ..self.tags.clone()
        };
        let scope = ScopeKey { namespace: Arc::from(""), sidecar: None, gateway: false };
        Self { scope, tags, targets: Vec::new(), ..self.clone() }
    }
}

impl ClassKeys {
    pub fn of(mesh: &Mesh, placement: &Placement) -> Self {
        let listeners = ListenerKey {
            tracing: placement.telemetry.client.tracing.clone(),
            settings: placement.settings.clone(),
            tags: tags(mesh, placement, &placement.telemetry.client),
        };
        Self { outbound: OutboundKey::of(mesh, placement), listeners, inbound: inbound(mesh, placement) }
    }
}

fn outbound(mesh: &Mesh, placement: &Placement) -> OutboundKey {
    let metadata = &placement.proxy.metadata;
    let address = placement.own_address();
    OutboundKey {
        scope: placement.scope_key.clone(),
        domain: placement.proxy.domain.clone(),
        own: own(placement),
        headers: placement.settings.headers.clone(),
        logs: placement.telemetry.client.logs.clone(),
        metrics: placement.telemetry.client.metrics.clone(),
        telemetry_objects: placement.telemetry.made_from.clone(),
        client_certificate: metadata.client_certificate.clone(),
        exact_balance: metadata.exact_balance_outbound,
        http_proxy_port: metadata.http_proxy_port,
        own_address: mesh.is_headless_endpoint(address).then_some(address),
        node: if mesh.has_node_local_services() { placement.node(mesh).cloned() } else { None },
        in_own_cluster: placement.is_in_own_cluster(mesh),
        labels: chosen_labels(mesh, placement),
        locality: mesh.client_facts.locality.then(|| placement.locality.clone()),
        network: metadata.network.clone(),
        network_view: metadata.network_view.clone(),
        gateway: placement.gateway_facts.as_ref().map(|facts| GatewayKeyFacts {
            key: facts.key.clone(),
            server_certificate: metadata.server_certificate.clone(),
            topology: placement.settings.topology,
            auto_passthrough: facts.gateway.auto_passthrough,
        }),
        policies: match placement.is_gateway() {
            true => placement.policies.made_from.clone(),
            false => mesh.outbound_policies(&placement.proxy.namespace, &placement.labels),
        },
        patches: placement.patches.outbound.ids(),
        plugins: placement.plugins.outbound_key(),
    }
}

fn chosen_labels(mesh: &Mesh, placement: &Placement) -> Vec<(String, String)> {
    let keys = mesh.client_facts.labels.iter();
    keys.filter_map(|key| Some((key.clone(), placement.topology_labels.get(key)?.to_owned()))).collect()
}

fn inbound(mesh: &Mesh, placement: &Placement) -> InboundKey {
    let metadata = &placement.proxy.metadata;
    let target = |target: &crate::InboundTarget| {
        (target.service.host.to_string(), target.service.namespace.clone(), target.port.number, target.number)
    };
    InboundKey {
        scope: placement.scope_key.clone(),
        own: own(placement),
        settings: placement.settings.clone(),
        telemetry: placement.telemetry.server.clone(),
        telemetry_objects: placement.telemetry.made_from.clone(),
        tags: tags(mesh, placement, &placement.telemetry.server),
        server_certificate: metadata.server_certificate.clone(),
        exact_balance: metadata.exact_balance_inbound,
        modes: placement.modes.clone(),
        policies: placement.policies.made_from.clone(),
        patches: placement.patches.inbound_ids(),
        extensions: placement.patches.extensions.ids(),
        plugins: placement.plugins.inbound_key(),
        targets: placement.targets.iter().map(target).collect(),
        own_address: (!placement.scope.ingress.is_empty()).then(|| placement.own_address()),
    }
}

fn own(placement: &Placement) -> NodeFacts {
    let proxy = &placement.proxy;
    NodeFacts {
        kind: proxy.kind,
        interception: proxy.metadata.interception,
        ipv4: placement.has_ipv4(),
        ipv6: placement.has_ipv6(),
        lacks: proxy.lacks.clone(),
        http10: proxy.metadata.http10,
        reserved_ports: proxy.metadata.reserved_ports.clone(),
        unprivileged: proxy.metadata.unprivileged,
        dns_capture: proxy.metadata.dns_capture,
        idle_timeout: proxy.metadata.idle_timeout.clone(),
    }
}

fn tags(mesh: &Mesh, placement: &Placement, side: &Side) -> Tags {
    let label = |key: &str| placement.labels.get(key).map(str::to_owned);
    let metadata = &placement.proxy.metadata;
    Tags {
        canonical_name: label("service.istio.io/canonical-name"),
        canonical_revision: label("service.istio.io/canonical-revision"),
        cluster_id: metadata.cluster_id.clone(),
        mesh_id: metadata.mesh_id.clone(),
        namespace: metadata.namespace.clone(),
        release: placement.proxy.release,
        trace_service_name: mesh.tracer(side).and_then(|provider| placement.trace_service_name(provider)),
    }
}
