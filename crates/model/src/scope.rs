//! The scope of a proxy: the Sidecar object that applies to it, as egress and ingress listeners with the services that they import.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kind::Kind;
use config::kinds::destination_rule::ConnectionPoolSettings;
use config::kinds::port;
use config::kinds::sidecar::{self as kube, CaptureMode, OutboundTrafficMode, Sidecar};
use config::mesh::{self, MeshConfig};
use config::meta::Object;
use config::store::Name;

use crate::destination::{MergedDestinationRule, ScopeDestinations};
use crate::protocol::Protocol;
use crate::ranking::Ranking;
use crate::service::{Resolution, Service};
use crate::virtual_service::{ResolvedVirtualService, RoutedServices, VirtualServices, destination_port};

#[derive(Debug, Clone, PartialEq)]
pub struct Scope {
    /// `None`: no Sidecar applies; everything visible is imported.
    pub sidecar: Option<Arc<Object<Sidecar>>>,
    pub egress: Vec<EgressListener>,
    /// Empty: inbound listeners follow the services that select the workload.
    pub ingress: Vec<IngressListener>,
    pub outbound: OutboundPolicy,
    /// All services that some egress listener imports, each once, with the imported ports.
    pub services: Vec<Arc<Service>>,
    by_host: Arc<BTreeMap<Host, usize>>,
    /// Headless services, also those that another service of the same host precedes.
    pub headless: Box<[Arc<Service>]>,
    /// Hosts that routes refer to: their services are imported too.
    routed: Arc<BTreeSet<Host>>,
    pub(crate) destinations: ScopeDestinations,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EgressListener {
    /// `None`: the catch-all, a listener for each port of each service.
    pub port: Option<ListenPort>,
    /// `None`: the services' own addresses, or loopback where listeners bind real ports.
    pub bind: Option<String>,
    pub capture: Capture,
    pub services: Vec<Arc<Service>>,
    pub virtual_services: VirtualServices,
}

#[derive(Debug, Clone, PartialEq)]
pub struct IngressListener {
    pub port: ListenPort,
    /// `None`: the proxy's own address.
    pub bind: Option<String>,
    pub capture: Capture,
    /// As written: `127.0.0.1:8080`, `0.0.0.0:8080`, `unix://...`; `None`: the original destination.
    pub default_endpoint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenPort {
    pub number: u16,
    pub protocol: Protocol,
    pub name: String,
}

impl ListenPort {
    /// `None`: a Unix domain socket or an HTTP_PROXY port, which serves services of any port.
    fn service_port(&self) -> Option<u16> {
        (self.number != 0 && self.protocol != Protocol::HttpProxy).then_some(self.number)
    }
}

impl EgressListener {
    /// `None`: services of any port.
    pub(crate) fn only_port(&self) -> Option<u16> {
        self.port.as_ref().and_then(ListenPort::service_port)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    Default,
    /// Binds a real port, whatever the proxy's interception mode.
    None,
}

/// How traffic to undeclared hosts is handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboundPolicy {
    AllowAny,
    /// Sent to this service; port 0: not set.
    Through {
        host: Host,
        subset: String,
        port: u16,
    },
    RegistryOnly,
}

/// Everything that decides a scope: proxies with equal keys have equal scopes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeKey {
    pub namespace: Arc<str>,
    /// `None`: no Sidecar applies.
    pub sidecar: Option<Name>,
    pub gateway: bool,
}

/// The inputs of a scope.
pub(crate) struct ScopeInputs<'a> {
    /// The client's namespace.
    pub(crate) namespace: &'a str,
    pub(crate) gateway: bool,
    pub(crate) services: &'a Ranking,
    /// Visible ones, in order of precedence.
    pub(crate) virtual_services: &'a [Arc<ResolvedVirtualService>],
}

