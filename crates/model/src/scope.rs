//! What a sidecar imports: the Sidecar object that holds for it, read into listeners and the services behind them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::host::Host;
use config::kind::Kind;
use config::kinds::port;
use config::kinds::sidecar::{self as kube, CaptureMode, OutboundTrafficMode, Sidecar};
use config::labels::Labels;
use config::mesh::{self, MeshConfig};
use config::meta::Object;
use config::note::ObjectId;
use config::store::{Name, Table};

use crate::delta::ServiceChange;
use crate::protocol::Protocol;
use crate::proxy::{Proxy, ProxyKind};
use crate::service::{Resolution, Service};

#[derive(Debug, Clone, PartialEq)]
pub struct Scope {
    /// `None`: no Sidecar holds; everything visible is imported.
    pub sidecar: Option<Arc<Object<Sidecar>>>,
    pub egress: Vec<EgressListener>,
    /// Empty: inbound listeners follow the services that select the workload.
    pub ingress: Vec<IngressListener>,
    pub outbound: OutboundPolicy,
    /// All that some egress listener imports, each once, with the ports that were imported.
    pub services: Vec<Arc<Service>>,
    by_host: BTreeMap<Host, usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EgressListener {
    /// `None`: the catch-all, a listener for each port of each service.
    pub port: Option<ListenPort>,
    /// `None`: the services' own addresses, or loopback where ports are really bound.
    pub bind: Option<String>,
    pub capture: Capture,
    pub services: Vec<Arc<Service>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct IngressListener {
    pub port: ListenPort,
    /// `None`: the proxy's own address.
    pub bind: Option<String>,
    pub capture: Capture,
    /// As written: `127.0.0.1:8080`, `0.0.0.0:8080`, `unix://...`; `None`: the address that the client chose.
    pub default_endpoint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenPort {
    pub number: u16,
    pub protocol: Protocol,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    Default,
    /// A real port, whatever the proxy's interception mode.
    None,
}

/// What happens to traffic for hosts that nobody declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutboundPolicy {
    AllowAny,
    RegistryOnly,
}

/// What decides a scope: proxies with equal keys import the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeKey {
    pub namespace: Arc<str>,
    /// `None`: no Sidecar holds.
    pub sidecar: Option<Name>,
}

/// All services in order of precedence, and the scopes that were asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scopes {
    all: Arc<Vec<Arc<Service>>>,
    /// Some service keeps traffic on the node.
    pub(crate) node_local: bool,
    made: Arc<Mutex<BTreeMap<ScopeKey, Arc<Scope>>>>,
}

impl Scopes {
    pub(crate) fn new<'a>(services: impl Iterator<Item = &'a Arc<Service>>) -> Self {
        let mut all: Vec<_> = services.cloned().collect();
        all.sort_by(|a, b| a.precedence(b));
        Self { node_local: all.iter().any(|service| service.node_local), all: Arc::new(all), made: Arc::default() }
    }

    /// Keeps the scopes that none of the changes concerns.
    pub(crate) fn next<'a>(
        &self,
        services: impl Iterator<Item = &'a Arc<Service>>,
        changes: &BTreeMap<Name, ServiceChange>,
    ) -> Self {
        let sides = || changes.values().flat_map(|change| [&change.old, &change.new]).flatten();
        let mut made = self.lock().clone();
        made.retain(|key, scope| !sides().any(|service| scope.concerns(key, service)));
        Self { made: Arc::new(Mutex::new(made)), ..Self::new(services) }
    }

    pub(crate) fn all(&self) -> &[Arc<Service>] {
        &self.all
    }

    pub(crate) fn of(
        &self,
        proxy: &Proxy,
        labels: &Labels,
        sidecars: &Table<Sidecar>,
        config: &MeshConfig,
    ) -> (ScopeKey, Arc<Scope>) {
        let sidecar = match proxy.kind {
            ProxyKind::Sidecar => sidecar_for(sidecars, &config.root_namespace, &proxy.namespace, labels),
            ProxyKind::Router => None,
        };
        let key = ScopeKey {
            namespace: proxy.namespace.clone(),
            sidecar: sidecar.map(|object| Name::new(&object.meta.namespace, &object.meta.name)),
        };
        let made = self.lock().get(&key).cloned();
        let scope = made.unwrap_or_else(|| {
            let seen = self.all.iter().filter(|service| service.visibility.allows(&proxy.namespace));
            let scope = Arc::new(Scope::new(sidecar, &proxy.namespace, &seen.cloned().collect::<Vec<_>>(), config));
            self.lock().insert(key.clone(), scope.clone());
            scope
        });
        (key, scope)
    }

    // Entries are inserted whole; a panic elsewhere cannot leave half of one.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ScopeKey, Arc<Scope>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Sidecar that holds: selected in the namespace, then unselected there, then unselected in the root namespace; oldest first.
