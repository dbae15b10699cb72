//! What changes of Istio's kinds affect: services and workloads that they declare, policies of a namespace, and the inputs of scopes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use config::meta::Object;
use config::store::{Name, Snapshot, Table};

use super::{ChangedServices, Delta, ServiceChange, changed, changed_names, name_of, sides};
use crate::authn::PeerAuthentications;
use crate::gateway::Gateways;
use crate::input::Input;
use crate::mesh::{Mesh, declared_entries, key, telemetries};
use crate::plugin;
use crate::scopes::ScopeChanges;
use crate::service_entry::EntryServices;
use crate::service_entry_endpoint::{ListedWorkloads, WorkloadEntries};
use crate::virtual_service::RouteChange;

/// Policies of the root namespace apply to the whole mesh.
pub(super) fn root_policy_changed(old: &Snapshot, new: &Snapshot) -> bool {
    let differing = changed_specs(&old.peer_authentications, &new.peer_authentications);
    differing.iter().any(|name| *name.namespace == *new.mesh.root_namespace)
}

impl Delta {
    pub(super) fn apply_service_entries(&mut self, mesh: &Mesh, next: &mut Mesh, touched: &mut ChangedServices) {
        let (old, new) = (&mesh.objects.service_entries, &next.objects.service_entries);
        if !changed(old, new) {
            return;
        }
        let entries = declared_entries(&next.objects, &mesh.env.addresses).keep_unchanged(&mesh.entry_services);
        for item in old.diff(new) {
            let (old, new) = sides(&item);
            for object in old.into_iter().chain(new) {
                let host = |name: &String| Name::new(&object.meta.namespace, Host::new(name).as_str());
                touched.stale.extend(object.spec.hosts.iter().map(host));
            }
            if old.map(|object| &object.spec) != new.map(|object| &object.spec) {
                self.0.extend(old.or(new).map(|object| Input::Workloads(object.meta.namespace.clone())));
            }
        }
        for name in mesh.entry_services.keys().chain(entries.keys()).collect::<BTreeSet<_>>() {
            let of = |entries: &EntryServices| entries.of(name).cloned().collect::<Vec<_>>();
            let (old, new) = (of(&mesh.entry_services), of(&entries));
            if old != new {
                let ServiceChange { old: was, new: is } = touched.services.entry(name.clone()).or_default();
                was.extend(old);
                is.extend(new);
                touched.stale.insert(name.clone());
            }
        }
        next.listed_workloads = Arc::new(ListedWorkloads::new(&entries, &next.objects));
        next.entry_services = Arc::new(entries);
    }

    pub(super) fn apply_workload_entries(&mut self, mesh: &Mesh, next: &mut Mesh, touched: &mut ChangedServices) {
        let objects = next.objects.clone();
        let (old, new) = (&mesh.objects.workload_entries, &objects.workload_entries);
        if !changed(old, new) {
            return;
        }
        next.workload_entries = Arc::new(WorkloadEntries::new(&objects));
        let names = old.diff(new).filter_map(|item| {
            let (old, new) = sides(&item);
            old.or(new).map(|object| name_of(object))
        });
        for name in names.filter(|name| mesh.workload_entries.named(name) != next.workload_entries.named(name)) {
            self.touch(Input::Workloads(name.namespace.clone()));
            let declared = next.services_in(&name.namespace).chain(next.entry_services.in_namespace(&name.namespace));
            touched.stale.extend(declared.filter(|service| service.selector.is_some()).map(|service| key(service)));
        }
    }

    /// The policy of a namespace decides the mutual TLS mode that clients assume for its services, and the inbound mode of its proxies.
    pub(super) fn apply_peer_authentications(&mut self, mesh: &Mesh, next: &mut Mesh) {
        let (old, new) = (&mesh.objects.peer_authentications, &next.objects.peer_authentications);
        if !changed(old, new) {
            return;
        }
        next.peer_authentications = Arc::new(PeerAuthentications::new(new, &next.config.root_namespace));
        for namespace in changed_specs(old, new).into_iter().map(|name| name.namespace) {
            let declared = next.services_in(&namespace).chain(next.entry_services.in_namespace(&namespace));
            self.0.extend(declared.map(|service| Input::MutualTls(key(service))));
            self.touch(Input::PeerAuthentication(namespace));
        }
    }

