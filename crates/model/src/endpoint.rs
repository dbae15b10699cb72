//! Endpoints of services: EndpointSlices joined with the pods behind them. Translation chooses which of them a client may use.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use config::intern::intern_str;
use config::kinds::endpoint_slice::{self as kube, AddressType};
use config::kinds::pod::{ContainerPort, Pod};
use config::kinds::transport::Transport;
use config::labels::Labels;
use config::meta::Object;
use config::store::{Name, Table, dense_table};
use imbl::OrdMap;

use crate::mesh::Mesh;
use crate::protocol::Protocol;
use crate::service::{Port, Resolution, Service, TargetPort};
use crate::service_entry_endpoint;
use crate::workload::{TlsMode, Workload, WorkloadIdentity, Workloads};

#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    pub address: EndpointAddress,
    pub port: u16,
    /// The number of the ServiceEntry's port that declares it. `None`: a Service does.
    pub entry_port: Option<u16>,
    pub health: Health,
    pub origin: Origin,
    /// Its load balancing weight within the port; 1 by default.
    pub weight: u32,
    /// Empty: in no configured network.
    pub network: Arc<str>,
    pub workload: Arc<Workload>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointAddress {
    Ip(IpAddr),
    /// A DNS name.
    Name(Arc<str>),
    /// The path of a Unix domain socket.
    Pipe(Arc<str>),
    /// No address: reached through a gateway of its network.
    Unknown,
}

impl EndpointAddress {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Some(Self::Pipe(Arc::from(path)));
        }
        if text.is_empty() {
            return None;
        }
        Some(text.parse().map_or_else(|_| Self::Name(Arc::from(text)), Self::Ip))
    }

    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Name(_) | Self::Pipe(_) | Self::Unknown => None,
        }
    }
}

/// The kind of object that an endpoint comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A WorkloadEntry or a ServiceEntry: nothing checks its readiness.
    Entry,
    Kubernetes,
}

impl Endpoint {
    fn of_kubernetes(address: IpAddr, port: u16, health: Health, workload: &Arc<Workload>, mesh: &Mesh) -> Self {
        let network = mesh.networks.of(Some(address), &workload.labels);
        let address = EndpointAddress::Ip(address);
        let (origin, workload) = (Origin::Kubernetes, workload.clone());
        Self { address, port, entry_port: None, health, origin, weight: 1, network, workload }
    }

    /// Labels of its workload with those of its locality, network, node and cluster.
    pub fn topology_labels(&self, cluster: &str) -> Labels {
        self.workload.topology_labels(cluster, &self.network)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Ready,
    NotReady,
    Terminating,
    /// It terminates, and still serves the clients that it has.
    Draining,
}

/// All endpoints of one service, whatever their health.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceEndpoints {
    /// Sorted by the name of the service port.
    by_port: Vec<(Arc<str>, Vec<Endpoint>)>,
    /// Sorted, without duplicates.
    pub identities: Vec<WorkloadIdentity>,
    /// From EndpointSlices: addresses of workloads that the selector of the service does not choose. Such a workload serves these ports if no
    /// Service chooses it.
    pub(crate) addressed: Vec<AddressedPort>,
}

/// A port of a service at an address that only an EndpointSlice names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressedPort {
    pub(crate) address: IpAddr,
    /// The name of the service port.
    pub(crate) name: Arc<str>,
    pub(crate) number: u16,
}

impl ServiceEndpoints {
    pub(crate) const fn none() -> Self {
        Self { by_port: Vec::new(), identities: Vec::new(), addressed: Vec::new() }
    }

    pub fn port(&self, name: &str) -> &[Endpoint] {
        self.position(name).map(|at| self.by_port[at].1.as_slice()).unwrap_or_default()
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.by_port.iter().flat_map(|(_, endpoints)| endpoints).filter_map(|endpoint| endpoint.address.ip())
    }

    /// By port: whether no endpoint lacks mutual TLS.
    pub(crate) fn mtls(&self) -> BTreeMap<&str, bool> {
        let all = |endpoints: &[Endpoint]| endpoints.iter().all(|it| it.workload.tls_mode != TlsMode::Disabled);
        self.by_port.iter().map(|(port, endpoints)| (&**port, all(endpoints))).collect()
    }

    pub(crate) fn add(&mut self, port: &str, endpoint: Endpoint) {
        if let Some(identity) = &endpoint.workload.identity
            && let Err(at) = self.identities.binary_search(identity)
        {
            self.identities.insert(at, identity.clone());
        }
        match self.position(port) {
            Ok(at) => self.by_port[at].1.push(endpoint),
            Err(at) => self.by_port.insert(at, (intern_str(port), vec![endpoint])),
        }
    }

    /// The position of a port, or where to insert it.
    fn position(&self, port: &str) -> Result<usize, usize> {
        self.by_port.binary_search_by(|(name, _)| (**name).cmp(port))
    }

