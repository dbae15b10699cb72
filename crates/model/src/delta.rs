//! The step from one mesh to the next, and the inputs that a change of objects touches. Equal results end the propagation here.

mod istio;
mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::kinds::pod::Pod;
use config::kinds::service::{self as kube, ServiceType};
use config::meta::Object;
use config::store::{Name, Snapshot, Table};
use imbl::ordmap::DiffItem;

use crate::discovery_selectors;
use crate::environment::Environment;
use crate::input::Input;
use crate::mesh::{Mesh, key};
use crate::network;
use crate::service::Service;

/// What a change of objects touches.
#[derive(Debug, Default)]
pub struct Delta(BTreeSet<Input>);

/// The services of one namespace and host: a Kubernetes Service, and ServiceEntries that declare the same host.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceChange {
    old: Vec<Arc<Service>>,
    new: Vec<Arc<Service>>,
}

impl ServiceChange {
    pub(crate) fn sides(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.old.iter().chain(&self.new)
    }
}

/// What changes of services and workloads lead to, before endpoints and scopes are computed again.
#[derive(Default)]
struct ChangedServices {
    services: BTreeMap<Name, ServiceChange>,
    /// Services, by namespace and host, whose endpoints must be computed again.
    stale: BTreeSet<Name>,
}

impl Delta {
    /// Of the first mesh, or of a change that anything may read.
    pub fn of_everything() -> Self {
        Self(BTreeSet::from([Input::Everything]))
    }