impl<'a> ScopeInputs<'a> {
    /// Private ones first, then those exported to the namespace, then public ones; by precedence in each.
    fn visible(&self, of: impl IntoIterator<Item = &'a Arc<Service>>) -> impl Iterator<Item = &'a Arc<Service>> {
        let near = |service: &Service| service.visibility.rank(&service.namespace, self.namespace);
        let mut seen: Vec<_> = of.into_iter().filter_map(|service| Some((near(service)?, service))).collect();
        seen.sort_by_key(|(rank, _)| *rank);
        seen.into_iter().map(|(_, service)| service)
    }
}

impl Scope {
    /// Without a Sidecar: everything visible, as if by one catch-all listener.
    pub(crate) fn new(sidecar: Option<&Arc<Object<Sidecar>>>, world: &ScopeInputs<'_>, config: &MeshConfig) -> Self {
        let spec = sidecar.map(|object| &object.spec);
        let listeners = spec.map(|spec| spec.egress.as_slice()).unwrap_or_default();
        let mut egress: Vec<_> = listeners.iter().map(|listener| egress_listener(listener, world)).collect();
        if egress.is_empty() {
            egress.push(catch_all(world));
        }
        let outbound = spec.and_then(|spec| spec.outbound_traffic_policy.as_ref());
        let routed = RoutedServices::new(&egress, world);
        let services = imported(
            egress.iter().zip(&routed.services).flat_map(|(egress, routed)| egress.services.iter().chain(routed)),
        );
        let all = services.iter().chain(egress.iter().flat_map(|egress| &egress.services));
        Self {
            headless: all.filter(|service| service.is_headless()).cloned().collect(),
            sidecar: sidecar.cloned(),
            by_host: Arc::new(by_host(&services)),
            routed: Arc::new(routed.hosts),
            destinations: ScopeDestinations::default(),
            services,
            egress,
            ingress: spec.map(|spec| spec.ingress.iter().filter_map(ingress_listener).collect()).unwrap_or_default(),
            outbound: outbound.map_or_else(|| mesh_policy(config), policy),
        }
    }

    /// The imported service of this host; of several namespaces the one that takes precedence.
    pub fn service(&self, host: &Host) -> Option<&Arc<Service>> {
        self.by_host.get(host).map(|&index| &self.services[index])
    }

    /// A change of this service may change what is imported.
    pub(crate) fn concerns(&self, key: &ScopeKey, service: &Service) -> bool {
        let wanted = self.host_patterns(key);
        let imported = wanted.is_empty() || wanted.iter().any(|wanted| imports(wanted, service));
        (imported && service.visibility.allows(&key.namespace)) || self.routed.contains(&service.host)
    }

    /// A change of this VirtualService may change where traffic is routed.
    pub(crate) fn reads(&self, key: &ScopeKey, object: &ResolvedVirtualService) -> bool {
        let wanted = self.host_patterns(key);
        object.is_visible_in(&key.namespace)
            && (wanted.is_empty() || wanted.iter().flatten().any(|pattern| pattern.chooses(object)))
    }

    /// The host patterns of each egress listener; empty: the catch-all.
    fn host_patterns(&self, key: &ScopeKey) -> Vec<Vec<HostPattern>> {
        let egress = self.sidecar.as_ref().map(|object| object.spec.egress.as_slice()).unwrap_or_default();
        egress.iter().map(|listener| patterns(listener, &key.namespace)).collect()
    }

    /// An imported service may be called by this alias: no Sidecar applies, or the listener that imports the service imports the alias too.
    pub fn imports_alias(&self, key: &ScopeKey, service: &Service, alias: &Host) -> bool {
        let takes = |listener: &Vec<HostPattern>| {
            let of = |own: bool| listener.iter().filter(move |pattern| pattern.is_of(&service.namespace, own));
            // Patterns for its own namespace take precedence over those for any.
            let own = of(true).any(|pattern| service.host.is_subset_of(&pattern.host));
            of(own).any(|pattern| alias.is_subset_of(&pattern.host))
        };
        let wanted = self.host_patterns(key);
        wanted.is_empty() || wanted.iter().any(takes)
    }

    /// Replaces a VirtualService by one with the same hosts and destinations.
    pub(crate) fn replace_route(&mut self, old: &Arc<ResolvedVirtualService>, new: &Arc<ResolvedVirtualService>) {
        for listener in &mut self.egress {
            listener.virtual_services.replace(old, new);
        }
    }

    /// The DestinationRules for an imported host, for whichever clients of the scope.
    pub fn destination_rules(&self, host: &Host) -> &[Arc<MergedDestinationRule>] {
        self.destinations.of_host(host)
    }

    /// Connection limits of an inbound port: of its own listener, else of the Sidecar.
    pub fn inbound_pool(&self, port: u16) -> Option<&ConnectionPoolSettings> {
        let sidecar = &self.sidecar.as_ref()?.spec;
        let here = |listener: &&kube::IstioIngressListener| {
            listener.port.as_ref().is_some_and(|own| own.number == u32::from(port))
                && listener.connection_pool.is_some()
        };
        let own = sidecar.ingress.iter().find(here).and_then(|listener| listener.connection_pool.as_ref());
        own.or(sidecar.inbound_connection_pool.as_ref())
    }

