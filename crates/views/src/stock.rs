//! Clusters and load assignments that several layers hold: made once for each service, rule and kind of client, whichever scopes import
//! them. Patches are applied to what a layer takes from here.

use std::collections::HashMap;
use std::sync::Arc;

use config::host::Host;
use model::{Delta, Destination, Mesh, OutboundKey, Placement, Service};
use xds::{Resource, TypeUrl};

use crate::layer::Ware;
use crate::parts;

#[derive(Default)]
pub(crate) struct Stock {
    clients: HashMap<OutboundKey, usize>,
    /// By namespace and host.
    made: HashMap<(Arc<str>, Host), Vec<Kept>>,
    /// How many were made since what nobody needs any more was last dropped, and how many were left then.
    added: usize,
    left: usize,
}

/// Not worth a look.
const FEW: usize = 1000;

/// For a service as it is in memory, and the rule for it: kept, so that nothing else can be where they are.
struct Kept {
    client: usize,
    service: Arc<Service>,
    rule: Option<Arc<Destination>>,
    resources: Vec<(TypeUrl, Arc<Resource>)>,
}

impl Stock {
    pub(crate) fn client(&mut self, key: &OutboundKey) -> usize {
        let next = self.clients.len();
        *self.clients.entry(key.client()).or_insert(next)
    }

    /// The clusters of a service, and their load assignments.
    pub(crate) fn of_service(
        &mut self,
        mesh: &Mesh,
        client: usize,
        placement: &Placement,
        service: &Arc<Service>,
    ) -> Vec<Ware> {
        let rule = placement.destination(&service.host);
        let of_host = self.made.entry((service.namespace.clone(), service.host.clone())).or_default();
        let known = of_host.iter().position(|kept| kept.is_for(client, service, rule));
        let at = known.unwrap_or_else(|| {
            let (clusters, endpoints) = parts::of_service(mesh, placement, service);
            let made = clusters.into_iter().map(parts::cluster).chain(endpoints).map(Ware::new);
            let resources = made.map(|ware| (ware.kind, ware.resource)).collect();
            of_host.push(Kept { client, service: service.clone(), rule: rule.cloned(), resources });
            self.added += 1;
            of_host.len() - 1
        });
        let resources = of_host[at].resources.iter();
        resources.map(|(kind, resource)| Ware { kind: *kind, resource: resource.clone() }).collect()
    }

    /// What a change touches, and what nobody imports any more.
    pub(crate) fn forget(&mut self, delta: &Delta) {
        if delta.everything {
            *self = Self::default();
        }
        for name in delta.endpoints.keys().chain(delta.services.keys()) {
            self.made.remove(&(name.namespace.clone(), Host::new(&name.name)));
        }
        // A change costs what it touches, not what there is: the look comes after as many again were made.
        if self.added > self.left.max(FEW) {
            self.made.retain(|_, of_host| {
                let needed: Vec<bool> = of_host.iter().map(|kept| kept.is_needed(of_host)).collect();
                let mut needed = needed.into_iter();
                of_host.retain(|_| needed.next().unwrap_or_default());
                !of_host.is_empty()
            });
            (self.added, self.left) = (0, self.made.values().map(Vec::len).sum());
        }
    }
}

impl Kept {
    fn is_for(&self, client: usize, service: &Arc<Service>, rule: Option<&Arc<Destination>>) -> bool {
        let ruled = match (&self.rule, rule) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        };
        ruled && self.client == client && Arc::ptr_eq(&self.service, service)
    }

    /// Some scope imports the service, and the rule is in force.
    fn is_needed(&self, of_host: &[Kept]) -> bool {
        let in_force = |rule| has_others(rule, of_host.iter().filter_map(|kept| kept.rule.as_ref()));
        has_others(&self.service, of_host.iter().map(|kept| &kept.service)) && self.rule.as_ref().is_none_or(in_force)
    }
}

/// Somebody beside these holds it.
fn has_others<'a, T: 'a>(held: &Arc<T>, by: impl Iterator<Item = &'a Arc<T>>) -> bool {
    Arc::strong_count(held) > by.filter(|other| Arc::ptr_eq(held, other)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_does_not_need_what_it_holds_alone() {
        let rule = Arc::new(7);
        let ours = [rule.clone(), rule.clone(), Arc::new(7)];
        assert!(has_others(&ours[0], ours.iter()));
        drop(rule);
        assert!(ours.iter().all(|held| !has_others(held, ours.iter())));
    }
}
