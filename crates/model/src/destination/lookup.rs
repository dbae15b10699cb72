//! DestinationRule lookup for a client and a service: the client's namespace first, then the service's, then the root namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::host::Host;
use config::kinds::destination_rule::DestinationRule;
use config::mesh::MeshConfig;
use config::meta::Object;
use config::store::{Name, Table};
use imbl::OrdMap;

use super::{MergedDestinationRule, merge};
use crate::service::Service;

/// All rules of the mesh, merged and indexed.
#[derive(Debug, Clone, Default)]
pub(crate) struct DestinationRules {
    root: String,
    /// Rules that apply to clients of the same namespace.
    own_namespace: OrdMap<Arc<str>, Pool>,
    /// Rules that are exported to clients of other namespaces.
    exported: OrdMap<Arc<str>, Pool>,
    /// Private rules of the root namespace.
    root_private: Pool,
}

impl DestinationRules {
    pub(crate) fn new(objects: &Table<DestinationRule>, config: &MeshConfig, domain: &str) -> Self {
        let mut rules = Self { root: config.root_namespace.clone(), ..Self::default() };
        rules.add_all(objects.values(), config, domain);
        rules
    }

    /// After a change of DestinationRules alone, with the hosts whose rules changed.
    pub(crate) fn next(
        &self,
        old: &Table<DestinationRule>,
        new: &Table<DestinationRule>,
        config: &MeshConfig,
        domain: &str,
    ) -> (Self, BTreeSet<Host>) {
        let host =
            |object: &Object<DestinationRule>| Host::resolve_short(&object.spec.host, &object.meta.namespace, domain);
        let mut touched: BTreeSet<(Arc<str>, Host)> = BTreeSet::new();
        for item in old.diff(new) {
            let (old, new) = crate::delta::sides(&item);
            touched.extend(old.into_iter().chain(new).map(|object| (object.meta.namespace.clone(), host(object))));
        }
        let mut next = self.clone();
        let mut changed = BTreeSet::new();
        for (namespace, about) in touched {
            next.forget(&namespace, &about);
            let here = new.range(Name::new(&namespace, "")..).take_while(|(name, _)| name.namespace == namespace);
            let here = here.map(|(_, object)| object).filter(|object| host(object) == about);
            next.add_all(here, config, domain);
            if next.keep_equal(self, &namespace, &about) {
                changed.insert(about);
            }
        }
        (next, changed)
    }

    fn add_all<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a Arc<Object<DestinationRule>>>,
        config: &MeshConfig,
        domain: &str,
    ) {
        let mut ordered: Vec<_> = objects.collect();
        ordered.sort_by(|a, b| {
            let selected = |object: &Object<DestinationRule>| object.spec.workload_selector.is_none();
            selected(a).cmp(&selected(b)).then_with(|| a.meta.age_order(&b.meta))
        });
        for object in ordered {
            self.add(object, config, domain);
        }
    }

    fn pools(&mut self, namespace: &Arc<str>) -> [&mut Pool; 3] {
        [
            self.own_namespace.entry(namespace.clone()).or_default(),
            self.exported.entry(namespace.clone()).or_default(),
            &mut self.root_private,
        ]
    }

    fn forget(&mut self, namespace: &Arc<str>, host: &Host) {
        let in_root = **namespace == *self.root;
        let [home, exported, root_home] = self.pools(namespace);
        home.rules_mut(host).remove(host);
        exported.rules_mut(host).remove(host);
        if in_root {
            root_home.rules_mut(host).remove(host);
        }
    }

    /// Keeps the pointers of rules that are equal to those before. Returns whether any rule differs.
    fn keep_equal(&mut self, before: &Self, namespace: &Arc<str>, host: &Host) -> bool {
        let mut before = before.clone();
        let pairs = self.pools(namespace).into_iter().zip(before.pools(namespace));
        let mut changed = false;
        for (pool, before) in pairs {
            let (rules, previous) = (pool.rules_mut(host), before.rules_mut(host).get(host));
            if rules.get(host) != previous {
                changed = true;
            } else if let Some(previous) = previous {
                rules.insert(host.clone(), previous.clone());
            }
        }
        changed
    }

    fn add(&mut self, object: &Object<DestinationRule>, config: &MeshConfig, domain: &str) {
        let own = &object.meta.namespace;
        let host = Host::resolve_short(&object.spec.host, own, domain);
        let exports = merge::Exports::new(&object.spec);
        if exports.applies_to_own_namespace(own) {
            self.own_namespace.entry(own.clone()).or_default().add(object, &host);
        }
        if !exports.is_private(own, &config.default_destination_rule_export_to) {
            self.exported.entry(own.clone()).or_default().add(object, &host);
        } else if **own == *self.root {
            self.root_private.add(object, &host);
        }
    }

    pub(super) fn of(&self, client: &str, service: &Service) -> Vec<Arc<MergedDestinationRule>> {
        // Rules of the root namespace apply to the whole mesh: its own proxies look at those of the service's namespace first.
        let home = if *client == *self.root { Some(&self.root_private) } else { self.own_namespace.get(client) };
        if let Some(found) = home.and_then(|pool| pool.most_specific(&service.host)) {
            return found.to_vec();
        }
        let exported = |namespace: &str| {
            let found = self.exported.get(namespace).and_then(|pool| pool.most_specific(&service.host));
            let mut seen = found.unwrap_or_default().to_vec();
            seen.retain(|rule| rule.exports().allows(client));
            Some(seen).filter(|rules| !rules.is_empty())
        };
        exported(&service.namespace).or_else(|| exported(&self.root)).unwrap_or_default()
    }
}

/// Rules by host, exact names apart from wildcards.
#[derive(Debug, Clone, Default)]
struct Pool {
    exact: OrdMap<Host, Vec<Arc<MergedDestinationRule>>>,
    wildcard: OrdMap<Host, Vec<Arc<MergedDestinationRule>>>,
}

impl Pool {
    fn add(&mut self, object: &Object<DestinationRule>, host: &Host) {
        merge::add(self.rules_mut(host).entry(host.clone()).or_default(), object, host);
    }

    fn rules_mut(&mut self, host: &Host) -> &mut OrdMap<Host, Vec<Arc<MergedDestinationRule>>> {
        if host.is_wildcard() { &mut self.wildcard } else { &mut self.exact }
    }

    /// The name itself, else the longest wildcard that covers it.
    fn most_specific(&self, host: &Host) -> Option<&[Arc<MergedDestinationRule>]> {
        if let Some(found) = self.exact.get(host).or_else(|| self.wildcard.get(host)) {
            return Some(found);
        }
        let covering = self.wildcard.iter().filter(|(wild, _)| host.is_subset_of(wild));
        covering.max_by_key(|(wild, _)| wild.as_str().len()).map(|(_, rules)| rules.as_slice())
    }
}