fn sidecar_for<'a>(
    sidecars: &'a Table<Sidecar>,
    root: &str,
    namespace: &str,
    labels: &Labels,
) -> Option<&'a Arc<Object<Sidecar>>> {
    let oldest = |namespace: &str, keep: &dyn Fn(&Object<Sidecar>) -> bool| {
        let here = sidecars.range(Name::new(namespace, "")..).take_while(|(key, _)| *key.namespace == *namespace);
        here.map(|(_, object)| object).filter(|object| keep(object)).min_by(|a, b| a.meta.age_order(&b.meta))
    };
    oldest(namespace, &|object| selects(object).is_some_and(|wanted| labels.contains_all(wanted)))
        .or_else(|| oldest(namespace, &|object| selects(object).is_none()))
        .or_else(|| oldest(root, &|object| selects(object).is_none()))
}

/// `None`: it speaks for every workload.
fn selects(object: &Object<Sidecar>) -> Option<&Labels> {
    object.spec.workload_selector.as_ref().map(|selector| &selector.labels).filter(|labels| !labels.is_empty())
}

impl Scope {
    /// `visible`: what may be seen from this namespace at all, in order of precedence.
    pub(crate) fn new(
        sidecar: Option<&Arc<Object<Sidecar>>>,
        namespace: &str,
        visible: &[Arc<Service>],
        config: &MeshConfig,
    ) -> Self {
        let Some(object) = sidecar else { return Self::of_everything(visible, config) };
        let spec = &object.spec;
        let mut egress: Vec<_> =
            spec.egress.iter().map(|listener| egress_listener(listener, namespace, visible)).collect();
        if egress.is_empty() {
            egress.push(catch_all(visible.to_vec()));
        }
        let mode = spec.outbound_traffic_policy.as_ref().map(|policy| policy.mode);
        let services = imported(&egress);
        Self {
            sidecar: Some(object.clone()),
            by_host: by_host(&services),
            services,
            egress,
            ingress: spec.ingress.iter().filter_map(ingress_listener).collect(),
            outbound: mode.map_or_else(|| mesh_policy(config), policy),
        }
    }

    /// The imported service of this host; of several namespaces' the one that stands first.
    pub fn service(&self, host: &Host) -> Option<&Arc<Service>> {
        self.by_host.get(host).map(|&index| &self.services[index])
    }

    /// A change of this service may change what is imported.
    fn concerns(&self, key: &ScopeKey, service: &Service) -> bool {
        let egress = self.sidecar.as_ref().map(|object| object.spec.egress.as_slice()).unwrap_or_default();
        let imported = egress.is_empty()
            || egress.iter().any(|listener| {
                let wanted: Vec<_> = listener.hosts.iter().map(|text| HostPattern::new(text, &key.namespace)).collect();
                imports(&wanted, service)
            });
        imported && service.visibility.allows(&key.namespace)
    }

    /// The object that decided this scope.
    pub fn sidecar_id(&self) -> Option<ObjectId> {
        let meta = &self.sidecar.as_ref()?.meta;
        Some(ObjectId { kind: Kind::Sidecar, namespace: meta.namespace.clone(), name: meta.name.clone() })
    }

    fn of_everything(visible: &[Arc<Service>], config: &MeshConfig) -> Self {
        Self {
            sidecar: None,
            egress: vec![catch_all(visible.to_vec())],
            ingress: Vec::new(),
            outbound: mesh_policy(config),
            by_host: by_host(visible),
            services: visible.to_vec(),
        }
    }
}

fn by_host(services: &[Arc<Service>]) -> BTreeMap<Host, usize> {
    services.iter().enumerate().rev().map(|(index, service)| (service.host.clone(), index)).collect()
}

fn catch_all(services: Vec<Arc<Service>>) -> EgressListener {
    EgressListener { port: None, bind: None, capture: Capture::Default, services }
}

fn mesh_policy(config: &MeshConfig) -> OutboundPolicy {
    match config.outbound_traffic_policy.mode {
        mesh::OutboundTrafficMode::RegistryOnly => OutboundPolicy::RegistryOnly,
        mesh::OutboundTrafficMode::AllowAny | mesh::OutboundTrafficMode::AllowAnyDynamicDns => OutboundPolicy::AllowAny,
    }
}

