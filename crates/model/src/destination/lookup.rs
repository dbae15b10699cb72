//! Which rules hold for a client and a service: the client's namespace first, then the service's, then the root's.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::host::Host;
use config::kinds::destination_rule::DestinationRule;
use config::mesh::MeshConfig;
use config::meta::Object;
use config::store::Table;

use super::{Destination, merge};
use crate::service::Service;

/// All rules of the mesh, merged and ordered for lookup.
#[derive(Debug, Clone, Default)]
pub(crate) struct DestinationRules {
    root: String,
    /// What clients of the same namespace heed.
    home: BTreeMap<Arc<str>, Pool>,
    /// What clients of other namespaces may see.
    exported: BTreeMap<Arc<str>, Pool>,
    /// Rules that the root namespace keeps to itself.
    root_home: Pool,
}

impl DestinationRules {
    pub(crate) fn new(objects: &Table<DestinationRule>, config: &MeshConfig, domain: &str) -> Self {
        let mut ordered: Vec<_> = objects.values().collect();
        ordered.sort_by(|a, b| {
            let selected = |object: &Object<DestinationRule>| object.spec.workload_selector.is_none();
            selected(a).cmp(&selected(b)).then_with(|| a.meta.age_order(&b.meta))
        });
        let mut rules = Self { root: config.root_namespace.clone(), ..Self::default() };
        for object in ordered {
            rules.add(object, config, domain);
        }
        rules
    }

    fn add(&mut self, object: &Object<DestinationRule>, config: &MeshConfig, domain: &str) {
        let own = &object.meta.namespace;
        let host = Host::resolve_short(&object.spec.host, own, domain);
        let exports = merge::Exports::new(&object.spec);
        if exports.at_home(own) {
            self.home.entry(own.clone()).or_default().add(object, &host);
        }
        if !exports.only_at_home(own, &config.default_destination_rule_export_to) {
            self.exported.entry(own.clone()).or_default().add(object, &host);
        } else if **own == *self.root {
            self.root_home.add(object, &host);
        }
    }

    pub(super) fn of(&self, client: &str, service: &Service) -> Vec<Arc<Destination>> {
        // Rules of the root namespace are for everybody: its own proxies look at the services' first.
        let home = if *client == *self.root { Some(&self.root_home) } else { self.home.get(client) };
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
    exact: BTreeMap<Host, Vec<Arc<Destination>>>,
    wildcard: BTreeMap<Host, Vec<Arc<Destination>>>,
}

impl Pool {
    fn add(&mut self, object: &Object<DestinationRule>, host: &Host) {
        let rules = if host.is_wildcard() { &mut self.wildcard } else { &mut self.exact };
        merge::add(rules.entry(host.clone()).or_default(), object, host);
    }

    /// The name itself, else the longest wildcard that covers it.
    fn most_specific(&self, host: &Host) -> Option<&[Arc<Destination>]> {
        if let Some(found) = self.exact.get(host).or_else(|| self.wildcard.get(host)) {
            return Some(found);
        }
        let covering = self.wildcard.iter().filter(|(wild, _)| host.is_subset_of(wild));
        covering.max_by_key(|(wild, _)| wild.as_str().len()).map(|(_, rules)| rules.as_slice())
    }
}