    /// A LOGICAL_DNS cluster holds one endpoint. As in istiod, ports of several ServiceEntries are one port by their number, whatever
    /// their names.
    pub(crate) fn has_room(&self, service: &Service, port: &Port) -> bool {
        let mut all = self.by_port.iter().flat_map(|(_, endpoints)| endpoints);
        service.resolution != Resolution::DnsRoundRobin || all.all(|endpoint| endpoint.entry_port != Some(port.number))
    }

    /// Releases spare capacity.
    fn shrink(mut self) -> Self {
        self.by_port.iter_mut().for_each(|(_, endpoints)| endpoints.shrink_to_fit());
        self.by_port.shrink_to_fit();
        self.identities.shrink_to_fit();
        self.addressed.shrink_to_fit();
        self
    }
}

/// The endpoints of all services of one namespace and host: a Kubernetes Service, and every ServiceEntry that declares the host.
pub(crate) fn of_host(key: &Name, mesh: &Mesh) -> ServiceEndpoints {
    let mut found = ServiceEndpoints::default();
    if let Some(service) = mesh.services.get(key) {
        add_kubernetes(&mut found, service, mesh);
        service_entry_endpoint::add_workload_entries(&mut found, service, mesh);
    }
    for entry in mesh.entry_services.of(key) {
        service_entry_endpoint::add_entry(&mut found, entry, mesh);
    }
    found.shrink()
}

/// From EndpointSlices, else from an Endpoints object, else, with `--derive-endpoints`, from the pods.
fn add_kubernetes(found: &mut ServiceEndpoints, service: &Service, mesh: &Mesh) {
    let name = Name { namespace: service.namespace.clone(), name: service.name.clone() };
    let slices = mesh.slices.of(&name);
    if !slices.is_empty() {
        slices.iter().for_each(|slice| add_slice(found, service, slice, mesh));
    } else if let Some(object) = mesh.objects.endpoints.get(&name) {
        add_slice(found, service, object, mesh);
    } else if mesh.env.derive_endpoints && !service.hides_slices {
        add_selected_pods(found, service, mesh);
    }
}

/// Pods that a ServiceEntry selects.
pub(crate) fn add_pods_of_entry(found: &mut ServiceEndpoints, service: &Service, mesh: &Mesh) {
    for pod in selected_pods(service, mesh).filter(|pod| serves_entries(pod)) {
        let Some(workload) = mesh.workloads.named(&pod.meta.namespace, &pod.meta.name) else { continue };
        let workload = service_entry_endpoint::workload_of_entry(&workload, &pod.meta.name);
        for port in &service.ports {
            let Some(number) = entry_port(port, &pod.spec).filter(|_| found.has_room(service, port)) else { continue };
            for &address in pod.spec.ips.first().iter().copied() {
                let endpoint = Endpoint::of_kubernetes(address, number, ready_health(&workload), &workload, mesh);
                found.add(&port.name, Endpoint { entry_port: Some(port.number), ..endpoint });
            }
        }
    }
}

type Slice = Arc<Object<kube::EndpointSlice>>;

/// EndpointSlices by their service, in order of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slices(OrdMap<Name, Arc<Vec<Slice>>>);

impl Slices {
    pub(crate) fn new(objects: &Table<kube::EndpointSlice>) -> Self {
        let mut slices = Self::default();
        objects.values().for_each(|slice| slices.put(None, Some(slice)));
        Self(dense_table(slices.0))
    }

    fn key(slice: &Slice) -> Name {
        Name { namespace: slice.meta.namespace.clone(), name: slice.spec.service.clone() }
    }

    fn of(&self, service: &Name) -> &[Slice] {
        self.0.get(service).map(|slices| slices.as_slice()).unwrap_or_default()
    }

    pub(crate) fn put(&mut self, old: Option<&Slice>, new: Option<&Slice>) {
        if let Some(old) = old {
            let name = Self::key(old);
            let mut remaining = self.of(&name).to_vec();
            remaining.retain(|slice| slice.meta.name != old.meta.name);
            if remaining.is_empty() {
                drop(self.0.remove(&name));
            } else {
                drop(self.0.insert(name, Arc::new(remaining)));
            }
        }
        if let Some(new) = new {
            let name = Self::key(new);
            let mut with = self.of(&name).to_vec();
            with.push(new.clone());
            with.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
            self.0.insert(name, Arc::new(with));
        }
    }

    /// Some slice of the service refers to this pod, or to an address of it without a target reference.
    pub(crate) fn refers_to(&self, service: &Service, pod: &Object<Pod>) -> bool {
        let slices = self.of(&Name { namespace: service.namespace.clone(), name: service.name.clone() });
        slices.iter().flat_map(|slice| &slice.spec.endpoints).any(|endpoint| match &endpoint.target {
            Some(target) => *target.name == *pod.meta.name,
            None => endpoint.addresses.iter().any(|address| pod.spec.ips.contains(address)),
        })
    }
}

/// The label of slices that are imported from other clusters: they belong to no Service of this one.
const IMPORTED_SERVICE: &str = "multicluster.kubernetes.io/service-name";

