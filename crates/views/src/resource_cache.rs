//! Clusters and load assignments, translated once per service, DestinationRule and client kind, whichever scopes import them. Patches are
//! applied to what a layer takes from here.

use std::collections::HashSet;
use std::sync::Arc;

use config::host::Host;
use imbl::HashMap;
use model::{Delta, MergedDestinationRule, Mesh, OutboundKey, Placement, Service};

use crate::layer::EncodedResource;
use crate::layer_kinds;

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
    resources: Arc<[EncodedResource]>,
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
        let rule = placement.destination_rule(&service.host);
        let key = (service.namespace.clone(), service.host.clone());
        let known = self.entries.get(&key).into_iter().flat_map(|of_host| of_host.iter());
        if let Some(entry) = known.into_iter().find(|entry| entry.is_for(client, service, rule)) {
            return entry.resources.to_vec();
        }
        let (clusters, endpoints) = layer_kinds::translate_service(mesh, placement, service);
        let encoded = clusters.into_iter().map(layer_kinds::render_cluster).chain(endpoints).map(EncodedResource::new);
        let resources: Arc<[EncodedResource]> = encoded.collect();
        let entry = CacheEntry { client, service: service.clone(), rule: rule.cloned(), resources: resources.clone() };
        Arc::make_mut(self.entries.entry(key).or_default()).push(entry);
        self.added += 1;
        resources.to_vec()
    }

    /// Drops what a change affects, and now and then what no scope imports any more.
    pub(crate) fn invalidate(&mut self, delta: &Delta) {
        if delta.everything {
            *self = Self::default();
        }
        for name in delta.endpoints.keys().chain(delta.services.keys()) {
            self.entries.remove(&(name.namespace.clone(), Host::new(&name.name)));
        }
        // Amortised: a change costs what it affects, so the sweep comes after the number of entries doubled.
        if self.added > self.left.max(MIN_ADDED) {
            self.retain_entries(CacheEntry::is_needed);
            (self.added, self.left) = (0, self.entries.values().map(|of_host| of_host.len()).sum());
        }
    }
}

impl CacheEntry {
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
    use super::*;

    #[test]
    fn an_entry_that_only_the_cache_holds_is_unneeded() {
        let rule = Arc::new(7);
        let ours = [rule.clone(), rule.clone(), Arc::new(7)];
        assert!(has_others(&ours[0], ours.iter()));
        drop(rule);
        assert!(ours.iter().all(|shared| !has_others(shared, ours.iter())));
    }
}
