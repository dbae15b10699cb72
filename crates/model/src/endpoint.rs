//! Endpoints of services: slices joined with the pods behind them. What a client may use of them is translation's choice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use config::kinds::endpoint_slice::{self as kube, AddressType};
use config::kinds::pod::Pod;
use config::meta::Object;
use config::store::{Name, Snapshot};

use crate::mesh::Workloads;
use crate::service::{Registry, Service, TargetPort};
use crate::workload::{Identity, Workload};

#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
    pub health: Health,
    pub workload: Arc<Workload>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Ready,
    NotReady,
    Terminating,
}

/// All endpoints of one service, whatever their health.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceEndpoints {
    /// By the name of the service port.
    by_port: BTreeMap<String, Vec<Endpoint>>,
    pub identities: BTreeSet<Identity>,
}

impl ServiceEndpoints {
    pub(crate) const fn none() -> Self {
        Self { by_port: BTreeMap::new(), identities: BTreeSet::new() }
    }

    pub fn port(&self, name: &str) -> &[Endpoint] {
        self.by_port.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    fn add(&mut self, port: &str, endpoint: Endpoint) {
        self.identities.extend(endpoint.workload.identity.clone());
        self.by_port.entry(port.to_owned()).or_default().push(endpoint);
    }
}

/// From slices, else from an Endpoints object, else, where that was asked for, from the pods themselves.
pub(crate) fn of_service(service: &Service, sources: &Sources<'_>) -> ServiceEndpoints {
    let Registry::Kubernetes = service.registry;
    let key = Name { namespace: service.namespace.clone(), name: service.name.clone() };
    let mut found = ServiceEndpoints::default();
    if let Some(slices) = sources.slices.get(&key) {
        slices.iter().for_each(|slice| add_slice(&mut found, slice, sources.workloads));
    } else if let Some(object) = sources.snapshot.endpoints.get(&key) {
        add_slice(&mut found, object, sources.workloads);
    } else if sources.derive {
        add_selected_pods(&mut found, service, sources);
    }
    found
}

/// Where endpoints come from, indexed once for all services.
pub(crate) struct Sources<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) slices: BTreeMap<Name, Vec<&'a Object<kube::EndpointSlice>>>,
    pub(crate) workloads: &'a Workloads,
    pub(crate) derive: bool,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, workloads: &'a Workloads, derive: bool) -> Self {
        let mut slices: BTreeMap<Name, Vec<_>> = BTreeMap::new();
        for (key, slice) in &snapshot.endpoint_slices {
            let service = Name { namespace: key.namespace.clone(), name: Arc::from(slice.spec.service.as_str()) };
            slices.entry(service).or_default().push(slice.as_ref());
        }
        Self { snapshot, slices, workloads, derive }
    }
}

fn add_slice(found: &mut ServiceEndpoints, slice: &Object<kube::EndpointSlice>, workloads: &Workloads) {
    if slice.spec.address_type == AddressType::Fqdn {
        return;
    }
    for endpoint in &slice.spec.endpoints {
        let Some(workload) = workload_behind(endpoint, slice, workloads) else { continue };
        let addresses: Vec<IpAddr> = endpoint.addresses.iter().filter_map(|text| text.parse().ok()).collect();
        for address in addresses {
            for port in &slice.spec.ports {
                let Some(number) = port.port else { continue };
                let known = found.port(&port.name).iter().any(|other| other.address == address && other.port == number);
                if !known {
                    let health = health(endpoint);
                    found.add(&port.name, Endpoint { address, port: number, health, workload: workload.clone() });
                }
            }
        }
    }
}

/// `None`: the endpoint names a pod that does not exist, so it must not get traffic.
fn workload_behind(
    endpoint: &kube::Endpoint,
    slice: &Object<kube::EndpointSlice>,
    workloads: &Workloads,
) -> Option<Arc<Workload>> {
    let unknown = || Some(Arc::new(Workload::default()));
    match &endpoint.target {
        Some(target) if target.kind == "Pod" => {
            let namespace =
                if target.namespace.is_empty() { &*slice.meta.namespace } else { target.namespace.as_str() };
            workloads.named(namespace, &target.name)
        }
        Some(_) => unknown(),
        // Whichever arrives first, pod or slice: the address decides.
        None => endpoint
            .addresses
            .iter()
            .filter_map(|text| text.parse().ok())
            .find_map(|address| workloads.at(&slice.meta.namespace, address))
            .or_else(unknown),
    }
}

fn health(endpoint: &kube::Endpoint) -> Health {
    match endpoint {
        kube::Endpoint { ready: true, .. } => Health::Ready,
        kube::Endpoint { terminating: true, .. } => Health::Terminating,
        _ => Health::NotReady,
    }
}

fn add_selected_pods(found: &mut ServiceEndpoints, service: &Service, sources: &Sources<'_>) {
    if service.selector.is_empty() {
        return;
    }
    let first = Name { namespace: service.namespace.clone(), name: Arc::from("") };
    let own = sources.snapshot.pods.range(first..).take_while(|(key, _)| key.namespace == service.namespace);
    for (key, pod) in own.filter(|(_, pod)| pod.meta.labels.contains_all(&service.selector)) {
        let Some(workload) = sources.workloads.named(&key.namespace, &key.name) else { continue };
        for port in &service.ports {
            let Some(number) = target_port(&port.target, &pod.spec) else { continue };
            for &address in pod.spec.ips.first().iter().copied() {
                let endpoint = Endpoint { address, port: number, health: pod_health(pod), workload: workload.clone() };
                found.add(&port.name, endpoint);
            }
        }
    }
}

fn pod_health(pod: &Object<Pod>) -> Health {
    if pod.meta.deleting || matches!(pod.spec.phase.as_str(), "Succeeded" | "Failed") {
        Health::Terminating
    } else if pod.spec.ready {
        Health::Ready
    } else {
        Health::NotReady
    }
}

/// The number behind a target port in this pod; `None`: the pod has no port of that name.
pub(crate) fn target_port(target: &TargetPort, pod: &Pod) -> Option<u16> {
    match target {
        TargetPort::Number(number) => Some(*number),
        TargetPort::Name(name) => pod.ports.iter().find(|port| port.name == *name).map(|port| port.port),
    }
}