    /// Class keys hold the resolved telemetry of a workload: only its class may change.
    pub(super) fn apply_telemetries(&mut self, mesh: &Mesh, next: &mut Mesh) {
        let differing = changed_specs(&mesh.objects.telemetries, &next.objects.telemetries);
        if differing.is_empty() {
            return;
        }
        next.telemetries = Arc::new(telemetries(&next.objects));
        self.0.extend(differing.into_iter().map(|name| Input::Telemetry(name.namespace)));
    }

    /// Class keys hold the ids of patches; their content is compared where they are applied.
    pub(super) fn apply_envoy_filters(&mut self, mesh: &Mesh, next: &mut Mesh) {
        for name in changed_specs(&mesh.objects.envoy_filters, &next.objects.envoy_filters) {
            next.envoy_filters.put(&name, next.objects.envoy_filters.get(&name));
            self.touch(Input::EnvoyFilters(name.namespace));
        }
    }

    pub(super) fn apply_plugins(&mut self, mesh: &Mesh, next: &Mesh) {
        let plugins = changed_specs(&mesh.objects.wasm_plugins, &next.objects.wasm_plugins);
        let extensions = changed_specs(&mesh.objects.traffic_extensions, &next.objects.traffic_extensions);
        let mut secrets = changed_names(&mesh.objects.secrets, &next.objects.secrets);
        secrets.retain(|name| plugin::is_pull_secret(&next.objects, name));
        let touched = plugins.into_iter().chain(extensions).chain(secrets);
        self.0.extend(touched.map(|name| Input::Plugins(name.namespace)));
    }

    /// Runs after services, which are inputs of scopes.
    pub(super) fn apply_scopes(&mut self, mesh: &Mesh, next: &mut Mesh, services: &BTreeMap<Name, ServiceChange>) {
        let domain = &mesh.env.domain;
        let (mut routes, mut rules) = (Vec::new(), BTreeSet::new());
        if changed(&mesh.objects.virtual_services, &next.objects.virtual_services) {
            let (index, changes) = mesh.virtual_services.next(&mesh.objects.virtual_services, &next.objects, domain);
            (next.virtual_services, routes) = (Arc::new(index), changes);
            for object in routes.iter().flat_map(RouteChange::sides) {
                self.touch(Input::VirtualService(Name::new(&object.namespace, &object.name)));
                self.0.extend(object.bound_to().cloned().map(Input::GatewayRoutes));
            }
        }
        let (old, new) = (&mesh.objects.destination_rules, &next.objects.destination_rules);
        if changed(old, new) {
            let (all, changes) = mesh.destination_rules.next(old, new, &mesh.config, domain);
            (next.destination_rules, rules) = (Arc::new(all), changes);
            self.0.extend(rules.iter().cloned().map(Input::DestinationRule));
        }
        let sidecars = changed_specs(&mesh.objects.sidecars, &next.objects.sidecars);
        self.0.extend(sidecars.iter().cloned().map(Input::Sidecar));
        let changes = ScopeChanges { services, routes: &routes, rules: &rules, sidecars: &sidecars };
        if changes.is_empty() {
            return;
        }
        next.scopes = mesh.scopes.next(next, &changes);
        next.client_facts = Arc::new(next.build_client_facts());
    }

    /// Runs after VirtualServices, which decide the clusters that gateways need.
    pub(super) fn apply_gateways(&mut self, mesh: &Mesh, next: &mut Mesh) {
        if !changed_specs(&mesh.objects.gateways, &next.objects.gateways).is_empty() {
            next.gateways = Arc::new(Gateways::new(&next.objects, &next.ingress.gateways));
            self.touch(Input::Gateways);
            self.touch_if(next.gateways.label_keys != mesh.gateways.label_keys, Input::ClassKeys);
        }
        // The clusters of a gateway depend on both.
        let rerouted = self.inputs().any(|input| matches!(input, Input::Gateways | Input::GatewayRoutes(_)));
        self.touch_if(mesh.env.filter_gateway_clusters && rerouted, Input::Everything);
    }
}

/// Objects with another spec: annotations and labels of these kinds have no effect.
fn changed_specs<S: PartialEq>(old: &Table<S>, new: &Table<S>) -> BTreeSet<Name> {
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
