//! Endpoints that Istio's objects declare: inline endpoints of a ServiceEntry, WorkloadEntries, and the host itself where the resolution is DNS.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use config::kinds::service_entry::ServiceEntry;
use config::kinds::workload_entry::WorkloadEntry;
use config::labels::Labels;
use config::meta::Object;
use config::store::{Name, Snapshot};

use crate::endpoint::{self, Endpoint, EndpointAddress, Origin, ServiceEndpoints};
use crate::mesh::Mesh;
use crate::placement::InboundTarget;
use crate::service::{Port, Service, TargetPort};
use crate::service_entry::EntryServices;
use crate::workload::{WORKLOAD_NAME, Workload};

const HEALTH_CHECKED: &str = "proxy.istio.io/health-checks-enabled";

/// Auto-registered WorkloadEntries are named after their WorkloadGroup.
const GROUP: &str = "istio.io/autoRegistrationGroup";

/// A WorkloadEntry or an inline endpoint that may receive traffic (istiod: WorkloadInstance).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorkloadInstance {
    pub(crate) workload: Arc<Workload>,
    /// Of the object, whatever its labels name the workload.
    name: Arc<str>,
    pub(crate) labels: Labels,
    address: EndpointAddress,
    ports: BTreeMap<String, u32>,
    weight: u32,
    /// As written; empty: not set.
    pub(crate) network: Arc<str>,
}

/// Healthy WorkloadEntries, in order of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkloadEntries {
    by_name: BTreeMap<Name, WorkloadInstance>,
    /// For the lookup by the address of a proxy.
    by_address: BTreeMap<(Arc<str>, IpAddr), Vec<Name>>,
}

impl WorkloadEntries {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let healthy = snapshot.workload_entries.iter().filter(|(_, entry)| is_healthy(entry));
        let mut found = Self::default();
        for (name, entry) in healthy {
            let Some(instance) = WorkloadInstance::of_object(entry) else { continue };
            if let Some(address) = instance.address.ip() {
                found.by_address.entry((name.namespace.clone(), address)).or_default().push(name.clone());
            }
            found.by_name.insert(name.clone(), instance);
        }
        found
    }

    fn selected_by<'a>(&'a self, service: &'a Service) -> impl Iterator<Item = &'a WorkloadInstance> {
        let here = self.by_name.range(Name::new(&service.namespace, "")..);
        let here = here.take_while(move |(name, _)| name.namespace == service.namespace);
        here.map(|(_, instance)| instance).filter(move |instance| service.selects(&instance.labels))
    }

    pub(crate) fn named(&self, name: &Name) -> Option<&WorkloadInstance> {
        self.by_name.get(name)
    }

    /// Those whose address is that of a proxy, by name.
    pub(crate) fn all_at(&self, namespace: &Arc<str>, address: IpAddr) -> impl Iterator<Item = &WorkloadInstance> {
        let names = self.by_address.get(&(namespace.clone(), address)).into_iter().flatten();
        names.filter_map(|name| self.by_name.get(name))
    }
}

impl WorkloadInstance {
    /// `None`: it has neither an address nor a network whose gateway could reach it.
    fn new(name: &str, namespace: &Arc<str>, entry: &WorkloadEntry, labels: &Labels) -> Option<Self> {
        let hidden = || (!entry.network.is_empty()).then_some(EndpointAddress::Unknown);
        let address = EndpointAddress::parse(&entry.address).or_else(hidden)?;
        Some(Self {
            network: Arc::from(entry.network.as_str()),
            workload: Arc::new(Workload::of_entry(name, namespace, entry, labels)),
            name: Arc::from(name),
            labels: labels.clone(),
            address,
            ports: entry.ports.clone(),
            weight: entry.weight.max(1),
        })
    }

    /// Labels of the object override those of its spec.
    fn of_object(object: &Object<WorkloadEntry>) -> Option<Self> {
        let labels = object.spec.labels.extended(object.meta.labels.iter());
        let group = object.meta.annotations.get(GROUP);
        let name = group.or_else(|| object.meta.labels.get(WORKLOAD_NAME)).unwrap_or(&object.meta.name);
        let instance = Self::new(name, &object.meta.namespace, &object.spec, &labels)?;
        Some(Self { name: object.meta.name.clone(), ..instance })
    }

    /// The number of a port of a ServiceEntry.
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

    /// The number of a port of a Kubernetes Service; `None`: the workload has no port of that name.
    pub(crate) fn service_port(&self, port: &Port) -> Option<u16> {
        let named = |name: &str| self.ports.get(name).and_then(|&number| u16::try_from(number).ok());
        match &port.target {
            TargetPort::Name(name) => named(name),
            TargetPort::Same => Some(named(&port.name).unwrap_or(port.number)),
            TargetPort::Number(number) => Some(named(&port.name).unwrap_or(*number)),
        }
    }