fn policy(mode: OutboundTrafficMode) -> OutboundPolicy {
    match mode {
        OutboundTrafficMode::RegistryOnly => OutboundPolicy::RegistryOnly,
        OutboundTrafficMode::AllowAny => OutboundPolicy::AllowAny,
    }
}

fn egress_listener(listener: &kube::EgressListener, namespace: &str, visible: &[Arc<Service>]) -> EgressListener {
    let port = listener.port.as_ref().and_then(listen_port);
    let wanted: Vec<HostPattern> = listener.hosts.iter().map(|text| HostPattern::new(text, namespace)).collect();
    // A socket, or a port that speaks the proxy protocol, serves services of any port.
    let only =
        port.as_ref().filter(|port| port.protocol != Protocol::HttpProxy && !listener.bind.starts_with("unix://"));
    let services = visible.iter().filter(|service| imports(&wanted, service)).filter_map(|service| match only {
        None => Some(service.clone()),
        Some(port) => trimmed(service, port.number),
    });
    EgressListener {
        services: services.collect(),
        port,
        bind: Some(listener.bind.clone()).filter(|bind| !bind.is_empty()),
        capture: capture(listener.capture_mode),
    }
}

fn ingress_listener(listener: &kube::IngressListener) -> Option<IngressListener> {
    Some(IngressListener {
        port: listen_port(listener.port.as_ref()?)?,
        bind: Some(listener.bind.clone()).filter(|bind| !bind.is_empty()),
        capture: capture(listener.capture_mode),
        default_endpoint: Some(listener.default_endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
    })
}

fn listen_port(port: &port::Port) -> Option<ListenPort> {
    Some(ListenPort {
        number: u16::try_from(port.number).ok()?,
        protocol: Protocol::named(&port.protocol).unwrap_or(Protocol::Auto),
        name: port.name.clone(),
    })
}

fn capture(mode: CaptureMode) -> Capture {
    if mode == CaptureMode::None { Capture::None } else { Capture::Default }
}

/// The service with that port alone; `None`: it has no such port.
fn trimmed(service: &Arc<Service>, port: u16) -> Option<Arc<Service>> {
    let kept = service.port(port)?;
    if service.ports.len() == 1 {
        return Some(service.clone());
    }
    Some(Arc::new(Service { ports: vec![kept.clone()], ..Service::clone(service) }))
}

/// Each service once, in the order of its first import, with the union of the ports that listeners import.
fn imported(egress: &[EgressListener]) -> Vec<Arc<Service>> {
    let mut order: Vec<Arc<Service>> = Vec::new();
    let mut at: BTreeMap<(Host, Arc<str>), usize> = BTreeMap::new();
    for service in egress.iter().flat_map(|listener| &listener.services) {
        match at.get(&(service.host.clone(), service.namespace.clone())) {
            None => {
                at.insert((service.host.clone(), service.namespace.clone()), order.len());
                order.push(service.clone());
            }
            Some(&index) => {
                let extra: Vec<_> =
                    service.ports.iter().filter(|port| order[index].port(port.number).is_none()).cloned().collect();
                if !extra.is_empty() {
                    Arc::make_mut(&mut order[index]).ports.extend(extra);
                }
            }
        }
    }
    order
}

/// `[~]namespace/host` of an egress listener.
struct HostPattern {
    namespace: NamespacePattern,
    host: Host,
    excluded: bool,
}

enum NamespacePattern {
    Any,
    One(String),
}

impl HostPattern {
    fn new(text: &str, own: &str) -> Self {
        let (namespace, host) = text.split_once('/').unwrap_or(("*", text));
        let (excluded, namespace) = match namespace.strip_prefix('~') {
            Some("") => (true, "*"),
            Some(rest) => (true, rest),
            None => (false, namespace),
        };
        let namespace = match namespace {
            "*" => NamespacePattern::Any,
            "." => NamespacePattern::One(own.to_owned()),
            other => NamespacePattern::One(other.to_owned()),
        };
        Self { namespace, host: Host::new(host), excluded }
    }

    fn matches(&self, service: &Service) -> bool {
        let there = match &self.namespace {
            NamespacePattern::Any => true,
            NamespacePattern::One(name) => **name == *service.namespace,
        };
        there && self.host.matches(&service.host)
    }
}

fn imports(wanted: &[HostPattern], service: &Service) -> bool {
    // Exclusions beat inclusions, wherever they stand.
    !wanted.iter().any(|pattern| pattern.excluded && pattern.matches(service))
        && wanted.iter().any(|pattern| !pattern.excluded && pattern.matches(service))
}

impl Service {
    /// Another name for a service has no listeners and clusters of its own.
    pub fn is_alias(&self) -> bool {
        matches!(self.resolution, Resolution::Alias(_))
    }
}
