//! Classes: proxies that receive identical answers. Answers come in parts, and the key of each part holds all that translation reads of a
//! proxy for it, and nothing else. Pod name and address are absent: all replicas of a Deployment share their parts. Hashes stand for keys,
//! so they hold all that keys hold.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::locality::Locality;
use config::mesh::ProxyHeaders;
use config::note::ObjectId;

use crate::authn::PortModes;
use crate::gateway::RouterKey;
use crate::mesh::Mesh;
use crate::metadata::{CertificateFiles, Interception};
use crate::patch::PatchId;
use crate::placement::Placement;
use crate::plugin::Places;
use crate::proxy::{Extension, ProxyKind};
use crate::proxy_settings::ProxySettings;
use crate::release::Release;
use crate::scope::ScopeKey;
use crate::telemetry::{Logs, Metrics, Side, Tracing};
use crate::topology::Topology;

/// What one proxy's answers are put together from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class {
    pub outbound: OutboundKey,
    pub listeners: ListenerKey,
    pub inbound: InboundKey,
}

/// Clusters, load assignments, routes and listeners of bytes: shared by the workloads of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutboundKey {
    pub scope: ScopeKey,
    /// Names are short relative to it.
    domain: Arc<str>,
    own: Own,
    headers: ProxyHeaders,
    logs: Logs,
    metrics: Vec<Metrics>,
    /// Objects that decided the two.
    observed_by: Vec<ObjectId>,
    client_certificate: Option<Box<CertificateFiles>>,
    exact_balance: bool,
    http_proxy_port: Option<u16>,
    /// Only where a listener for each endpoint would be one for the proxy itself.
    own_address: Option<IpAddr>,
    /// Only where some service keeps traffic on the node.
    node: Option<Arc<str>>,
    /// In the cluster of the endpoints.
    at_home: bool,
    /// Those that some rule chooses by.
    labels: Vec<(String, String)>,
    /// Only where traffic prefers some places.
    locality: Option<Locality>,
    network: Arc<str>,
    network_view: Box<[String]>,
    /// `None`: not a router.
    router: Option<RouterFacts>,
    /// Of a router: what comes in there goes out to others.
    policies: Option<Vec<ObjectId>>,
    patches: Vec<PatchId>,
    plugins: Places,
}

/// What a router listens on, and what stands before it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RouterFacts {
    key: RouterKey,
    /// Shown by servers of mutual TLS.
    server_certificate: Option<Box<CertificateFiles>>,
    topology: Topology,
    /// It has clusters for names in handshakes.
    auto_passthrough: bool,
}

/// Outbound HTTP listeners, besides the outbound key: they name the workload in traces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListenerKey {
    tracing: Tracing,
    settings: Arc<ProxySettings>,
    tags: Tags,
}

/// What arrives at the workload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InboundKey {
    scope: ScopeKey,
    own: Own,
    settings: Arc<ProxySettings>,
    telemetry: Side,
    observed_by: Vec<ObjectId>,
    tags: Tags,
    server_certificate: Option<Box<CertificateFiles>>,
    exact_balance: bool,
    modes: PortModes,
    policies: Vec<ObjectId>,
    patches: Vec<PatchId>,
    /// Configurations of filters that are asked for by name.
    extensions: Vec<PatchId>,
    plugins: Places,
    /// Host, namespace, service port and workload port of each target.
    targets: Vec<(String, Arc<str>, u16, u16)>,
    /// Only where listeners or clusters are named after it.
    own_address: Option<IpAddr>,
}

/// What every part reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Own {
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
    /// Only where spans name the proxy.
    traced_as: Option<String>,
}

impl OutboundKey {
    /// What clusters and load assignments read of a proxy besides the services and rules of its scope, before they are patched.
    pub fn client(&self) -> Self {
        let scope = ScopeKey { namespace: Arc::from(""), sidecar: None, router: false };
        Self { scope, domain: Arc::default(), patches: Vec::new(), plugins: Places::default(), ..self.clone() }
    }
}

impl InboundKey {
    /// Without names that are the workload's alone: its own, and those of its services with their ports.
    pub fn nameless(&self) -> Self {
        let tags = Tags { canonical_name: None, canonical_revision: None, traced_as: None, ..self.tags.clone() };
        Self { tags, targets: Vec::new(), ..self.clone() }
    }
}

impl Class {
    pub fn of(mesh: &Mesh, placement: &Placement) -> Self {
        let listeners = ListenerKey {
            tracing: placement.telemetry.client.tracing.clone(),
            settings: placement.settings.clone(),
            tags: tags(mesh, placement, &placement.telemetry.client),
        };
        Self { outbound: outbound(mesh, placement), listeners, inbound: inbound(mesh, placement) }
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
        observed_by: placement.telemetry.made_from.clone(),
        client_certificate: metadata.client_certificate.clone(),
        exact_balance: metadata.exact_balance_outbound,
        http_proxy_port: metadata.http_proxy_port,
        own_address: mesh.is_headless_endpoint(address).then_some(address),
        node: if mesh.has_node_local_services() { placement.node(mesh).cloned() } else { None },
        at_home: placement.is_at_home(mesh),
        labels: chosen_labels(mesh, placement),
        locality: mesh.client_facts.locality.then(|| placement.locality.clone()),
        network: metadata.network.clone(),
        network_view: metadata.network_view.clone(),
        router: placement.router.as_ref().map(|router| RouterFacts {
            key: router.key.clone(),
            server_certificate: metadata.server_certificate.clone(),
            topology: placement.settings.topology,
            auto_passthrough: router.gateway.auto_passthrough,
        }),
        policies: placement.is_router().then(|| placement.policies.made_from.clone()),
        patches: placement.patches.outbound.ids(),
        plugins: placement.plugins.towards_others(),
    }
}

fn chosen_labels(mesh: &Mesh, placement: &Placement) -> Vec<(String, String)> {
    let keys = mesh.client_facts.labels.iter();
    keys.filter_map(|key| Some((key.clone(), placement.placed_labels.get(key)?.to_owned()))).collect()
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
        observed_by: placement.telemetry.made_from.clone(),
        tags: tags(mesh, placement, &placement.telemetry.server),
        server_certificate: metadata.server_certificate.clone(),
        exact_balance: metadata.exact_balance_inbound,
        modes: placement.modes.clone(),
        policies: placement.policies.made_from.clone(),
        patches: placement.patches.inbound_ids(),
        extensions: placement.patches.extensions.ids(),
        plugins: placement.plugins.places(),
        targets: placement.targets.iter().map(target).collect(),
        own_address: (!placement.scope.ingress.is_empty()).then(|| placement.own_address()),
    }
}

fn own(placement: &Placement) -> Own {
    let proxy = &placement.proxy;
    Own {
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
        traced_as: mesh.tracer(side).and_then(|provider| placement.traced_as(provider)),
    }
}
