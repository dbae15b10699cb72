//! Endpoints that objects of Istio declare: inline ones of a ServiceEntry, WorkloadEntries, and the host itself where DNS finds it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use config::kinds::service_entry::ServiceEntry;
use config::kinds::workload_entry::WorkloadEntry;
use config::labels::Labels;
use config::meta::Object;
use config::store::{Name, Snapshot};

use crate::endpoint::{self, Address, Endpoint, Health, Origin, ServiceEndpoints};
use crate::entry::Entries;
use crate::mesh::Mesh;
use crate::placement::InboundTarget;
use crate::service::{Port, Service, TargetPort};
use crate::workload::Workload;

const HEALTH_CHECKED: &str = "proxy.istio.io/health-checks-enabled";

/// Machines that registered themselves are called after their group.
const GROUP: &str = "istio.io/autoRegistrationGroup";
const WORKLOAD_NAME: &str = "service.istio.io/workload-name";

/// A WorkloadEntry that may be sent traffic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Machine {
    pub(crate) workload: Arc<Workload>,
    pub(crate) labels: Labels,
    address: Address,
    ports: BTreeMap<String, u32>,
    weight: u32,
    /// As written; empty: nobody said.
    pub(crate) network: Arc<str>,
}

/// Healthy WorkloadEntries, in order of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machines {
    by_name: BTreeMap<Name, Machine>,
    /// Every proxy asks who is at its address.
    by_address: BTreeMap<(Arc<str>, IpAddr), Vec<Name>>,
}

impl Machines {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let healthy = snapshot.workload_entries.iter().filter(|(_, entry)| is_healthy(entry));
        let mut found = Self::default();
        for (name, entry) in healthy {
            let Some(machine) = Machine::of_object(entry) else { continue };
            if let Some(address) = machine.address.ip() {
                found.by_address.entry((name.namespace.clone(), address)).or_default().push(name.clone());
            }
            found.by_name.insert(name.clone(), machine);
        }
        found
    }

    fn selected<'a>(&'a self, namespace: &'a str, selector: &'a Labels) -> impl Iterator<Item = &'a Machine> {
        let here = self.by_name.range(Name::new(namespace, "")..);
        let here = here.take_while(move |(name, _)| *name.namespace == *namespace);
        here.map(|(_, machine)| machine).filter(move |machine| machine.labels.contains_all(selector))
    }

    pub(crate) fn named(&self, name: &Name) -> Option<&Machine> {
        self.by_name.get(name)
    }

    /// Those that a proxy with this address runs on, by name.
    pub(crate) fn all_at(&self, namespace: &Arc<str>, address: IpAddr) -> impl Iterator<Item = &Machine> {
        let names = self.by_address.get(&(namespace.clone(), address)).into_iter().flatten();
        names.filter_map(|name| self.by_name.get(name))
    }
}

impl Machine {
    /// `None`: it has neither an address nor a network whose gateway could reach it.
    fn new(name: &str, namespace: &Arc<str>, entry: &WorkloadEntry, labels: &Labels) -> Option<Self> {
        let hidden = || (!entry.network.is_empty()).then_some(Address::Unknown);
        let address = Address::parse(&entry.address).or_else(hidden)?;
        Some(Self {
            network: Arc::from(entry.network.as_str()),
            workload: Arc::new(Workload::of_entry(name, namespace, entry, labels)),
            labels: labels.clone(),
            address,
            ports: entry.ports.clone(),
            weight: entry.weight.max(1),
        })
    }

    /// Labels of the object beat those of its spec.
    fn of_object(object: &Object<WorkloadEntry>) -> Option<Self> {
        let labels = object.spec.labels.extended(object.meta.labels.iter());
        let group = object.meta.annotations.get(GROUP);
        let name = group.or_else(|| object.meta.labels.get(WORKLOAD_NAME)).unwrap_or(&object.meta.name);
        Self::new(name, &object.meta.namespace, &object.spec, &labels)
    }

    /// The number behind the port of a ServiceEntry.
    pub(crate) fn entry_port(&self, port: &Port) -> Option<u16> {
        match self.ports.get(&port.name).filter(|&&number| number != 0) {
            Some(&number) => u16::try_from(number).ok(),
            None => match port.target {
                TargetPort::Same => Some(port.number),
                TargetPort::Number(number) => Some(number),
                TargetPort::Name(_) => None,
            },
        }
    }

    /// The number behind the port of a Kubernetes Service; `None`: the machine has no port of that name.
    pub(crate) fn service_port(&self, port: &Port) -> Option<u16> {
        let named = |name: &str| self.ports.get(name).and_then(|&number| u16::try_from(number).ok());
        match &port.target {
            TargetPort::Name(name) => named(name),
            TargetPort::Same => Some(named(&port.name).unwrap_or(port.number)),
            TargetPort::Number(number) => Some(named(&port.name).unwrap_or(*number)),
        }
    }

    /// No name, which only DNS could find, and no socket.
    fn is_placed(&self) -> bool {
        matches!(self.address, Address::Ip(_) | Address::Unknown)
    }

    fn endpoint(&self, number: u16) -> Endpoint {
        Endpoint {
            // A socket has no port.
            port: if matches!(self.address, Address::Pipe(_)) { 0 } else { number },
            address: self.address.clone(),
            health: Health::Ready,
            origin: Origin::Entry,
            weight: self.weight,
            network: self.network.clone(),
            workload: self.workload.clone(),
        }
    }
}