    pub fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.0.iter()
    }

    pub fn touches(&self, input: &Input) -> bool {
        self.0.contains(input)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn touch(&mut self, input: Input) {
        self.0.insert(input);
    }

    fn touch_if(&mut self, condition: bool, input: Input) {
        if condition {
            self.touch(input);
        }
    }

    pub(crate) fn apply(mesh: &Mesh, whole: &Snapshot) -> (Mesh, Self) {
        let snapshot = &discovery_selectors::discovered_objects(whole, Some(mesh));
        let old = &mesh.objects;
        let wide = aliases_changed(old, snapshot)
            || gateways_changed(old, snapshot, &mesh.env)
            || *old.mesh != *snapshot.mesh
            || *old.networks != *snapshot.networks
            || changed(&old.nodes, &snapshot.nodes)
            || changed(&old.namespaces, &snapshot.namespaces)
            || istio::root_policy_changed(old, snapshot)
            || changed(&old.ingresses, &snapshot.ingresses)
            || changed(&old.ingress_classes, &snapshot.ingress_classes)
            || ingress_ports_changed(mesh, snapshot);
        if wide {
            let next = Mesh { telemetry_pool: mesh.telemetry_pool.clone(), ..Mesh::new(whole, &mesh.env) };
            return (next, Self::of_everything());
        }
        let mut next = Mesh { objects: snapshot.clone(), all_objects: whole.clone(), ..mesh.clone() };
        let credentials =
            [changed_names(&old.secrets, &snapshot.secrets), changed_names(&old.config_maps, &snapshot.config_maps)];
        let mut delta = Self(credentials.into_iter().flatten().map(Input::Credential).collect());
        let ChangedServices { services, stale } = delta.apply_workloads(mesh, &mut next);
        delta.0.extend(services.keys().cloned().map(Input::Service));
        delta.apply_endpoints(mesh, &mut next, stale);
        delta.apply_peer_authentications(mesh, &mut next);
        delta.apply_telemetries(mesh, &mut next);
        delta.apply_request_policies(mesh, &mut next, &services);
        delta.apply_envoy_filters(mesh, &mut next);
        delta.apply_plugins(mesh, &next);
        delta.apply_scopes(mesh, &mut next, &services);
        if !services.is_empty() {
            next.provider_hosts = Arc::new(next.build_provider_hosts());
            // Any proxy may send its access logs and spans to that service.
            delta.touch_if(next.provider_hosts != mesh.provider_hosts, Input::Everything);
        }
        delta.apply_gateways(mesh, &mut next);
        if delta.touches_headless(mesh, &next) {
            next.headless = Arc::new(next.headless_addresses());
        }
        let class_keys = next.headless != mesh.headless
            || next.entry_services.dynamic_namespaces() != mesh.entry_services.dynamic_namespaces()
            || next.client_facts != mesh.client_facts
            || next.scopes.node_local != mesh.scopes.node_local;
        delta.touch_if(class_keys, Input::ClassKeys);
        (next, delta)
    }

    fn apply_workloads(&mut self, mesh: &Mesh, next: &mut Mesh) -> ChangedServices {
        let mut changed = ChangedServices::default();
        apply_services(mesh, next, &mut changed);
        self.apply_service_entries(mesh, next, &mut changed);
        self.apply_workload_entries(mesh, next, &mut changed);
        self.apply_pods(mesh, next, &mut changed.stale);
        apply_slices(mesh, next, &mut changed.stale);
        changed
    }

    fn touches_headless(&self, old: &Mesh, new: &Mesh) -> bool {
        let headless = |mesh: &Mesh, name: &Name| {
            let entries = mesh.entry_services.of(name);
            mesh.services.get(name).into_iter().chain(entries).any(|service| service.is_headless())
        };
        let concerns = |input: &Input| match input {
            Input::Service(name) | Input::Endpoints(name) => headless(old, name) || headless(new, name),
            _ => false,
        };
        self.inputs().any(concerns)
    }

    fn apply_pods(&mut self, mesh: &Mesh, next: &mut Mesh, stale: &mut BTreeSet<Name>) {
        let objects = next.objects.clone();
        for item in mesh.objects.pods.diff(&objects.pods) {
            let (old, new) = sides(&item);
            let name = name_of(old.or(new).expect("a difference has a side"));
            next.workloads.put(&name, new, &objects);
            self.touch(Input::Pod(name.clone()));
            let concerned = next
                .services_in(&name.namespace)
                .filter(|service| [old, new].into_iter().flatten().any(|pod| reads_pod(next, service, pod)));
            stale.extend(concerned.map(|service| key(service)));
            let selecting = next
                .entry_services
                .in_namespace(&name.namespace)
                .filter(|service| [old, new].into_iter().flatten().any(|pod| service.selects(&pod.meta.labels)));
            stale.extend(selecting.map(|service| key(service)));
        }
    }

    fn apply_endpoints(&mut self, mesh: &Mesh, next: &mut Mesh, stale: BTreeSet<Name>) {
        for name in stale {
            if !next.declares(&name) {
                next.endpoints.remove(&name);
                continue;
            }
            let made = next.build_endpoints(&name);
            let previous = mesh.endpoints.get(&name);
            if previous.is_some_and(|previous| **previous == *made) {
                continue;
            }
            let mutual_tls = previous
                .is_none_or(|previous| previous.identities != made.identities || previous.mtls() != made.mtls());
            self.touch_if(mutual_tls, Input::MutualTls(name.clone()));
            // Proxies that no selector chooses are found by address.
            if previous.map_or(&[][..], |previous| &previous.addressed) != made.addressed {
                self.touch(Input::Workloads(name.namespace.clone()));
            }
            next.endpoints.insert(name.clone(), made);
            self.touch(Input::Endpoints(name));
        }
    }
}

fn apply_services(mesh: &Mesh, next: &mut Mesh, changed: &mut ChangedServices) {
    for item in mesh.objects.services.diff(&next.objects.services.clone()) {
        let (old, new) = sides(&item);
        let old = old.map(|object| key(&mesh.service_of(object)));
        let new = new.map(|object| next.service_of(object));
        let Some(name) = old.or_else(|| new.as_ref().map(key)) else { continue };
        let previous = mesh.services.get(&name).cloned();
        let new = new.map(Arc::new);
        if previous == new {
            continue;
        }
        match &new {
            Some(service) => drop(next.services.insert(name.clone(), service.clone())),
            None => drop(next.services.remove(&name)),
        }
        changed.stale.insert(name.clone());
        let change = ServiceChange { old: previous.into_iter().collect(), new: new.into_iter().collect() };
        changed.services.insert(name, change);
    }
}

