//! The placement of a proxy in the mesh: labels, locality, services, scope and policies. Everything that translation reads of a proxy.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::labels::Labels;
use config::locality::Locality;
use config::mesh::{ProviderKind, ServiceAttributeEnrichment};

use crate::authn::PortModes;
use crate::destination::MergedDestinationRule;
use crate::gateway::{GatewayKey, MergedGateway};
use crate::mesh::Mesh;
use crate::metadata::Interception;
use crate::patch::Patches;
use crate::plugin::Plugins;
use crate::policy::Policies;
use crate::proxy::{Proxy, ProxyKind};
use crate::proxy_settings::{KeyAcceleration, ProxySettings};
use crate::scope::{Scope, ScopeKey};
use crate::service::{Port, Service};
use crate::telemetry::WorkloadTelemetry;
use crate::workload::{self, Workload};

/// The scope of a proxy, and its facts, which stay when only the scope changes.
#[derive(Debug, Clone)]
pub struct Placement {
    pub scope: Arc<Scope>,
    pub facts: Arc<ProxyFacts>,
}

/// Everything that applies to a proxy, apart from its scope.
#[derive(Debug)]
pub struct ProxyFacts {
    pub proxy: Arc<Proxy>,
    /// Those of the workload's object, where there is one: a proxy cannot relabel itself.
    pub labels: Labels,
    /// With the labels of its locality, network, node and cluster.
    pub topology_labels: Labels,
    pub locality: Locality,
    /// `None`: no object describes this proxy.
    pub workload: Option<Arc<Workload>>,
    /// Ports that services target on this workload, oldest service first.
    pub targets: Vec<InboundTarget>,
    pub scope_key: ScopeKey,
    pub modes: PortModes,
    /// The PeerAuthentications that decide the modes.
    pub mutual_tls_from: Vec<ObjectId>,
    pub settings: Arc<ProxySettings>,
    pub telemetry: Arc<WorkloadTelemetry>,
    pub policies: Arc<Policies>,
    pub patches: Patches,
    pub plugins: Plugins,
    /// `None`: not a gateway.
    pub gateway_facts: Option<Box<GatewayFacts>>,
}

/// What only gateways have.
#[derive(Debug, Clone)]
pub struct GatewayFacts {
    pub key: GatewayKey,
    pub gateway: Arc<MergedGateway>,
    /// Hosts whose clusters it needs; `None`: all imported ones.
    needs: Option<BTreeSet<Host>>,
}

#[derive(Debug, Clone)]
pub struct InboundTarget {
    pub service: Arc<Service>,
    pub port: Port,
    /// The target port.
    pub number: u16,
}

/// Compares services by pointer first: a full comparison is long, and most are the same object.
impl PartialEq for InboundTarget {
    fn eq(&self, other: &Self) -> bool {
        (self.number, &self.port) == (other.number, &other.port)
            && (Arc::ptr_eq(&self.service, &other.service) || self.service == other.service)
    }
}

impl GatewayFacts {
    fn new(mesh: &Mesh, proxy: &Proxy, labels: &Labels, targets: &[InboundTarget]) -> Self {
        let (key, gateway) = mesh.gateways.for_proxy(&mesh.env, &proxy.namespace, labels, targets);
        let needs = mesh.env.filter_gateway_clusters.then(|| mesh.hosts_needed_by(&gateway));
        Self { key, gateway, needs }
    }
}

impl Deref for Placement {
    type Target = ProxyFacts;

    fn deref(&self) -> &ProxyFacts {
        &self.facts
    }
}

