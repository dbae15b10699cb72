//! Clusters and load assignments, translated once per service, DestinationRule and client kind, whichever scopes import them. Patches are
//! applied to what a layer takes from here.

use std::collections::HashSet;
use std::sync::Arc;

use config::host::Host;
use imbl::HashMap;
use model::{Delta, Input, MergedDestinationRule, Mesh, OutboundKey, Placement, Service};

use crate::layer::EncodedResource;
use crate::{dependencies, layer_kinds, render};

/// Cheap to clone: the clone shares what it does not change.
#[derive(Clone, Default)]
pub(crate) struct ResourceCache {
    clients: HashMap<OutboundKey, usize>,
    next_client: usize,
    /// By namespace and host.
    entries: HashMap<(Arc<str>, Host), Arc<Vec<CacheEntry>>>,
    /// Entries added since the last sweep, and entries left by it.
    added: usize,
    left: usize,
}

/// Below this number of new entries a sweep is not worth its cost.
const MIN_ADDED: usize = 1000;

/// For a service and its rule, compared by address: the entry holds both, so that their addresses are not reused.
#[derive(Clone)]
struct CacheEntry {
    client: usize,
    service: Arc<Service>,
    rule: Option<Arc<MergedDestinationRule>>,
    clusters: Arc<[EncodedResource]>,
    load_assignments: LoadAssignments,
}

#[derive(Clone)]
enum LoadAssignments {
    Current(Arc<[EncodedResource]>),
    /// The endpoints changed since. The names are still those of the clusters.
    Outdated(Arc<[EncodedResource]>),
}

impl ResourceCache {
    pub(crate) fn client_id(&mut self, key: &OutboundKey) -> usize {
        let client = key.client();
        if let Some(id) = self.clients.get(&client) {
            return *id;
        }
        self.next_client += 1;
        self.clients.insert(client, self.next_client);
        self.next_client
    }

    /// Drops what was translated for kinds of clients that no layer is for any more.
    pub(crate) fn retain_clients(&mut self, in_use: &HashSet<usize>) {
        let before = self.clients.len();
        self.clients.retain(|_, id| in_use.contains(id));
        if self.clients.len() < before {
            self.retain_entries(|entry, _| in_use.contains(&entry.client));
        }
    }

    fn retain_entries(&mut self, keep: impl Fn(&CacheEntry, &[CacheEntry]) -> bool) {
        let unneeded = |of_host: &[CacheEntry]| !of_host.iter().all(|entry| keep(entry, of_host));
        let swept = self.entries.iter().filter(|(_, of_host)| unneeded(of_host));
        let swept: Vec<_> = swept
            .map(|(key, of_host)| {
                let needed: Vec<CacheEntry> = of_host.iter().filter(|entry| keep(entry, of_host)).cloned().collect();
                (key.clone(), Arc::new(needed))
            })
            .collect();
        for (key, needed) in swept {
            if needed.is_empty() {
                self.entries.remove(&key)
            } else {
                self.entries.insert(key, needed)
            };
        }
    }

    /// The clusters of a service, and their load assignments.
    pub(crate) fn service_resources(
        &mut self,
        mesh: &Mesh,
        client: usize,
        placement: &Placement,
        service: &Arc<Service>,
    ) -> Vec<EncodedResource> {
        let (clusters, load_assignments) = self.translated(mesh, client, placement, service);
        clusters.iter().chain(&*load_assignments).cloned().collect()
    }

    /// The load assignments of a service. Its clusters are translated only if they never were.
    pub(crate) fn load_assignments(
        &mut self,
        mesh: &Mesh,
        client: usize,
        placement: &Placement,
        service: &Arc<Service>,
    ) -> Vec<EncodedResource> {
        self.translated(mesh, client, placement, service).1.to_vec()
    }

    fn translated(
        &mut self,
        mesh: &Mesh,
        client: usize,
        placement: &Placement,
        service: &Arc<Service>,
    ) -> (Arc<[EncodedResource]>, Arc<[EncodedResource]>) {
        let rule = placement.destination_rule(&service.host);
        let key = (service.namespace.clone(), service.host.clone());
        let known = self.entries.get(&key).map(|of_host| of_host.as_slice()).unwrap_or_default();
        let at = known.iter().position(|entry| entry.is_for(client, service, rule));
        let (clusters, load_assignments) = match at.map(|at| &known[at]) {
            Some(CacheEntry { clusters, load_assignments: LoadAssignments::Current(current), .. }) => {
                return (clusters.clone(), current.clone());
            }
            Some(CacheEntry { clusters, load_assignments: LoadAssignments::Outdated(before), .. }) => {
                let names = before.iter().map(|encoded| &encoded.resource.name);
                let made = names.map(|name| EncodedResource::new(render::render_endpoints(mesh, placement, name)));
                (clusters.clone(), made.collect::<Arc<[_]>>())
            }
            None => {
                let (clusters, made) = layer_kinds::translate_service(mesh, placement, service);
                let clusters = clusters.into_iter().map(layer_kinds::render_cluster).map(EncodedResource::new);
                (clusters.collect(), made.into_iter().map(EncodedResource::new).collect())
            }
        };
        let entry = CacheEntry {
            client,
            service: service.clone(),
            rule: rule.cloned(),
            clusters: clusters.clone(),
            load_assignments: LoadAssignments::Current(load_assignments.clone()),
        };
        let of_host = Arc::make_mut(self.entries.entry(key).or_default());
        match at {
            Some(at) => of_host[at] = entry,
            None => {
                of_host.push(entry);
                self.added += 1;
            }
        }
        (clusters, load_assignments)
    }