fn add_slice(found: &mut ServiceEndpoints, service: &Service, slice: &Object<kube::EndpointSlice>, mesh: &Mesh) {
    let imported = slice.meta.labels.get(IMPORTED_SERVICE).is_some();
    if slice.spec.address_type == AddressType::Fqdn || imported {
        return;
    }
    for endpoint in &slice.spec.endpoints {
        let Some(workload) = workload_behind(endpoint, slice, &mesh.workloads) else { continue };
        let health = health(endpoint, service, &workload);
        let selected = service.selects(&workload.labels);
        for &address in &endpoint.addresses {
            for port in &slice.spec.ports {
                let Some(number) = port.port else { continue };
                if !selected {
                    found.addressed.push(AddressedPort { address, name: intern_str(&port.name), number });
                }
                // As in istiod, even where a route refers to the service: pinned by parity case services-exported-to-nobody.
                if service.hides_slices {
                    continue;
                }
                let known = found
                    .port(&port.name)
                    .iter()
                    .any(|other| other.address == EndpointAddress::Ip(address) && other.port == number);
                if !known {
                    found.add(&port.name, Endpoint::of_kubernetes(address, number, health, &workload, mesh));
                }
            }
        }
    }
}

/// `None`: the endpoint refers to a pod that does not exist, so that it must not get traffic.
fn workload_behind(
    endpoint: &kube::SliceEndpoint,
    slice: &Object<kube::EndpointSlice>,
    workloads: &Workloads,
) -> Option<Arc<Workload>> {
    let unknown = || Some(Arc::new(Workload::default()));
    match &endpoint.target {
        Some(target) if target.is_pod => {
            let namespace = if target.namespace.is_empty() { &slice.meta.namespace } else { &target.namespace };
            workloads.named(namespace, &target.name)
        }
        Some(_) => unknown(),
        // Independent of the order in which pod and slice appear: the address decides.
        None => {
            endpoint.addresses.iter().find_map(|address| workloads.at(&slice.meta.namespace, *address)).or_else(unknown)
        }
    }
}

/// Of an endpoint that may get traffic, wherever it comes from: its workload may drain.
pub(crate) fn ready_health(workload: &Workload) -> Health {
    if workload.is_draining() { Health::Draining } else { Health::Ready }
}

fn health(endpoint: &kube::SliceEndpoint, service: &Service, workload: &Workload) -> Health {
    match endpoint {
        kube::SliceEndpoint { ready: true, .. } => ready_health(workload),
        kube::SliceEndpoint { terminating: true, serving: true, .. } if service.keeps_sessions() => Health::Draining,
        kube::SliceEndpoint { terminating: true, .. } => Health::Terminating,
        _ => Health::NotReady,
    }
}

/// The endpoints that the labels of the pods imply.
fn add_selected_pods(found: &mut ServiceEndpoints, service: &Service, mesh: &Mesh) {
    for pod in selected_pods(service, mesh) {
        let Some(workload) = mesh.workloads.named(&pod.meta.namespace, &pod.meta.name) else { continue };
        for port in &service.ports {
            let Some(number) = target_port(port, &pod.spec) else { continue };
            for &address in pod.spec.ips.first().iter().copied() {
                found.add(&port.name, Endpoint::of_kubernetes(address, number, pod_health(pod), &workload, mesh));
            }
        }
    }
}

fn selected_pods<'a>(service: &'a Service, mesh: &'a Mesh) -> impl Iterator<Item = &'a Arc<Object<Pod>>> {
    let first = Name { namespace: service.namespace.clone(), name: Arc::from("") };
    let own = mesh.objects.pods.range(first..).take_while(|(key, _)| key.namespace == service.namespace);
    own.map(|(_, pod)| pod).filter(|pod| service.selects(&pod.meta.labels))
}

/// A ServiceEntry selects ready pods only, as endpoints and for the inbound ports of their proxies. As in istiod.
pub(crate) fn serves_entries(pod: &Object<Pod>) -> bool {
    pod_health(pod) == Health::Ready
}

fn pod_health(pod: &Object<Pod>) -> Health {
    if pod.meta.deleting || pod.spec.outcome.is_some() {
        Health::Terminating
    } else if pod.spec.ready {
        Health::Ready
    } else {
        Health::NotReady
    }
}

/// The number of a ServiceEntry's port in this pod: a TCP port of the pod with its name wins over its number and target port. As in
/// istiod.
pub(crate) fn entry_port(port: &Port, pod: &Pod) -> Option<u16> {
    let mut named = pod.ports.iter().filter(|own| own.protocol == Transport::Tcp && !own.name.is_empty());
    named.find(|own| *own.name == *port.name).map_or_else(|| target_port(port, pod), |own| Some(own.port))
}

/// The number of a service port in this pod; `None`: the pod has no port of that name and transport.
pub(crate) fn target_port(port: &Port, pod: &Pod) -> Option<u16> {
    let datagrams = |transport: Transport| transport == Transport::Udp;
    let alike = |own: &&ContainerPort| datagrams(own.protocol) == (port.protocol == Protocol::Udp);
    match &port.target {
        TargetPort::Same => Some(port.number),
        TargetPort::Number(number) => Some(*number),
        TargetPort::Name(name) => pod.ports.iter().filter(alike).find(|own| *own.name == **name).map(|own| own.port),
    }
}