    /// It has an IP address, not a DNS name and not a Unix domain socket.
    fn has_ip(&self) -> bool {
        matches!(self.address, EndpointAddress::Ip(_) | EndpointAddress::Unknown)
    }

    fn endpoint(&self, number: u16) -> Endpoint {
        Endpoint {
            entry_port: None,
            // A Unix domain socket has no port.
            port: if matches!(self.address, EndpointAddress::Pipe(_)) { 0 } else { number },
            address: self.address.clone(),
            health: endpoint::ready_health(&self.workload),
            origin: Origin::Entry,
            weight: self.weight,
            network: self.network.clone(),
            workload: self.workload.clone(),
        }
    }
}

/// Entries without health checks count as healthy; with them, only after the first successful one.
fn is_healthy(entry: &Object<WorkloadEntry>) -> bool {
    let checked = entry.meta.annotations.get(HEALTH_CHECKED);
    let checked = checked.is_some_and(|value| matches!(value, "1" | "t" | "T" | "true" | "True" | "TRUE"));
    let condition = entry.spec.status.conditions.iter().find(|condition| condition.r#type == "Healthy");
    !checked || condition.is_some_and(|condition| condition.status == "True")
}

/// A Kubernetes Service with an address selects WorkloadEntries as it selects pods; only those with an IP address.
pub(crate) fn add_workload_entries(found: &mut ServiceEndpoints, service: &Service, mesh: &Mesh) {
    if service.is_headless() {
        return;
    }
    for instance in mesh.workload_entries.selected_by(service).filter(|instance| instance.has_ip()) {
        for port in &service.ports {
            if let Some(number) = instance.service_port(port) {
                found.add(&port.name, instance.endpoint(number));
            }
        }
    }
}

/// All endpoints of a ServiceEntry's service. Each address of the service repeats them, as in istiod.
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
    // Only DNS clusters take workloads without an IP address.
    let takes = |instance: &&WorkloadInstance| service.is_resolved_by_name() || instance.has_ip();
    for instance in mesh.workload_entries.selected_by(service).filter(takes) {
        add_instance(found, service, instance);
    }
}

fn add_inline(found: &mut ServiceEndpoints, service: &Service, object: &Object<ServiceEntry>) {
    inline(object).for_each(|instance| add_instance(found, service, &instance));
}

fn inline(object: &Object<ServiceEntry>) -> impl Iterator<Item = WorkloadInstance> {
    let listed = object.spec.endpoints.iter().enumerate().filter(|_| object.spec.workload_selector.is_none());
    listed.filter_map(|(index, endpoint)| {
        let name = format!("{}-{index}", object.meta.name);
        WorkloadInstance::new(&name, &object.meta.namespace, endpoint, &endpoint.labels)
    })
}

/// Inline endpoints of ServiceEntries by address, with their ports: the proxies at these addresses serve them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListedWorkloads(BTreeMap<(Arc<str>, IpAddr), (WorkloadInstance, Vec<InboundTarget>)>);

impl ListedWorkloads {
    pub(crate) fn new(entries: &EntryServices, snapshot: &Snapshot) -> Self {
        let mut found = Self::default();
        for service in entries.all() {
            let Some(object) = snapshot.service_entries.get(&object_name(service)) else { continue };
            for instance in inline(object) {
                let Some(address) = instance.address.ip() else { continue };
                let key = (service.namespace.clone(), address);
                let (_, targets) = found.0.entry(key).or_insert_with(|| (instance.clone(), Vec::new()));
                targets.extend(service.ports.iter().filter_map(|port| {
                    let number = instance.entry_port(port)?;
                    Some(InboundTarget { service: service.clone(), port: port.clone(), number })
                }));
            }
        }
        found
    }

    pub(crate) fn at(&self, namespace: &Arc<str>, address: IpAddr) -> &[InboundTarget] {
        self.0.get(&(namespace.clone(), address)).map(|(_, targets)| targets.as_slice()).unwrap_or_default()
    }

    /// As the first ServiceEntry by name declares it.
    pub(crate) fn workload(&self, namespace: &Arc<str>, address: IpAddr) -> Option<&WorkloadInstance> {
        self.0.get(&(namespace.clone(), address)).map(|(instance, _)| instance)
    }
}

fn object_name(service: &Service) -> Name {
    Name { namespace: service.made_from.namespace.clone(), name: service.made_from.name.clone() }
}

fn add_instance(found: &mut ServiceEndpoints, service: &Service, instance: &WorkloadInstance) {
    // Only a DNS cluster can resolve a name.
    if matches!(instance.address, EndpointAddress::Name(_)) && !service.is_resolved_by_name() {
        return;
    }
    for port in &service.ports {
        if let Some(number) = instance.entry_port(port).filter(|_| found.has_room(service, port)) {
            let workload = workload_of_entry(&instance.workload, &instance.name);
            found.add(&port.name, Endpoint { entry_port: Some(port.number), workload, ..instance.endpoint(number) });
        }
    }
}