    /// The Sidecar of this scope.
    pub fn sidecar_id(&self) -> Option<ObjectId> {
        let meta = &self.sidecar.as_ref()?.meta;
        Some(ObjectId { kind: Kind::Sidecar, namespace: meta.namespace.clone(), name: meta.name.clone() })
    }
}

fn by_host(services: &[Arc<Service>]) -> BTreeMap<Host, usize> {
    services.iter().enumerate().rev().map(|(index, service)| (service.host.clone(), index)).collect()
}

fn catch_all(world: &ScopeInputs<'_>) -> EgressListener {
    let visible = world.visible(world.services.all());
    EgressListener {
        port: None,
        bind: None,
        capture: Capture::Default,
        // A gateway has no services of its own that would come first.
        services: match world.gateway {
            true => imported(visible),
            false => pick_namespaces(visible.cloned().collect(), world.namespace),
        },
        virtual_services: VirtualServices::new(world.virtual_services.to_vec()),
    }
}

fn mesh_policy(config: &MeshConfig) -> OutboundPolicy {
    match config.outbound_traffic_policy.mode {
        mesh::OutboundTrafficMode::AllowAny => OutboundPolicy::AllowAny,
        // istiod accepts the last mode and has no implementation of it; pinned by parity case mesh-any-dynamic-dns.
        mesh::OutboundTrafficMode::RegistryOnly | mesh::OutboundTrafficMode::AllowAnyDynamicDns => {
            OutboundPolicy::RegistryOnly
        }
    }
}

fn policy(policy: &kube::OutboundTrafficPolicy) -> OutboundPolicy {
    match (policy.mode, &policy.egress_proxy) {
        (OutboundTrafficMode::RegistryOnly, _) => OutboundPolicy::RegistryOnly,
        (OutboundTrafficMode::AllowAny, Some(to)) if !to.host.is_empty() => OutboundPolicy::Through {
            host: Host::new(&to.host),
            subset: to.subset.clone(),
            port: destination_port(to).unwrap_or_default(),
        },
        (OutboundTrafficMode::AllowAny, _) => OutboundPolicy::AllowAny,
    }
}

fn egress_listener(listener: &kube::IstioEgressListener, world: &ScopeInputs<'_>) -> EgressListener {
    let port = listener.port.as_ref().and_then(listen_port);
    let wanted = patterns(listener, world.namespace);
    let only = port.as_ref().and_then(ListenPort::service_port);
    let services = world.visible(matching_services(&wanted, world.services)).filter_map(|service| match only {
        None => Some(service.clone()),
        Some(port) => with_only_port(service, port),
    });
    let rules = world.virtual_services.iter().filter(|object| wanted.iter().any(|pattern| pattern.chooses(object)));
    EgressListener {
        services: pick_namespaces(services.collect(), world.namespace),
        port,
        bind: Some(listener.bind.clone()).filter(|bind| !bind.is_empty()),
        capture: capture(listener.capture_mode),
        virtual_services: VirtualServices::new(rules.cloned().collect()),
    }
}

fn ingress_listener(listener: &kube::IstioIngressListener) -> Option<IngressListener> {
    Some(IngressListener {
        port: listen_port(listener.port.as_ref()?)?,
        bind: Some(listener.bind.clone()).filter(|bind| !bind.is_empty()),
        capture: capture(listener.capture_mode),
        default_endpoint: Some(listener.default_endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
    })
}

fn listen_port(port: &port::IstioPort) -> Option<ListenPort> {
    Some(ListenPort {
        number: u16::try_from(port.number).ok()?,
        protocol: Protocol::named(&port.protocol).unwrap_or(Protocol::Auto),
        name: port.name.clone(),
    })
}

fn capture(mode: CaptureMode) -> Capture {
    if mode == CaptureMode::None { Capture::None } else { Capture::Default }
}

/// The service with only that port; `None`: it has no such port.
pub(crate) fn with_only_port(service: &Arc<Service>, port: u16) -> Option<Arc<Service>> {
    let only = service.port(port)?;
    if service.ports.len() == 1 {
        return Some(service.clone());
    }
    Some(Arc::new(Service { ports: vec![only.clone()], ..Service::clone(service) }))
}

/// A host that several namespaces declare is taken from one of them: the client's own, else that of a Kubernetes Service, else the oldest.
fn pick_namespaces(services: Vec<Arc<Service>>, own: &str) -> Vec<Arc<Service>> {
    let rank = |service: &Service| (*service.namespace != *own, !service.is_kubernetes());
    let mut best: HashMap<Host, Arc<Service>> = HashMap::with_capacity(services.len());
    for service in &services {
        match best.get(&service.host) {
            Some(current) if rank(current) <= rank(service) => {}
            _ => drop(best.insert(service.host.clone(), service.clone())),
        }
    }
    if best.len() == services.len() {
        return services;
    }
    services.into_iter().filter(|service| best[&service.host].namespace == service.namespace).collect()
}

/// Each host once, in the order of its first import. A Kubernetes Service takes precedence; of the others the first does, with the ports that
/// similar ones add.
fn imported<'a>(services: impl Iterator<Item = &'a Arc<Service>>) -> Vec<Arc<Service>> {
    let mut order: Vec<Arc<Service>> = Vec::new();
    let mut at: HashMap<Host, usize> = HashMap::new();
    for service in services {
        let Some(&index) = at.get(&service.host) else {
            at.insert(service.host.clone(), order.len());
            order.push(service.clone());
            continue;
        };
        let current = &mut order[index];
        if current.is_kubernetes() != service.is_kubernetes() {
            if service.is_kubernetes() {
                *current = service.clone();
            }
            continue;
        }
        let extra: Vec<_> = service.ports.iter().filter(|port| current.port(port.number).is_none()).cloned().collect();
        if !extra.is_empty() && shares_ports(current, service) {
            Arc::make_mut(current).ports.extend(extra);
        }
    }
    order
}

/// Several objects of a namespace may describe one service in parts. `*` and an empty `exportTo` are different.
fn shares_ports(one: &Service, other: &Service) -> bool {
    one.namespace == other.namespace
        && one.resolution == other.resolution
        && one.labels == other.labels
        && one.selector_labels() == other.selector_labels()
        && one.export_to == other.export_to
}

/// `namespace/host` of an egress listener. `~` is a namespace without services; it does not limit what other patterns import.
struct HostPattern {
    namespace: NamespacePattern,
    host: Host,
}

/// `own`: the namespace that a dot means.
fn patterns(listener: &kube::IstioEgressListener, own: &str) -> Vec<HostPattern> {
    listener.hosts.iter().filter_map(|text| HostPattern::new(text, own)).collect()
}

enum NamespacePattern {
    Any,
    One(String),
}

impl NamespacePattern {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Any => None,
            Self::One(name) => Some(name),
        }
    }
}