    /// Drops what a change affects, and now and then what no scope imports any more.
    pub(crate) fn invalidate(&mut self, delta: &Delta) {
        for input in delta.inputs() {
            match input {
                Input::Everything => *self = Self::default(),
                Input::Service(name) | Input::Endpoints(name) | Input::MutualTls(name) => {
                    self.invalidate_service(input, (name.namespace.clone(), Host::new(&name.name)));
                }
                _ => {}
            }
        }
        // Amortised: a change costs what it affects, so the sweep comes after the number of entries doubled.
        if self.added > self.left.max(MIN_ADDED) {
            self.retain_entries(CacheEntry::is_needed);
            (self.added, self.left) = (0, self.entries.values().map(|of_host| of_host.len()).sum());
        }
    }

    /// Keeps the clusters that do not read the input.
    fn invalidate_service(&mut self, input: &Input, key: (Arc<str>, Host)) {
        let Some(of_host) = self.entries.get(&key) else { return };
        let kept = of_host.iter().filter(|entry| !dependencies::is_read_by_clusters(input, &entry.service));
        let kept: Vec<_> = kept.map(CacheEntry::outdated).collect();
        if kept.is_empty() { drop(self.entries.remove(&key)) } else { drop(self.entries.insert(key, Arc::new(kept))) }
    }
}

impl CacheEntry {
    fn outdated(&self) -> Self {
        let (LoadAssignments::Current(made) | LoadAssignments::Outdated(made)) = &self.load_assignments;
        Self { load_assignments: LoadAssignments::Outdated(made.clone()), ..self.clone() }
    }

    fn is_for(&self, client: usize, service: &Arc<Service>, rule: Option<&Arc<MergedDestinationRule>>) -> bool {
        let same_rule = match (&self.rule, rule) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        };
        same_rule && self.client == client && Arc::ptr_eq(&self.service, service)
    }

    /// A scope imports the service, and the rule is in force.
    fn is_needed(&self, of_host: &[CacheEntry]) -> bool {
        let in_force = |rule| has_others(rule, of_host.iter().filter_map(|entry| entry.rule.as_ref()));
        has_others(&self.service, of_host.iter().map(|entry| &entry.service)) && self.rule.as_ref().is_none_or(in_force)
    }
}

/// Whether anything besides these references holds it.
fn has_others<'a, T: 'a>(shared: &Arc<T>, known: impl Iterator<Item = &'a Arc<T>>) -> bool {
    Arc::strong_count(shared) > known.filter(|other| Arc::ptr_eq(shared, other)).count()
}

#[cfg(test)]
mod tests {
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};
    use model::{Environment, NodeInfo, Proxy};
    use xds::TypeUrl;

    use super::*;

    fn endpoints(address: &str) -> String {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: cart, namespace: shop, labels: {{kubernetes.io/service-name: cart}}}}, addressType: IPv4, ports: [{{name: http, port: 80}}], endpoints: [{{addresses: [{address}]}}]}}"
        )
    }

    #[test]
    fn an_endpoint_change_translates_no_cluster() {
        let service = "{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}}";
        let puts = |text: &str| parse_documents("test", text).objects.into_iter().map(Update::Put).collect();
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        store.apply(puts(service));
        let first = Mesh::new(&store.apply(puts(&endpoints("10.10.0.1"))), &Arc::new(Environment::default()));
        let (second, delta) = first.next(&store.apply(puts(&endpoints("10.10.0.2"))));
        let id = "sidecar~10.10.0.9~a.shop~shop.svc.cluster.local".to_owned();
        let proxy = Arc::new(Proxy::new(&NodeInfo { id, ..NodeInfo::default() }).expect("well-formed"));
        let mut cache = ResourceCache::default();
        let translated = |cache: &mut ResourceCache, mesh: &Mesh| {
            let placement = mesh.place(&proxy);
            cache.service_resources(mesh, 1, &placement, &placement.scope.services[0])
        };
        let before = translated(&mut cache, &first);
        cache.invalidate(&delta);
        let after = translated(&mut cache, &second);
        assert_eq!(
            before.iter().map(|encoded| encoded.kind).collect::<Vec<_>>(),
            [TypeUrl::Cluster, TypeUrl::Endpoints]
        );
        assert!(
            Arc::ptr_eq(&before[0].resource, &after[0].resource),
            "the cluster is the one that was translated first"
        );
        assert_ne!(before[1].resource.version, after[1].resource.version);
    }

    #[test]
    fn an_entry_that_only_the_cache_holds_is_unneeded() {
        let rule = Arc::new(7);
        let ours = [rule.clone(), rule.clone(), Arc::new(7)];
        assert!(has_others(&ours[0], ours.iter()));
        drop(rule);
        assert!(ours.iter().all(|shared| !has_others(shared, ours.iter())));
    }
}
