//! What Istio's kinds touch: services and machines that they declare, policies of a namespace, and what scopes are cut from.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::host::Host;
use config::meta::Object;
use config::store::{Name, Snapshot, Table};

use super::{Delta, ServiceChange, changed, name_of, sides};
use crate::authn::PeerAuthentications;
use crate::entry::Entries;
use crate::entry_endpoint::{Listed, Machines};
use crate::gateway::Gateways;
use crate::mesh::{Mesh, declared_entries, key, telemetries};
use crate::scopes::ScopeChanges;
use crate::virtual_service::RouteChange;

/// The root namespace's policy is everybody's.
pub(super) fn root_policy_changed(old: &Snapshot, new: &Snapshot) -> bool {
    let differing = differing(&old.peer_authentications, &new.peer_authentications);
    differing.iter().any(|name| *name.namespace == *new.mesh.root_namespace)
}

impl Delta {
    pub(super) fn take_entries(&mut self, mesh: &Mesh, next: &mut Mesh, stale: &mut BTreeSet<Name>) {
        let (old, new) = (&mesh.objects.service_entries, &next.objects.service_entries);
        if !changed(old, new) {
            return;
        }
        let entries = declared_entries(&next.objects, &mesh.env.addresses).sharing(&mesh.entries);
        for item in old.diff(new) {
            let (old, new) = sides(&item);
            for object in old.into_iter().chain(new) {
                let host = |name: &String| Name::new(&object.meta.namespace, Host::new(name).as_str());
                stale.extend(object.spec.hosts.iter().map(host));
            }
            if old.map(|object| &object.spec) != new.map(|object| &object.spec) {
                self.namespaces.extend(old.or(new).map(|object| object.meta.namespace.clone()));
            }
        }
        for name in mesh.entries.keys().chain(entries.keys()).collect::<BTreeSet<_>>() {
            let of = |entries: &Entries| entries.of(name).cloned().collect::<Vec<_>>();
            let (old, new) = (of(&mesh.entries), of(&entries));
            if old != new {
                let ServiceChange { old: was, new: is } = self.services.entry(name.clone()).or_default();
                was.extend(old);
                is.extend(new);
                stale.insert(name.clone());
            }
        }
        next.listed = Arc::new(Listed::new(&entries, &next.objects));
        next.entries = Arc::new(entries);
    }

    pub(super) fn take_machines(&mut self, mesh: &Mesh, next: &mut Mesh, stale: &mut BTreeSet<Name>) {
        let objects = next.objects.clone();
        let (old, new) = (&mesh.objects.workload_entries, &objects.workload_entries);
        if !changed(old, new) {
            return;
        }
        next.machines = Arc::new(Machines::new(&objects));
        let names = old.diff(new).filter_map(|item| {
            let (old, new) = sides(&item);
            old.or(new).map(|object| name_of(object))
        });
        for name in names.filter(|name| mesh.machines.named(name) != next.machines.named(name)) {
            self.namespaces.insert(name.namespace.clone());
            let declared = next.services_in(&name.namespace).chain(next.entries.in_namespace(&name.namespace));
            stale.extend(declared.filter(|service| !service.selector.is_empty()).map(|service| key(service)));
        }
    }

    /// A namespace's policy decides what is expected of the services there, and what its own proxies take.
    pub(super) fn take_policies(&mut self, mesh: &Mesh, next: &mut Mesh) {
        let (old, new) = (&mesh.objects.peer_authentications, &next.objects.peer_authentications);
        if !changed(old, new) {
            return;
        }
        next.peer_authentications = Arc::new(PeerAuthentications::new(new, &next.config.root_namespace));
        for namespace in differing(old, new).into_iter().map(|name| name.namespace) {
            let declared = next.services_in(&namespace).chain(next.entries.in_namespace(&namespace));
            self.endpoints.extend(declared.map(|service| (key(service), true)));
            self.namespaces.insert(namespace);
        }
    }

