//! Clusters and load assignments that several layers hold: made once for each service, rule and kind of client, whichever scopes import
//! them. Patches are applied to what a layer takes from here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use model::{Delta, Destination, Mesh, OutboundKey, Placement, Service};
use xds::{Resource, TypeUrl};

use crate::layer::Ware;
use crate::parts;

#[derive(Default)]
pub(crate) struct Stock {
    clients: HashMap<OutboundKey, usize>,
    made: HashMap<Key, Kept>,
}

/// The kind of client, and where service and rule are in memory.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    client: usize,
    service: usize,
    rule: usize,
}

/// Service and rule are kept, so that nothing else can be where they are.
struct Kept {
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
        let key = Key {
            client,
            service: Arc::as_ptr(service).addr(),
            rule: rule.map(|rule| Arc::as_ptr(rule).addr()).unwrap_or_default(),
        };
        let kept = self.made.entry(key).or_insert_with(|| {
            let (clusters, endpoints) = parts::of_service(mesh, placement, service);
            let made = clusters.into_iter().map(parts::cluster).chain(endpoints).map(Ware::new);
            let resources = made.map(|ware| (ware.kind, ware.resource)).collect();
            Kept { service: service.clone(), rule: rule.cloned(), resources }
        });
        kept.resources.iter().map(|(kind, resource)| Ware { kind: *kind, resource: resource.clone() }).collect()
    }

    /// What a change touches, and what nobody imports any more.
    pub(crate) fn forget(&mut self, delta: &Delta) {
        if delta.everything {
            *self = Self::default();
        }
        let touched: HashSet<(&str, &str)> =
            delta.endpoints.keys().chain(delta.services.keys()).map(|name| (&*name.namespace, &*name.name)).collect();
        self.made.retain(|_, Kept { service, rule, .. }| {
            let imported = Arc::strong_count(service) > 1;
            let ruled = rule.as_ref().is_none_or(|rule| Arc::strong_count(rule) > 1);
            imported && ruled && !touched.contains(&(&*service.namespace, service.host.as_str()))
        });
    }
}
