//! A proxy in its mesh: the labels, place, services, scope and policies that hold for it. Everything translation asks about a proxy.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use config::host::Host;
use config::labels::Labels;
use config::locality::Locality;
use config::mesh::{Provider, ServiceAttributeEnrichment};

use crate::authn::PortModes;
use crate::destination::Destination;
use crate::gateway::{MergedGateway, RouterKey};
use crate::mesh::Mesh;
use crate::metadata::Interception;
use crate::patch::Patches;
use crate::plugin::Plugins;
use crate::policy::Policies;
use crate::proxy::{Proxy, ProxyKind};
use crate::proxy_settings::ProxySettings;
use crate::scope::{Scope, ScopeKey};
use crate::service::{Port, Service};
use crate::telemetry::Telemetry;
use crate::workload::{self, Workload};

/// What a proxy sees, and all the rest, which stays when that changes.
#[derive(Debug, Clone)]
pub struct Placement {
    pub scope: Arc<Scope>,
    pub standing: Arc<Standing>,
}

/// What holds for a proxy, whatever it sees.
#[derive(Debug)]
pub struct Standing {
    pub proxy: Arc<Proxy>,
    /// The registry's, where it knows the workload: a proxy cannot relabel itself.
    pub labels: Labels,
    /// With those that stand for its place.
    pub placed_labels: Labels,
    pub locality: Locality,
    /// `None`: no object stands for this proxy.
    pub workload: Option<Arc<Workload>>,
    /// Ports that services send to this workload, oldest service first.
    pub targets: Vec<InboundTarget>,
    pub scope_key: ScopeKey,
    pub modes: PortModes,
    pub settings: Arc<ProxySettings>,
    pub telemetry: Arc<Telemetry>,
    pub policies: Arc<Policies>,
    pub patches: Patches,
    pub plugins: Plugins,
    /// `None`: not a router.
    pub router: Option<Box<Router>>,
}

/// What only routers have.
#[derive(Debug, Clone)]
pub struct Router {
    pub key: RouterKey,
    pub gateway: Arc<MergedGateway>,
    /// Hosts whose clusters it needs; `None`: all that it imports.
    needs: Option<BTreeSet<Host>>,
}

#[derive(Debug, Clone)]
pub struct InboundTarget {
    pub service: Arc<Service>,
    pub port: Port,
    /// The port on the workload.
    pub number: u16,
}

/// Services are long to compare, and mostly the same in memory.
impl PartialEq for InboundTarget {
    fn eq(&self, other: &Self) -> bool {
        (self.number, &self.port) == (other.number, &other.port)
            && (Arc::ptr_eq(&self.service, &other.service) || self.service == other.service)
    }
}

impl Router {
    fn new(mesh: &Mesh, proxy: &Proxy, labels: &Labels, targets: &[InboundTarget]) -> Self {
        let (key, gateway) = mesh.gateways.of_router(&mesh.env, &proxy.namespace, labels, targets);
        let needs = mesh.env.filter_gateway_clusters.then(|| mesh.needed_by(&gateway));
        Self { key, gateway, needs }
    }
}

impl Deref for Placement {
    type Target = Standing;

    fn deref(&self) -> &Standing {
        &self.standing
    }
}

impl Placement {
    pub(crate) fn new(mesh: &Mesh, proxy: &Arc<Proxy>) -> Self {
        let (workload, network) = mesh.workload_of(proxy).unzip();
        let labels = workload.as_ref().map_or(&proxy.metadata.labels, |known| &known.labels).clone();
        let declared = workload.as_ref().map(|known| known.locality.clone()).unwrap_or_default();
        let locality = workload::labelled_locality(&labels, &declared).unwrap_or_else(|| proxy.locality.clone());
        let network = network.filter(|network| !network.is_empty());
        let placed_labels = placed_labels(mesh, proxy, workload.as_deref(), network.as_ref(), &labels, &locality);
        let (scope_key, scope) = mesh.scope_of(proxy, &labels);
        let targets = mesh.inbound_targets(proxy);
        let sent = proxy.metadata.settings.clone();
        let standing = Standing {
            router: (proxy.kind == ProxyKind::Router).then(|| Box::new(Router::new(mesh, proxy, &labels, &targets))),
            targets,
            scope_key,
            modes: mesh.port_modes(&proxy.namespace, &labels),
            settings: sent.unwrap_or_else(|| ProxySettings::new(&mesh.config.default_config).shared()),
            telemetry: mesh.telemetry(&proxy.namespace, &labels).shared(),
            policies: Policies::new(mesh, &proxy.namespace, &labels),
            plugins: mesh.plugins(&proxy.namespace, &labels),
            patches: mesh.envoy_filters.of(&mesh.config.root_namespace, proxy, &labels),
            proxy: proxy.clone(),
            labels,
            placed_labels,
            locality,
            workload,
        };
        Self { scope, standing: Arc::new(standing) }
    }