impl HostPattern {
    /// `None`: malformed, without effect.
    fn new(text: &str, own: &str) -> Option<Self> {
        let (namespace, host) = text.split_once('/').filter(|(_, host)| !host.contains('/'))?;
        let namespace = match namespace {
            "*" => NamespacePattern::Any,
            "." => NamespacePattern::One(own.to_owned()),
            other => NamespacePattern::One(other.to_owned()),
        };
        Some(Self { namespace, host: Host::new(host) })
    }

    fn matches(&self, service: &Service) -> bool {
        self.covers(&service.namespace) && service.host.is_subset_of(&self.host)
    }

    /// By its namespace and any of its hosts.
    fn chooses(&self, object: &ResolvedVirtualService) -> bool {
        self.covers(&object.namespace) && object.hosts.iter().any(|host| self.host.matches(host))
    }

    /// `own`: it names this namespace; else it matches any.
    fn is_of(&self, namespace: &str, own: bool) -> bool {
        match &self.namespace {
            NamespacePattern::Any => !own,
            NamespacePattern::One(name) => own && name == namespace,
        }
    }

    fn covers(&self, namespace: &str) -> bool {
        match &self.namespace {
            NamespacePattern::Any => true,
            NamespacePattern::One(name) => name == namespace,
        }
    }
}

/// Services that the patterns match, visible or not. Where all patterns name namespaces, only services of those are visited.
fn matching_services<'a>(wanted: &[HostPattern], services: &'a Ranking) -> Vec<&'a Arc<Service>> {
    let named: Option<BTreeSet<&str>> = wanted.iter().map(|pattern| pattern.namespace.name()).collect();
    let mut found = named.map_or_else(|| services.all().iter().collect(), |named| services.of_namespaces(&named));
    found.retain(|service| imports(wanted, service));
    found
}

fn imports(wanted: &[HostPattern], service: &Service) -> bool {
    wanted.iter().any(|pattern| pattern.matches(service))
}

impl Service {
    /// An alias (ExternalName) has no listeners and clusters of its own.
    pub fn is_alias(&self) -> bool {
        matches!(self.resolution, Resolution::Alias(_))
    }
}