    /// Keys hold what objects decide about a workload: only its class may change.
    pub(super) fn take_telemetries(&mut self, mesh: &Mesh, next: &mut Mesh) {
        let differing = differing(&mesh.objects.telemetries, &next.objects.telemetries);
        if differing.is_empty() {
            return;
        }
        next.telemetries = Arc::new(telemetries(&next.objects));
        for name in differing {
            self.rekeyed |= *name.namespace == *mesh.config.root_namespace;
            self.namespaces.insert(name.namespace);
        }
    }

    /// Keys hold which patches count; what those say is compared where they are applied.
    pub(super) fn take_filters(&mut self, mesh: &Mesh, next: &mut Mesh) {
        for name in differing(&mesh.objects.envoy_filters, &next.objects.envoy_filters) {
            next.envoy_filters.put(&name, next.objects.envoy_filters.get(&name));
            self.rekeyed |= *name.namespace == *mesh.config.root_namespace;
            self.namespaces.insert(name.namespace);
        }
    }

    pub(super) fn take_plugins(&mut self, mesh: &Mesh, next: &Mesh) {
        let plugins = differing(&mesh.objects.wasm_plugins, &next.objects.wasm_plugins);
        let extensions = differing(&mesh.objects.traffic_extensions, &next.objects.traffic_extensions);
        for name in plugins.into_iter().chain(extensions) {
            self.rekeyed |= *name.namespace == *mesh.config.root_namespace;
            self.namespaces.insert(name.namespace);
        }
    }

    /// After services, which scopes are cut from too.
    pub(super) fn take_scopes(&mut self, mesh: &Mesh, next: &mut Mesh) {
        let domain = &mesh.env.domain;
        let (mut routes, mut rules) = (Vec::new(), BTreeSet::new());
        if changed(&mesh.objects.virtual_services, &next.objects.virtual_services) {
            let (index, changes) = mesh.virtual_services.next(&mesh.objects.virtual_services, &next.objects, domain);
            (next.virtual_services, routes) = (Arc::new(index), changes);
            let sides = routes.iter().flat_map(RouteChange::sides);
            self.routed = sides.flat_map(|object| object.bound_to().cloned()).collect();
        }
        let (old, new) = (&mesh.objects.destination_rules, &next.objects.destination_rules);
        if changed(old, new) {
            let (all, changes) = mesh.destination_rules.next(old, new, &mesh.config, domain);
            (next.destination_rules, rules) = (Arc::new(all), changes);
        }
        let sidecars = differing(&mesh.objects.sidecars, &next.objects.sidecars);
        for name in &sidecars {
            self.rekeyed |= *name.namespace == *mesh.config.root_namespace;
            self.namespaces.insert(name.namespace.clone());
        }
        let changes = ScopeChanges { services: &self.services, routes: &routes, rules: &rules, sidecars: &sidecars };
        if changes.is_empty() {
            return;
        }
        self.scopes = !(routes.is_empty() && rules.is_empty() && sidecars.is_empty());
        next.scopes = mesh.scopes.next(next, &changes);
        next.client_facts = Arc::new(next.made_client_facts());
    }

    /// After VirtualServices, which say what routers need.
    pub(super) fn take_gateways(&mut self, mesh: &Mesh, next: &mut Mesh) {
        self.gateways = !differing(&mesh.objects.gateways, &next.objects.gateways).is_empty();
        if self.gateways {
            next.gateways = Arc::new(Gateways::new(&next.objects, &next.ingress.gateways));
            self.rekeyed |= next.gateways.label_keys != mesh.gateways.label_keys;
        }
        // Which clusters a router gets hangs on both.
        self.everything |= mesh.env.filter_gateway_clusters && (self.gateways || !self.routed.is_empty());
    }
}

/// Objects that say something else: annotations and labels of these kinds say nothing.
fn differing<S: PartialEq>(old: &Table<S>, new: &Table<S>) -> BTreeSet<Name> {
    if old.ptr_eq(new) {
        return BTreeSet::new();
    }
    let says_the_same = |old: &Object<S>, new: &Object<S>| old.spec == new.spec && old.meta.created == new.meta.created;
    let names = old.diff(new).filter_map(|item| match sides(&item) {
        (Some(old), Some(new)) if says_the_same(old, new) => None,
        (old, new) => old.or(new).map(|object| name_of(object)),
    });
    names.collect()
}