    /// What DestinationRules say to this client about a host that it imports.
    pub fn destination(&self, host: &Host) -> Option<&Arc<Destination>> {
        self.scope.destinations.of_client(host, &self.proxy.namespace, &self.placed_labels)
    }

    /// What DestinationRules say to every client of a host: its own side follows.
    pub fn inbound_destination(&self, host: &Host) -> Option<&Arc<Destination>> {
        self.scope.destinations.of_everybody(host)
    }

    /// What spans call the proxy; `None`: the provider takes the name from the proxy itself.
    pub fn traced_as(&self, provider: &Provider) -> Option<String> {
        match provider {
            Provider::OpenTelemetry(otel)
                if otel.service_attribute_enrichment == ServiceAttributeEnrichment::OtelSemanticConventions =>
            {
                Some(self.service_attribute())
            }
            Provider::OpenTelemetry(_) | Provider::Datadog(_) => Some(self.proxy.cluster.to_string()),
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

    /// The proxy needs the clusters of this service that it imports.
    pub fn reaches(&self, service: &Service) -> bool {
        let needs = self.router.as_ref().and_then(|router| router.needs.as_ref());
        needs.is_none_or(|hosts| hosts.contains(&service.host))
    }

    /// Gateways merged; empty for a sidecar.
    pub fn gateway(&self) -> &MergedGateway {
        static NONE: MergedGateway = MergedGateway::none();
        self.router.as_ref().map_or(&NONE, |router| &router.gateway)
    }

    pub fn is_router(&self) -> bool {
        self.proxy.kind == ProxyKind::Router
    }

    /// Listeners bind real ports: nothing redirects traffic to this proxy.
    pub fn binds_ports(&self) -> bool {
        self.proxy.metadata.interception == Interception::None
    }

    /// Traffic to that network needs no gateway: it is the proxy's own, or one of the two is unknown.
    pub fn is_in_network(&self, network: &str) -> bool {
        let own = &*self.proxy.metadata.network;
        own.is_empty() || network.is_empty() || own == network
    }

    /// The proxy wants endpoints of that network.
    pub fn views_network(&self, network: &str) -> bool {
        let view = &self.proxy.metadata.network_view;
        view.is_empty() || network.is_empty() || view.iter().any(|wanted| wanted == network)
    }

    /// The addresses by which this proxy's application may call a service: its own, else allocated ones where the proxy answers DNS.
    /// What a ServiceEntry lists stands whatever its family; else those of one family that the proxy has.
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

    /// Of its only family, or of that of the first address.
    fn of_one_family(&self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        let Some(first) = addresses.first() else { return Vec::new() };
        let ipv4 = if self.has_ipv4() && self.has_ipv6() { first.is_ipv4() } else { self.has_ipv4() };
        addresses.iter().filter(|ip| ip.is_ipv4() == ipv4).copied().collect()
    }

    /// Where it is listened for calls of a service: as they are addressed, else by the first address, of whichever family.
    pub fn listening_addresses(&self, service: &Service) -> Vec<IpAddr> {
        let called = self.addresses_of(service);
        if called.is_empty() { service.addresses.first().copied().into_iter().collect() } else { called }
    }

    /// The address that stands for "any", first of the proxy's own family.
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

    /// Where the proxy runs; `None`: in another cluster, whose nodes may have the names of ours.
    pub fn node(&self, mesh: &Mesh) -> Option<&Arc<str>> {
        self.is_at_home(mesh).then_some(&self.proxy.metadata.node_name)
    }

    /// The proxy runs in the cluster that the mesh's objects are of.
    pub fn is_at_home(&self, mesh: &Mesh) -> bool {
        *self.proxy.metadata.cluster_id == *mesh.env.cluster_id
    }

    /// The proxy's first address; a proxy without any is refused when it joins.
    pub fn own_address(&self) -> IpAddr {
        self.proxy.ips[0]
    }
}

/// What the registry knows goes before what the proxy says of itself.
fn placed_labels(
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
    workload::placed_labels(labels, place, cluster, node, network)
}