fn apply_slices(mesh: &Mesh, next: &mut Mesh, stale: &mut BTreeSet<Name>) {
    let mut services = BTreeSet::new();
    for item in mesh.objects.endpoint_slices.diff(&next.objects.endpoint_slices) {
        let (old, new) = sides(&item);
        for slice in [old, new].into_iter().flatten() {
            services.insert(Name::new(&slice.meta.namespace, &slice.spec.service));
        }
        next.slices.put(old, new);
    }
    for item in mesh.objects.endpoints.diff(&next.objects.endpoints) {
        let (old, new) = sides(&item);
        services.insert(name_of(old.or(new).expect("a difference has a side")));
    }
    for name in services {
        let host = crate::service::kubernetes_host(&name.name, &name.namespace, &mesh.env.domain);
        stale.insert(Name { namespace: name.namespace, name: Arc::from(host.as_str()) });
    }
}

/// Ingresses may refer to Service ports by name.
fn ingress_ports_changed(mesh: &Mesh, snapshot: &Snapshot) -> bool {
    !snapshot.ingresses.is_empty()
        && changed(&mesh.objects.services, &snapshot.services)
        && Mesh::convert_ingress(snapshot, &mesh.env) != *mesh.ingress
}

/// ExternalName aliases: any route may hold them.
fn aliases_changed(old: &Snapshot, new: &Snapshot) -> bool {
    let alias = |object: &Arc<Object<kube::ServiceSpec>>| object.spec.kind == ServiceType::ExternalName;
    !old.services.ptr_eq(&new.services)
        && old.services.diff(&new.services).any(|item| {
            let (old, new) = sides(&item);
            old.is_some_and(alias) || new.is_some_and(alias)
        })
}

/// Network gateway Services: any load assignment may hold their addresses.
fn gateways_changed(old: &Snapshot, new: &Snapshot, env: &Environment) -> bool {
    !old.services.ptr_eq(&new.services)
        && old.services.diff(&new.services).any(|item| {
            let (before, after) = sides(&item);
            let leads = |objects: &Snapshot, object| network::is_gateway(object, &objects.networks, env);
            before.is_some_and(|object| leads(old, object)) || after.is_some_and(|object| leads(new, object))
        })
}

/// The endpoints of this service may depend on the pod.
fn reads_pod(mesh: &Mesh, service: &Service, pod: &Object<Pod>) -> bool {
    let selected = || mesh.env.derive_endpoints && service.selects(&pod.meta.labels);
    mesh.slices.refers_to(service, pod)
        || selected()
        || mesh.objects.endpoints.contains_key(&Name::new(&service.namespace, &service.name))
}

pub(crate) type Sides<'a, S> = (Option<&'a Arc<Object<S>>>, Option<&'a Arc<Object<S>>>);

pub(crate) fn sides<'a, S>(item: &DiffItem<'a, 'a, Name, Arc<Object<S>>>) -> Sides<'a, S> {
    match *item {
        DiffItem::Add(_, new) => (None, Some(new)),
        DiffItem::Update { old: (_, old), new: (_, new) } => (Some(old), Some(new)),
        DiffItem::Remove(_, old) => (Some(old), None),
    }
}

fn name_of<S>(object: &Object<S>) -> Name {
    Name { namespace: object.meta.namespace.clone(), name: object.meta.name.clone() }
}

fn changed_names<S: PartialEq>(old: &Table<S>, new: &Table<S>) -> Vec<Name> {
    if old.ptr_eq(new) {
        return Vec::new();
    }
    let names = old.diff(new).filter_map(|item| match sides(&item) {
        (Some(old), Some(new)) if old.spec == new.spec => None,
        (old, new) => old.or(new).map(|object| name_of(object)),
    });
    names.collect()
}

pub(crate) fn changed<S: PartialEq>(old: &Table<S>, new: &Table<S>) -> bool {
    !old.ptr_eq(new) && old.diff(new).next().is_some()
}

#[cfg(test)]
mod tests;