/// Entries without health checks count as healthy; with them, only after the first good one.
fn is_healthy(entry: &Object<WorkloadEntry>) -> bool {
    let checked = entry.meta.annotations.get(HEALTH_CHECKED);
    let checked = checked.is_some_and(|value| value.eq_ignore_ascii_case("true") || matches!(value, "1" | "t" | "T"));
    let condition = entry.spec.status.conditions.iter().find(|condition| condition.r#type == "Healthy");
    !checked || condition.is_some_and(|condition| condition.status == "True")
}

/// A Kubernetes Service with an address takes machines as it takes pods; only addresses, no names.
pub(crate) fn add_machines(found: &mut ServiceEndpoints, service: &Service, mesh: &Mesh) {
    if service.selector.is_empty() || service.is_headless() {
        return;
    }
    for machine in mesh.machines.selected(&service.namespace, &service.selector).filter(|machine| machine.is_placed()) {
        for port in &service.ports {
            if let Some(number) = machine.service_port(port) {
                found.add(&port.name, machine.endpoint(number));
            }
        }
    }
}

/// All that one entry's service has. Each address of the service repeats them, as in istiod.
pub(crate) fn add_entry(found: &mut ServiceEndpoints, service: &Service, mesh: &Mesh) {
    let Some(object) = mesh.objects.service_entries.get(&object_name(service)) else { return };
    let repeats = (service.addresses.len() + service.ranges.len()).max(1);
    for _ in 0..repeats {
        if object.spec.workload_selector.is_some() {
            add_selected(found, service, mesh);
        } else if object.spec.endpoints.is_empty() && service.is_resolved_by_name() {
            add_host(found, service, object);
        } else {
            add_inline(found, service, object);
        }
    }
}

fn add_selected(found: &mut ServiceEndpoints, service: &Service, mesh: &Mesh) {
    endpoint::add_pods_of_entry(found, service, mesh);
    // Only DNS clusters take machines without an address.
    let takes = |machine: &&Machine| service.is_resolved_by_name() || machine.is_placed();
    for machine in mesh.machines.selected(&service.namespace, &service.selector).filter(takes) {
        add_machine(found, service, machine);
    }
}

fn add_inline(found: &mut ServiceEndpoints, service: &Service, object: &Object<ServiceEntry>) {
    inline(object).for_each(|machine| add_machine(found, service, &machine));
}

fn inline(object: &Object<ServiceEntry>) -> impl Iterator<Item = Machine> {
    let listed = object.spec.endpoints.iter().enumerate().filter(|_| object.spec.workload_selector.is_none());
    listed.filter_map(|(index, endpoint)| {
        let name = format!("{}-{index}", object.meta.name);
        Machine::new(&name, &object.meta.namespace, endpoint, &endpoint.labels)
    })
}

/// Workloads that ServiceEntries list by address, with their ports: their proxies serve them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listed(BTreeMap<(Arc<str>, IpAddr), (Machine, Vec<InboundTarget>)>);

impl Listed {
    pub(crate) fn new(entries: &Entries, snapshot: &Snapshot) -> Self {
        let mut found = Self::default();
        for service in entries.all() {
            let Some(object) = snapshot.service_entries.get(&object_name(service)) else { continue };
            for machine in inline(object) {
                let Some(address) = machine.address.ip() else { continue };
                let key = (service.namespace.clone(), address);
                let (_, targets) = found.0.entry(key).or_insert_with(|| (machine.clone(), Vec::new()));
                targets.extend(service.ports.iter().filter_map(|port| {
                    let number = machine.entry_port(port)?;
                    Some(InboundTarget { service: service.clone(), port: port.clone(), number })
                }));
            }
        }
        found
    }

    pub(crate) fn at(&self, namespace: &Arc<str>, address: IpAddr) -> &[InboundTarget] {
        self.0.get(&(namespace.clone(), address)).map(|(_, targets)| targets.as_slice()).unwrap_or_default()
    }

    /// As the first entry by name has it.
    pub(crate) fn machine(&self, namespace: &Arc<str>, address: IpAddr) -> Option<&Machine> {
        self.0.get(&(namespace.clone(), address)).map(|(machine, _)| machine)
    }
}

fn object_name(service: &Service) -> Name {
    Name { namespace: service.made_from.namespace.clone(), name: service.made_from.name.clone() }
}

fn add_machine(found: &mut ServiceEndpoints, service: &Service, machine: &Machine) {
    // Only DNS can say where a name is.
    if matches!(machine.address, Address::Name(_)) && !service.is_resolved_by_name() {
        return;
    }
    for port in &service.ports {
        if let Some(number) = machine.entry_port(port).filter(|_| found.has_room(service, port)) {
            found.add(&port.name, machine.endpoint(number));
        }
    }
}

fn add_host(found: &mut ServiceEndpoints, service: &Service, object: &Object<ServiceEntry>) {
    let entry = WorkloadEntry { address: service.host.to_string(), ..WorkloadEntry::default() };
    if let Some(machine) = Machine::new(&object.meta.name, &object.meta.namespace, &entry, &Labels::default()) {
        add_machine(found, service, &machine);
    }
}
