//! Services that are not imported but that imported routes refer to: they get clusters, no listeners and no virtual hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;

use crate::scope::{EgressListener, ScopeInputs, with_only_port};
use crate::service::{Registry, Service};

pub(crate) struct RoutedServices {
    /// By egress listener.
    pub(crate) services: Vec<Vec<Arc<Service>>>,
    /// All hosts that some route refers to, existing or not.
    pub(crate) hosts: BTreeSet<Host>,
}

impl RoutedServices {
    pub(crate) fn new(egress: &[EgressListener], world: &ScopeInputs<'_>) -> Self {
        // Routes for sidecars do not apply to a gateway.
        if world.gateway {
            return Self { services: vec![Vec::new(); egress.len()], hosts: BTreeSet::new() };
        }
        let mut hosts = BTreeSet::new();
        let services = egress.iter().map(|listener| {
            let mut found = Vec::new();
            for (host, ports) in destinations(listener, world.namespace) {
                let chosen = pick(world.services.of_host(&host), world.namespace);
                found.extend(chosen.and_then(|service| listener.narrow(service, &ports)));
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

/// The client's own namespace first, even if not visible there; then Kubernetes Services, then the oldest.
fn pick<'a>(mut all: impl Iterator<Item = &'a Arc<Service>> + Clone, namespace: &str) -> Option<&'a Arc<Service>> {
    let visible = all.clone().filter(|service| service.visibility.allows(namespace));
    let own = all.find(|service| *service.namespace == *namespace);
    own.or_else(|| visible.clone().find(|service| service.registry == Registry::Kubernetes))
        .or_else(|| visible.clone().next())
}

impl EgressListener {
    fn narrow(&self, service: &Arc<Service>, ports: &BTreeSet<Option<u16>>) -> Option<Arc<Service>> {
        if let Some(port) = self.only_port() {
            return with_only_port(service, port);
        }
        if ports.contains(&None) {
            return Some(service.clone());
        }
        let remaining: Vec<_> =
            service.ports.iter().filter(|port| ports.contains(&Some(port.number))).cloned().collect();
        if remaining.len() == service.ports.len() {
            return Some(service.clone());
        }
        (!remaining.is_empty()).then(|| Arc::new(Service { ports: remaining, ..Service::clone(service) }))
    }
}
