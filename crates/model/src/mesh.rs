//! The mesh: immutable tables made from one snapshot of objects. Questions about it are its methods; messages are made elsewhere.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::host::Host;
use config::labels::Labels;
use config::mesh::MeshConfig;
use config::store::{Name, Snapshot};
use imbl::OrdMap;

use crate::authn::{MtlsMode, PeerAuthentications, PortModes};
use crate::delta::Delta;
use crate::endpoint::{self, ServiceEndpoints, Slices};
use crate::environment::Environment;
use crate::placement::{InboundTarget, Placement};
use crate::proxy::Proxy;
use crate::scope::{Scope, ScopeKey, Scopes};
use crate::service::Service;
use crate::workload::{Workload, Workloads};

/// Cheap to clone: a later mesh shares all that did not change.
#[derive(Debug, Clone)]
pub struct Mesh {
    pub env: Arc<Environment>,
    pub config: Arc<MeshConfig>,
    pub(crate) objects: Snapshot,
    /// By namespace and host.
    pub(crate) services: OrdMap<Name, Arc<Service>>,
    pub(crate) endpoints: OrdMap<Name, Arc<ServiceEndpoints>>,
    pub(crate) slices: Slices,
    pub(crate) workloads: Workloads,
    pub(crate) scopes: Scopes,
    /// Addresses behind headless services.
    pub(crate) headless: Arc<BTreeSet<IpAddr>>,
    pub(crate) peer_authentications: Arc<PeerAuthentications>,
}

impl Mesh {
    /// From scratch: what `next` must always agree with.
    pub fn new(snapshot: &Snapshot, env: &Arc<Environment>) -> Self {
        let config = snapshot.mesh.clone();
        let mut mesh = Self {
            env: env.clone(),
            peer_authentications: Arc::new(PeerAuthentications::new(
                &snapshot.peer_authentications,
                &config.root_namespace,
            )),
            objects: snapshot.clone(),
            services: OrdMap::new(),
            endpoints: OrdMap::new(),
            slices: Slices::new(&snapshot.endpoint_slices),
            workloads: Workloads::new(snapshot),
            scopes: Scopes::default(),
            headless: Arc::default(),
            config,
        };
        for object in snapshot.services.values() {
            if let Some(service) = mesh.service_of(object) {
                mesh.services.insert(key(&service), Arc::new(service));
            }
        }
        mesh.endpoints =
            mesh.services.iter().map(|(key, service)| (key.clone(), mesh.made_endpoints(service))).collect();
        mesh.scopes = Scopes::new(mesh.services.values());
        mesh.headless = Arc::new(mesh.headless_addresses());
        mesh
    }

    /// The mesh after a change of objects, and what that touched.
    pub fn next(&self, snapshot: &Snapshot) -> (Self, Delta) {
        Delta::apply(self, snapshot)
    }

    pub fn place(&self, proxy: &Arc<Proxy>) -> Placement {
        Placement::new(self, proxy)
    }

    /// The service of this host that stands first; several namespaces may claim one.
    pub fn service(&self, host: &Host) -> Option<&Arc<Service>> {
        self.scopes.all().iter().find(|service| service.host == *host)
    }

    pub fn endpoints(&self, service: &Service) -> &ServiceEndpoints {
        static NONE: ServiceEndpoints = ServiceEndpoints::none();
        self.endpoints.get(&key(service)).map_or(&NONE, |found| found)
    }

    /// What a client may expect of the servers there.
    pub fn namespace_mtls(&self, namespace: &str) -> MtlsMode {
        self.peer_authentications.namespace_mode(namespace)
    }

    pub fn port_modes(&self, namespace: &str, labels: &Labels) -> PortModes {
        self.peer_authentications.workload_modes(namespace, labels)
    }

    /// The port of virtualOutbound.
    pub fn outbound_port(&self) -> u16 {
        u16::try_from(self.config.proxy_listen_port).unwrap_or(15001)
    }

    /// The port of virtualInbound.
    pub fn inbound_port(&self) -> u16 {
        u16::try_from(self.config.proxy_inbound_listen_port).unwrap_or(15006)
    }

