//! The differences for one proxy between two meshes: imported services, VirtualServices and DestinationRules. Unchanged objects keep their
//! address, so most are skipped by pointer comparison.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use config::host::Host;
use config::kinds::sidecar::Sidecar;
use config::store::Name;
use model::{Delta, MergedDestinationRule, Placement, ResolvedVirtualService, Scope, Service};

pub(crate) struct PlacementDiff<'a> {
    pub(crate) now: &'a Placement,
    pub(crate) before: &'a Placement,
    /// Imported services that were added, removed or changed, in all their variants.
    pub(crate) services: Vec<&'a Arc<Service>>,
    pub(crate) virtual_services: Vec<VirtualServiceChange<'a>>,
    /// Hosts of imported services whose DestinationRules changed.
    pub(crate) rules: BTreeSet<&'a Host>,
}

pub(crate) struct VirtualServiceChange<'a> {
    pub(crate) old: Option<&'a Arc<ResolvedVirtualService>>,
    pub(crate) new: Option<&'a Arc<ResolvedVirtualService>>,
}

impl<'a> PlacementDiff<'a> {
    /// `None`: the Sidecar changed, so that anything may differ.
    pub(crate) fn new(now: &'a Placement, before: &'a Placement) -> Option<Self> {
        let mut diff = Self { now, before, services: Vec::new(), virtual_services: Vec::new(), rules: BTreeSet::new() };
        if Arc::ptr_eq(&now.scope, &before.scope) {
            return Some(diff);
        }
        if sidecar_spec(&now.scope) != sidecar_spec(&before.scope) {
            return None;
        }
        diff.services = only_in_one(all_services(&now.scope), all_services(&before.scope));
        diff.services.retain(|service| !is_equal_in_both(service, &now.scope, &before.scope));
        diff.rules = now.scope.hosts_with_other_rules(&before.scope).collect();
        for (now, before) in now.scope.egress.iter().zip(&before.scope.egress) {
            let changed = only_in_one(now.virtual_services.iter(), before.virtual_services.iter());
            diff.add_routes(&changed, &now.virtual_services.iter().map(Arc::as_ptr).collect());
        }
        Some(diff)
    }

    fn add_routes(
        &mut self,
        changed: &[&'a Arc<ResolvedVirtualService>],
        now: &HashSet<*const ResolvedVirtualService>,
    ) {
        for object in changed {
            let same =
                |other: &&Arc<ResolvedVirtualService>| other.name == object.name && other.namespace == object.namespace;
            let is_new = now.contains(&Arc::as_ptr(object));
            let known = self.virtual_services.iter_mut().find(|known| known.old.iter().chain(&known.new).any(same));
            let change = match known {
                Some(known) => known,
                None => {
                    self.virtual_services.push(VirtualServiceChange { old: None, new: None });
                    self.virtual_services.last_mut().expect("it was pushed")
                }
            };
            if is_new { change.new = Some(object) } else { change.old = Some(object) }
        }
    }

    /// Hosts whose clusters or endpoints may have changed; `true`: the clusters too.
    pub(crate) fn hosts(&self, delta: &Delta) -> Vec<(Host, bool)> {
        let changed = self.services.iter().map(|service| &service.host).chain(self.rules.iter().copied());
        let mut hosts: BTreeMap<Host, bool> = changed.map(|host| (host.clone(), true)).collect();
        for (name, with_clusters) in &delta.endpoints {
            let sides = [imported(self.now, name), imported(self.before, name)];
            // A cluster that embeds its endpoints changes with them.
            for service in sides.into_iter().flatten() {
                *hosts.entry(service.host.clone()).or_default() |= *with_clusters || service.is_resolved_by_name();
            }
        }
        hosts.into_iter().collect()
    }

    /// Whether endpoints of an imported headless service changed. Its TCP ports have a listener per endpoint, and the name table has an
    /// entry per pod.
    pub(crate) fn affects_headless(&self, delta: &Delta) -> bool {
        let headless = |placement: &Placement, name: &Name| {
            let named =
                |service: &Arc<Service>| *service.host.as_str() == *name.name && service.namespace == name.namespace;
            placement.scope.headless.iter().any(named)
        };
        delta.endpoints.keys().any(|name| headless(self.now, name) || headless(self.before, name))
    }

    /// The rules of a host, before and after.
    pub(crate) fn rules_of(&self, host: &Host) -> impl Iterator<Item = &'a Arc<MergedDestinationRule>> {
        [self.now.destination_rule(host), self.before.destination_rule(host)].into_iter().flatten()
    }

    /// Whether TCP or TLS routing of these VirtualServices or rules changed.
    pub(crate) fn affects_tcp(&self) -> bool {
        let routes_tcp = |object: &ResolvedVirtualService| !object.tcp.is_empty() || !object.tls.is_empty();
        let routed = || self.now.scope.egress.iter().flat_map(|egress| egress.virtual_services.iter());
        // A host may have several services, each with its own ports.
        let ruled = || {
            let services = [&self.now.scope, &self.before.scope].into_iter().flat_map(|scope| all_services(scope));
            let ruled = services.filter(|service| self.rules.contains(&service.host));
            ruled.flat_map(|service| &service.ports).any(|port| !port.protocol.is_http())
        };
        self.virtual_services
            .iter()
            .flat_map(|change| change.old.into_iter().chain(change.new))
            .any(|object| routes_tcp(object))
            || (!self.rules.is_empty() && (ruled() || routed().any(|object| routes_tcp(object))))
    }
}

/// The Sidecar of a scope, for its egress and ingress listeners and limits.
pub(crate) fn sidecar_spec(scope: &Scope) -> Option<&Sidecar> {
    scope.sidecar.as_ref().map(|object| &object.spec)
}

fn imported<'a>(placement: &'a Placement, name: &Name) -> Option<&'a Arc<Service>> {
    let host = Host::new(&name.name);
    placement.scope.service(&host).filter(|service| service.namespace == name.namespace)
}

fn all_services(scope: &Scope) -> impl Iterator<Item = &Arc<Service>> {
    scope.services.iter().chain(scope.egress.iter().flat_map(|egress| &egress.services))
}

/// A variant with some of the ports is created for each scope, so addresses differ where values are equal.
fn is_equal_in_both(service: &Arc<Service>, one: &Scope, two: &Scope) -> bool {
    let holds = |scope: &Scope| {
        scope.service(&service.host) == Some(service)
            && scope
                .egress
                .iter()
                .flat_map(|egress| &egress.services)
                .all(|other| other.host != service.host || other == service)
    };
    holds(one) && holds(two)
}

/// Objects that only one side holds, compared by address.
fn only_in_one<'a, T>(
    now: impl Iterator<Item = &'a Arc<T>>,
    before: impl Iterator<Item = &'a Arc<T>>,
) -> Vec<&'a Arc<T>> {
    let (now, before): (Vec<_>, Vec<_>) = (now.collect(), before.collect());
    let addresses = |side: &[&'a Arc<T>]| side.iter().map(|object| Arc::as_ptr(object)).collect::<HashSet<_>>();
    if now.iter().map(|object| Arc::as_ptr(object)).eq(before.iter().map(|object| Arc::as_ptr(object))) {
        return Vec::new();
    }
    let (here, there) = (addresses(&now), addresses(&before));
    let gone = before.into_iter().filter(|object| !here.contains(&Arc::as_ptr(object)));
    let came = now.into_iter().filter(|object| !there.contains(&Arc::as_ptr(object)));
    let mut seen = HashSet::new();
    came.chain(gone).filter(|object| seen.insert(Arc::as_ptr(object))).collect()
}