/// A workload whose label gives it an empty name has the name of its object as an endpoint of a ServiceEntry; as an endpoint of a Service it has
/// none. As in istiod.
pub(crate) fn workload_of_entry(workload: &Arc<Workload>, object: &Arc<str>) -> Arc<Workload> {
    if !workload.name.is_empty() {
        return workload.clone();
    }
    Arc::new(Workload { name: object.clone(), ..Workload::clone(workload) })
}

fn add_host(found: &mut ServiceEndpoints, service: &Service, object: &Object<ServiceEntry>) {
    let entry = WorkloadEntry { address: service.host.to_string(), ..WorkloadEntry::default() };
    if let Some(instance) = WorkloadInstance::new(&object.meta.name, &object.meta.namespace, &entry, &Labels::default())
    {
        add_instance(found, service, &instance);
    }
}

#[cfg(test)]
mod tests {
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    use super::*;
    use crate::environment::Environment;

    /// The name of the workload and the port of each endpoint of a host and port.
    fn endpoints(objects: &str, host: &str, port: &str) -> Vec<String> {
        let parsed = parse_documents("f", objects);
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let mesh = Mesh::new(&snapshot, &Arc::new(Environment::default()));
        let service = mesh.all_services().find(|service| service.host.to_string() == host).expect("declared");
        let found = mesh.endpoints(service);
        found.port(port).iter().map(|endpoint| format!("{}:{}", endpoint.workload.name, endpoint.port)).collect()
    }

    fn entry(name: &str, spec: &str) -> String {
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: {name}, namespace: shop}}, spec: {{{spec}}}}}\n---\n"
        )
    }

    fn pod(labels: &str, ports: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: pod, namespace: shop, labels: {{{labels}}}}}, spec: {{containers: [{{ports: [{ports}]}}]}}, status: {{phase: Running, podIP: 10.0.0.1}}}}\n---\n"
        )
    }

    fn machine(name: &str, meta: &str) -> String {
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {{name: {name}, namespace: shop, {meta}}}, spec: {{address: 10.0.0.2, labels: {{app: a}}}}}}\n---\n"
        )
    }

    const SELECTING: &str = "hosts: [a.example], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 7000}], workloadSelector: {labels: {app: a}}";

    #[test]
    fn an_empty_workload_name_is_that_of_the_object_at_a_service_entry_only() {
        let empty = "service.istio.io/workload-name: ''";
        let machine = machine("machine", &format!("labels: {{{empty}}}"));
        let service = "{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}, spec: {clusterIP: 10.1.0.1, selector: {app: a}, ports: [{name: http, port: 80}]}}\n---\n";
        let objects = format!("{}{machine}{service}{}", pod(&format!("app: a, {empty}"), ""), entry("a", SELECTING));
        assert_eq!(endpoints(&objects, "a.example", "http"), ["pod:7000", "machine:7000"]);
        assert_eq!(endpoints(&objects, "s.shop.svc.cluster.local", "http"), [":80"]);
    }

    #[test]
    fn a_tcp_port_of_a_pod_with_the_name_of_the_port_goes_before_the_target_port() {
        let of =
            |ports: &str| endpoints(&format!("{}{}", pod("app: a", ports), entry("a", SELECTING)), "a.example", "http");
        assert_eq!(of("{name: http, containerPort: 8080}, {name: http, containerPort: 8081}"), ["pod:8080"]);
        assert_eq!(of("{name: http, containerPort: 8080, protocol: UDP}, {containerPort: 8081}"), ["pod:7000"]);
    }

    #[test]
    fn with_dns_round_robin_a_port_number_has_one_endpoint_whatever_the_names_of_the_port() {
        let of = |name: &str, port: &str| {
            let spec = "hosts: [a.example], resolution: DNS_ROUND_ROBIN";
            entry(name, &format!("{spec}, ports: [{port}], endpoints: [{{address: {name}.example.net}}]"))
        };
        let objects =
            [of("a", "{number: 80, name: http}"), of("b", "{number: 80, name: web}, {number: 81, name: more}")]
                .concat();
        let names = ["http", "web", "more"].map(|port| endpoints(&objects, "a.example", port).len());
        assert_eq!(names, [1, 0, 1]);
    }

    #[test]
    fn health_checks_are_enabled_by_the_spellings_of_true_that_istiod_reads() {
        let counts = |value: &str| {
            let entry_without_status =
                machine("m", &format!("annotations: {{proxy.istio.io/health-checks-enabled: '{value}'}}"));
            endpoints(&format!("{entry_without_status}{}", entry("a", SELECTING)), "a.example", "http").len()
        };
        for enabled in ["true", "TRUE", "True", "t", "T", "1"] {
            assert_eq!(counts(enabled), 0, "{enabled}");
        }
        for other in ["tRue", "yes", "0", "false", ""] {
            assert_eq!(counts(other), 1, "{other}");
        }
    }
}