    /// SPIFFE names that a client of the service accepts, sorted.
    pub fn identities(&self, service: &Service) -> Vec<String> {
        let endpoints =
            self.endpoints(service).identities.iter().map(|identity| identity.spiffe(&self.config.trust_domain));
        let mut names: Vec<_> = endpoints.chain(service.declared_identities.iter().cloned()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Where a listener for each endpoint would be one for the proxy itself.
    pub(crate) fn is_headless_endpoint(&self, address: IpAddr) -> bool {
        self.headless.contains(&address)
    }

    pub(crate) fn has_node_local_services(&self) -> bool {
        self.scopes.node_local
    }

    pub(crate) fn headless_addresses(&self) -> BTreeSet<IpAddr> {
        let headless = self.scopes.all().iter().filter(|service| service.is_headless());
        headless.flat_map(|service| self.endpoints(service).addresses()).collect()
    }

    pub(crate) fn workload_of(&self, proxy: &Proxy) -> Option<Arc<Workload>> {
        let (name, namespace) = proxy.id.rsplit_once('.')?;
        self.workloads.named(namespace, name)
    }

    pub(crate) fn scope_of(&self, proxy: &Proxy, labels: &Labels) -> (ScopeKey, Arc<Scope>) {
        self.scopes.of(proxy, labels, &self.objects.sidecars, &self.config)
    }

    /// The scope of this place is still the one that it holds.
    pub(crate) fn keeps_scope(&self, placement: &Placement) -> bool {
        Arc::ptr_eq(&self.scope_of(&placement.proxy, &placement.labels).1, &placement.scope)
    }

    /// Ports that services send to the proxy's pod. A proxy without a known pod has none.
    pub(crate) fn inbound_targets(&self, proxy: &Proxy) -> Vec<InboundTarget> {
        let Some((name, namespace)) = proxy.id.rsplit_once('.') else { return Vec::new() };
        let Some(pod) = self.objects.pods.get(&Name::new(namespace, name)) else { return Vec::new() };
        let mut selecting: Vec<_> = self
            .services_in(namespace)
            .filter(|service| !service.selector.is_empty() && pod.meta.labels.contains_all(&service.selector))
            .collect();
        selecting.sort_by(|a, b| (a.created, &a.host).cmp(&(b.created, &b.host)));
        let mut targets = Vec::new();
        for service in selecting {
            for port in &service.ports {
                let Some(number) = endpoint::target_port(&port.target, &pod.spec) else { continue };
                targets.push(InboundTarget { service: service.clone(), port: port.clone(), number });
            }
        }
        targets
    }

    pub(crate) fn services_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Service>> {
        let namespace: Arc<str> = Arc::from(namespace);
        let first = Name { namespace: namespace.clone(), name: Arc::from("") };
        self.services.range(first..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, service)| service)
    }

    /// `None`: its namespace is not discovered.
    pub(crate) fn service_of(&self, object: &config::meta::Object<config::kinds::service::Service>) -> Option<Service> {
        let seen = is_discovered(&self.objects, &object.meta.namespace);
        seen.then(|| Service::of_kubernetes(object, &self.env, &self.config))
    }

    pub(crate) fn made_endpoints(&self, service: &Service) -> Arc<ServiceEndpoints> {
        Arc::new(endpoint::of_service(service, self))
    }
}

/// `discoverySelectors`: namespaces that none of them chooses do not exist for proxies, the root namespace included.
fn is_discovered(snapshot: &Snapshot, namespace: &Arc<str>) -> bool {
    let selectors = &snapshot.mesh.discovery_selectors;
    let none = Labels::default();
    let name = Name { namespace: Arc::from(""), name: namespace.clone() };
    let labels = snapshot.namespaces.get(&name).map_or(&none, |object| &object.meta.labels);
    selectors.is_empty() || selectors.iter().any(|selector| selector.matches(labels))
}

pub(crate) fn key(service: &Service) -> Name {
    Name { namespace: service.namespace.clone(), name: Arc::from(service.host.as_str()) }
}
