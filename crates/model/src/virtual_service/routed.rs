//! Services that nobody imports by name but that imported routes lead to: they get clusters, no listeners and no virtual hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;

use crate::scope::{EgressListener, World, trimmed};
use crate::service::{Registry, Service};

pub(crate) struct Routed {
    /// Of each egress listener.
    pub(crate) services: Vec<Vec<Arc<Service>>>,
    /// Everything that some route leads to, whether it exists or not.
    pub(crate) hosts: BTreeSet<Host>,
}

impl Routed {
    pub(crate) fn new(egress: &[EgressListener], world: &World<'_>) -> Self {
        // A router sees what its namespace sees; routes of the mesh are not its own.
        if world.router {
            return Self { services: vec![Vec::new(); egress.len()], hosts: BTreeSet::new() };
        }
        let mut hosts = BTreeSet::new();
        let services = egress.iter().map(|listener| {
            let mut found = Vec::new();
            for (host, ports) in destinations(listener, world.namespace) {
                let chosen = chosen(world.services.of_host(&host), world.namespace);
                found.extend(chosen.and_then(|service| listener.part_of(service, &ports)));
                hosts.insert(host);
            }
            found
        });
        Self { services: services.collect(), hosts }
    }
}

/// Ports by host; a `None` among them: all ports.
fn destinations(listener: &EgressListener, namespace: &str) -> BTreeMap<Host, BTreeSet<Option<u16>>> {
    let mut found: BTreeMap<Host, BTreeSet<Option<u16>>> = BTreeMap::new();
    for (host, port) in listener.virtual_services.iter().flat_map(|object| object.destinations(Some(namespace))) {
        found.entry(host).or_default().insert(port);
    }
    found
}

/// The client's own namespace first, even where it is hidden there; then the cluster's services, then the oldest.
fn chosen<'a>(mut all: impl Iterator<Item = &'a Arc<Service>> + Clone, namespace: &str) -> Option<&'a Arc<Service>> {
    let visible = all.clone().filter(|service| service.visibility.allows(namespace));
    let own = all.find(|service| *service.namespace == *namespace);
    own.or_else(|| visible.clone().find(|service| service.registry == Registry::Kubernetes))
        .or_else(|| visible.clone().next())
}

impl EgressListener {
    fn part_of(&self, service: &Arc<Service>, ports: &BTreeSet<Option<u16>>) -> Option<Arc<Service>> {
        if let Some(port) = self.only_port() {
            return trimmed(service, port);
        }
        if ports.contains(&None) {
            return Some(service.clone());
        }
        let kept: Vec<_> = service.ports.iter().filter(|port| ports.contains(&Some(port.number))).cloned().collect();
        if kept.len() == service.ports.len() {
            return Some(service.clone());
        }
        (!kept.is_empty()).then(|| Arc::new(Service { ports: kept, ..Service::clone(service) }))
    }
}