impl Placement {
    pub(crate) fn new(mesh: &Mesh, proxy: &Arc<Proxy>) -> Self {
        let (workload, network) = mesh.workload_of(proxy).unzip();
        let labels = workload.as_ref().map_or(&proxy.metadata.labels, |known| &known.labels).clone();
        let declared = workload.as_ref().map(|known| known.locality.clone()).unwrap_or_default();
        let locality = workload::labelled_locality(&labels, &declared).unwrap_or_else(|| proxy.locality.clone());
        let network = network.filter(|network| !network.is_empty());
        let topology_labels = topology_labels(mesh, proxy, workload.as_deref(), network.as_ref(), &labels, &locality);
        let (scope_key, scope) = mesh.scope_of(proxy, &labels);
        let targets = mesh.inbound_targets(proxy);
        let sent = proxy.metadata.settings.clone();
        let facts = ProxyFacts {
            gateway_facts: (proxy.kind == ProxyKind::Gateway)
                .then(|| Box::new(GatewayFacts::new(mesh, proxy, &labels, &targets))),
            targets,
            scope_key,
            modes: mesh.port_modes(&proxy.namespace, &labels),
            mutual_tls_from: mesh.peer_authentications.deciding(&proxy.namespace, &labels),
            settings: sent.unwrap_or_else(|| mesh.default_proxy_settings.clone()),
            telemetry: mesh.telemetry(&proxy.namespace, &labels),
            policies: Policies::new(mesh, &proxy.namespace, &labels),
            plugins: mesh.plugins(&proxy.namespace, &labels, proxy.assurance),
            patches: mesh.envoy_filters.of(&mesh.config.root_namespace, proxy, &labels),
            proxy: proxy.clone(),
            labels,
            topology_labels,
            locality,
            workload,
        };
        Self { scope, facts: Arc::new(facts) }
    }

    /// The DestinationRule of this client for an imported host.
    pub fn destination_rule(&self, host: &Host) -> Option<&Arc<MergedDestinationRule>> {
        self.scope.destinations.of_client(host, &self.proxy.namespace, &self.topology_labels)
    }

    /// The DestinationRule for inbound traffic of a host: one without a selector.
    pub fn inbound_destination_rule(&self, host: &Host) -> Option<&Arc<MergedDestinationRule>> {
        self.scope.destinations.of_everybody(host)
    }

    /// The service name in spans; `None`: the provider takes it from the node.
    pub fn trace_service_name(&self, provider: &ProviderKind) -> Option<String> {
        match provider {
            ProviderKind::OpenTelemetry(otel)
                if otel.service_attribute_enrichment == ServiceAttributeEnrichment::OtelSemanticConventions =>
            {
                Some(self.service_attribute())
            }
            ProviderKind::OpenTelemetry(_) | ProviderKind::Datadog(_) => Some(self.proxy.cluster.to_string()),
            _ => None,
        }
    }

    /// `service.name` by OpenTelemetry's conventions for Kubernetes.
    fn service_attribute(&self) -> String {
        let metadata = &self.proxy.metadata;
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let label = |key: &str| self.labels.get(key).and_then(given);
        let pod = || self.proxy.id.split_once('.').and_then(|(pod, _)| given(pod));
        metadata
            .annotated_service
            .as_deref()
            .map(str::to_owned)
            .or_else(|| label("app.kubernetes.io/instance"))
            .or_else(|| label("app.kubernetes.io/name"))
            .or_else(|| given(&metadata.workload_name))
            .or_else(pod)
            .or_else(|| metadata.container.as_deref().map(str::to_owned))
            .unwrap_or_else(|| "unknown_service".into())
    }

    /// The proxy needs the clusters of this imported service.
    pub fn needs_clusters_of(&self, service: &Service) -> bool {
        let needs = self.gateway_facts.as_ref().and_then(|facts| facts.needs.as_ref());
        needs.is_none_or(|hosts| hosts.contains(&service.host))
    }

    /// The merged Gateways; empty for a sidecar.
    pub fn gateway(&self) -> &MergedGateway {
        static NONE: MergedGateway = MergedGateway::none();
        self.gateway_facts.as_ref().map_or(&NONE, |facts| &facts.gateway)
    }

    /// `None`: its mesh config asks for none, or it could not use it.
    pub fn key_acceleration(&self) -> Option<KeyAcceleration> {
        self.settings.key_acceleration.filter(|asked| !self.proxy.lacks(asked.hardware.extension()))
    }

    pub fn is_gateway(&self) -> bool {
        self.proxy.kind == ProxyKind::Gateway
    }

