//! The mesh: immutable tables made from one snapshot of objects. Questions about it are its methods; messages are made elsewhere.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use config::host::Host;
use config::kinds::sidecar::Sidecar;
use config::labels::Labels;
use config::mesh::MeshConfig;
use config::store::{Name, Snapshot, Table};

use crate::authn::{MtlsMode, PeerAuthentications, PortModes};
use crate::endpoint::{self, ServiceEndpoints, Sources};
use crate::environment::Environment;
use crate::placement::{InboundTarget, Placement};
use crate::proxy::{Proxy, ProxyKind};
use crate::scope::{self, Scope};
use crate::service::Service;
use crate::workload::Workload;

#[derive(Debug)]
pub struct Mesh {
    pub env: Arc<Environment>,
    pub config: Arc<MeshConfig>,
    /// In order of precedence.
    services: Vec<Arc<Service>>,
    by_host: BTreeMap<Host, Vec<Arc<Service>>>,
    endpoints: BTreeMap<Name, ServiceEndpoints>,
    workloads: Workloads,
    pods: Table<config::kinds::pod::Pod>,
    sidecars: Table<Sidecar>,
    peer_authentications: PeerAuthentications,
}

impl Mesh {
    pub fn new(snapshot: &Snapshot, env: &Arc<Environment>) -> Self {
        let config = snapshot.mesh.clone();
        let workloads = Workloads::new(snapshot);
        let seen = snapshot.services.values().filter(|object| is_discovered(snapshot, &object.meta.namespace));
        let mut services: Vec<_> = seen.map(|object| Arc::new(Service::of_kubernetes(object, env, &config))).collect();
        services.sort_by(|a, b| a.precedence(b));
        let sources = Sources::new(snapshot, &workloads, env.derive_endpoints);
        let endpoints =
            services.iter().map(|service| (key(service), endpoint::of_service(service, &sources))).collect();
        let mut by_host: BTreeMap<Host, Vec<Arc<Service>>> = BTreeMap::new();
        for service in &services {
            by_host.entry(service.host.clone()).or_default().push(service.clone());
        }
        Self {
            env: env.clone(),
            peer_authentications: PeerAuthentications::new(&snapshot.peer_authentications, &config.root_namespace),
            config,
            services,
            by_host,
            endpoints,
            workloads,
            pods: snapshot.pods.clone(),
            sidecars: snapshot.sidecars.clone(),
        }
    }

    pub fn place(&self, proxy: &Arc<Proxy>) -> Placement {
        Placement::new(self, proxy)
    }

    /// The services of this host, in order of precedence; several namespaces may claim one.
    pub fn services_of(&self, host: &Host) -> &[Arc<Service>] {
        self.by_host.get(host).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn endpoints(&self, service: &Service) -> &ServiceEndpoints {
        static NONE: ServiceEndpoints = ServiceEndpoints::none();
        self.endpoints.get(&key(service)).unwrap_or(&NONE)
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

    pub fn is_own_address_of_headless(&self, address: IpAddr) -> bool {
        self.services.iter().filter(|service| service.is_headless()).any(|service| {
            let endpoints = self.endpoints(service);
            service
                .ports
                .iter()
                .any(|port| endpoints.port(&port.name).iter().any(|endpoint| endpoint.address == address))
        })
    }

    pub fn has_node_local_services(&self) -> bool {
        self.services.iter().any(|service| service.node_local)
    }

    pub(crate) fn workload_of(&self, proxy: &Proxy) -> Option<Arc<Workload>> {
        let (name, namespace) = proxy.id.rsplit_once('.')?;
        self.workloads.named(namespace, name)
    }

    pub(crate) fn scope_of(&self, proxy: &Proxy, labels: &Labels) -> Arc<Scope> {
        let visible: Vec<_> =
            self.services.iter().filter(|service| service.visibility.allows(&proxy.namespace)).cloned().collect();
        let sidecar = match proxy.kind {
            ProxyKind::Sidecar => {
                scope::sidecar_for(&self.sidecars, &self.config.root_namespace, &proxy.namespace, labels)
            }
            ProxyKind::Router => None,
        };
        Arc::new(Scope::new(sidecar, &proxy.namespace, &visible, &self.config))
    }

    /// Ports that services send to the proxy's pod. A proxy without a known pod has none.
    pub(crate) fn inbound_targets(&self, proxy: &Proxy) -> Vec<InboundTarget> {
        let Some((name, namespace)) = proxy.id.rsplit_once('.') else { return Vec::new() };
        let Some(pod) = self.pods.get(&Name { namespace: Arc::from(namespace), name: Arc::from(name) }) else {
            return Vec::new();
        };
        let mut selecting: Vec<_> = self
            .services
            .iter()
            .filter(|service| *service.namespace == *namespace && !service.selector.is_empty())
            .filter(|service| pod.meta.labels.contains_all(&service.selector))
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
}

/// `discoverySelectors`: namespaces that none of them chooses do not exist for proxies, the root namespace included.
fn is_discovered(snapshot: &Snapshot, namespace: &Arc<str>) -> bool {
    let selectors = &snapshot.mesh.discovery_selectors;
    let none = Labels::default();
    let name = Name { namespace: Arc::from(""), name: namespace.clone() };
    let labels = snapshot.namespaces.get(&name).map_or(&none, |object| &object.meta.labels);
    selectors.is_empty() || selectors.iter().any(|selector| selector.matches(labels))
}

fn key(service: &Service) -> Name {
    Name { namespace: service.namespace.clone(), name: Arc::from(&*service.host.to_string()) }
}

/// Workloads by name and by address.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    by_name: BTreeMap<Name, Arc<Workload>>,
    by_address: BTreeMap<(Arc<str>, IpAddr), Arc<Workload>>,
}

impl Workloads {
    fn new(snapshot: &Snapshot) -> Self {
        let mut found = Self::default();
        for (name, pod) in &snapshot.pods {
            let node = Name { namespace: Arc::from(""), name: Arc::from(pod.spec.node_name.as_str()) };
            let labels = snapshot.nodes.get(&node).map(|node| &node.meta.labels);
            let workload = Arc::new(Workload::of_pod(pod, labels));
            // Pods on the host network share the node's address: it says nothing about who answers there.
            if !pod.spec.host_network {
                for address in &pod.spec.ips {
                    found.by_address.insert((name.namespace.clone(), *address), workload.clone());
                }
            }
            found.by_name.insert(name.clone(), workload);
        }
        found
    }

    pub(crate) fn named(&self, namespace: &str, name: &str) -> Option<Arc<Workload>> {
        self.by_name.get(&Name { namespace: Arc::from(namespace), name: Arc::from(name) }).cloned()
    }

    pub(crate) fn at(&self, namespace: &str, address: IpAddr) -> Option<Arc<Workload>> {
        self.by_address.get(&(Arc::from(namespace), address)).cloned()
    }
}