    /// Listeners bind real ports: interception mode NONE.
    pub fn binds_ports(&self) -> bool {
        self.proxy.metadata.interception == Interception::None
    }

    /// Traffic to that network needs no gateway: it is the proxy's own, or one of the two is unknown.
    pub fn is_in_network(&self, network: &str) -> bool {
        let own = &*self.proxy.metadata.network;
        own.is_empty() || network.is_empty() || own == network
    }

    /// The proxy requests endpoints of that network.
    pub fn requests_network(&self, network: &str) -> bool {
        let view = &self.proxy.metadata.network_view;
        view.is_empty() || network.is_empty() || view.iter().any(|wanted| wanted == network)
    }

    /// The addresses by which this proxy's application may call a service: its own, else allocated ones where the proxy has DNS capture.
    /// Addresses of a ServiceEntry count whatever their family; else those of one family that the proxy has.
    pub fn addresses_of(&self, service: &Service) -> Vec<IpAddr> {
        if !service.addresses.is_empty() && !service.is_kubernetes() {
            return service.addresses.clone();
        }
        let own = self.of_one_family(&service.addresses);
        if !own.is_empty() || !self.proxy.metadata.dns_capture || !service.ranges.is_empty() {
            return own;
        }
        let mut allocated = service.automatic.clone();
        allocated.sort_by_key(IpAddr::is_ipv6);
        self.of_one_family(&allocated)
    }

    /// Those of the proxy's only family, or of the family of the first address.
    fn of_one_family(&self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        let Some(first) = addresses.first() else { return Vec::new() };
        let ipv4 = if self.has_ipv4() && self.has_ipv6() { first.is_ipv4() } else { self.has_ipv4() };
        addresses.iter().filter(|ip| ip.is_ipv4() == ipv4).copied().collect()
    }

    /// The listener addresses for a service: those above, else its first address, of whichever family.
    pub fn listening_addresses(&self, service: &Service) -> Vec<IpAddr> {
        let called = self.addresses_of(service);
        if called.is_empty() { service.addresses.first().copied().into_iter().collect() } else { called }
    }

    /// The wildcard address of the proxy's first family.
    pub fn wildcard(&self) -> &'static str {
        if self.has_ipv4() { "0.0.0.0" } else { "::" }
    }

    pub fn loopback(&self) -> &'static str {
        if self.has_ipv4() { "127.0.0.1" } else { "::1" }
    }

    pub fn has_ipv4(&self) -> bool {
        self.proxy.ips.iter().any(IpAddr::is_ipv4)
    }

    pub fn has_ipv6(&self) -> bool {
        self.proxy.ips.iter().any(IpAddr::is_ipv6)
    }

    /// The node of the proxy; `None`: it runs in another cluster, whose nodes may have the same names.
    pub fn node(&self, mesh: &Mesh) -> Option<&Arc<str>> {
        self.is_in_own_cluster(mesh).then_some(&self.proxy.metadata.node_name)
    }

    /// The proxy runs in the cluster of the mesh's objects.
    pub fn is_in_own_cluster(&self, mesh: &Mesh) -> bool {
        *self.proxy.metadata.cluster_id == *mesh.env.cluster_id
    }

    /// The proxy's first address; proxies without any are rejected when they connect.
    pub fn own_address(&self) -> IpAddr {
        self.proxy.ips[0]
    }
}

/// Facts of the objects take precedence over node metadata.
fn topology_labels(
    mesh: &Mesh,
    proxy: &Proxy,
    known: Option<&Workload>,
    network: Option<&Arc<str>>,
    labels: &Labels,
    place: &Locality,
) -> Labels {
    let metadata = &proxy.metadata;
    let network = network.unwrap_or(&metadata.network);
    let node = if metadata.node_name.is_empty() { known.map_or("", |known| &known.node) } else { &metadata.node_name };
    let cluster = if metadata.cluster_id.is_empty() { &*mesh.env.cluster_id } else { &*metadata.cluster_id };
    workload::topology_labels(labels, place, cluster, node, network)
}
