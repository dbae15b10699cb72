//! What is different for one proxy between two meshes: imported services, VirtualServices and rules. What did not change is the same in
//! memory, so that most of it is passed over by address.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use config::host::Host;
use config::store::Name;
use model::{Delta, Destination, Placement, Scope, Service, VirtualService};

pub(crate) struct Compared<'a> {
    pub(crate) now: &'a Placement,
    pub(crate) before: &'a Placement,
    /// Imported services that came, went or changed, in all their forms.
    pub(crate) services: Vec<&'a Arc<Service>>,
    pub(crate) routes: Vec<RouteChange<'a>>,
    /// Hosts of imported services about which rules say something else.
    pub(crate) rules: BTreeSet<&'a Host>,
}

pub(crate) struct RouteChange<'a> {
    pub(crate) old: Option<&'a Arc<VirtualService>>,
    pub(crate) new: Option<&'a Arc<VirtualService>>,
}

impl<'a> Compared<'a> {
    /// `None`: another Sidecar holds, or it says something else, so that anything may be different.
    pub(crate) fn new(now: &'a Placement, before: &'a Placement) -> Option<Self> {
        let mut found = Self { now, before, services: Vec::new(), routes: Vec::new(), rules: BTreeSet::new() };
        if Arc::ptr_eq(&now.scope, &before.scope) {
            return Some(found);
        }
        let spec = |scope: &'a Scope| scope.sidecar.as_ref().map(|object| &object.spec);
        if spec(&now.scope) != spec(&before.scope) {
            return None;
        }
        found.services = only_in_one(all_services(&now.scope), all_services(&before.scope));
        found.services.retain(|service| !is_equal_in_both(service, &now.scope, &before.scope));
        found.rules = now.scope.ruled_otherwise(&before.scope).collect();
        for (now, before) in now.scope.egress.iter().zip(&before.scope.egress) {
            let changed = only_in_one(now.virtual_services.iter(), before.virtual_services.iter());
            found.add_routes(&changed, &now.virtual_services.iter().map(Arc::as_ptr).collect());
        }
        Some(found)
    }

    fn add_routes(&mut self, changed: &[&'a Arc<VirtualService>], now: &HashSet<*const VirtualService>) {
        for object in changed {
            let same = |held: &&Arc<VirtualService>| held.name == object.name && held.namespace == object.namespace;
            let is_new = now.contains(&Arc::as_ptr(object));
            let known = self.routes.iter_mut().find(|known| known.old.iter().chain(&known.new).any(same));
            let change = match known {
                Some(known) => known,
                None => {
                    self.routes.push(RouteChange { old: None, new: None });
                    self.routes.last_mut().expect("it was pushed")
                }
            };
            if is_new { change.new = Some(object) } else { change.old = Some(object) }
        }
    }

    /// Hosts whose clusters or endpoints may be different; `true`: the clusters too.
    pub(crate) fn hosts(&self, delta: &Delta) -> Vec<(Host, bool)> {
        let changed = self.services.iter().map(|service| &service.host).chain(self.rules.iter().copied());
        let mut hosts: BTreeMap<Host, bool> = changed.map(|host| (host.clone(), true)).collect();
        for (name, deep) in &delta.endpoints {
            let sides = [imported(self.now, name), imported(self.before, name)];
            // A cluster that holds its endpoints changes with them.
            for service in sides.into_iter().flatten() {
                *hosts.entry(service.host.clone()).or_default() |= *deep || service.is_resolved_by_name();
            }
        }
        hosts.into_iter().collect()
    }

    /// Bytes for a headless service have a listener for each of its endpoints, and names for its pods.
    pub(crate) fn touches_headless(&self, delta: &Delta) -> bool {
        let headless = |place: &Placement, name: &Name| {
            let named =
                |service: &Arc<Service>| *service.host.as_str() == *name.name && service.namespace == name.namespace;
            place.scope.headless.iter().any(named)
        };
        delta.endpoints.keys().any(|name| headless(self.now, name) || headless(self.before, name))
    }

    /// Both sides' rules about a host.
    pub(crate) fn rules_of(&self, host: &Host) -> impl Iterator<Item = &'a Arc<Destination>> {
        [self.now.destination(host), self.before.destination(host)].into_iter().flatten()
    }

    /// Bytes are sent as these VirtualServices or rules say.
    pub(crate) fn touches_bytes(&self) -> bool {
        let bytes = |object: &VirtualService| !object.tcp.is_empty() || !object.tls.is_empty();
        let routed = || self.now.scope.egress.iter().flat_map(|egress| egress.virtual_services.iter());
        // Of one host there may be several, each with ports of its own.
        let ruled = || {
            let services = [&self.now.scope, &self.before.scope].into_iter().flat_map(|scope| all_services(scope));
            let ruled = services.filter(|service| self.rules.contains(&service.host));
            ruled.flat_map(|service| &service.ports).any(|port| !port.protocol.is_http())
        };
        self.routes.iter().flat_map(|change| change.old.into_iter().chain(change.new)).any(|object| bytes(object))
            || (!self.rules.is_empty() && (ruled() || routed().any(|object| bytes(object))))
    }
}

fn imported<'a>(placement: &'a Placement, name: &Name) -> Option<&'a Arc<Service>> {
    let host = Host::new(&name.name);
    placement.scope.service(&host).filter(|service| service.namespace == name.namespace)
}

fn all_services(scope: &Scope) -> impl Iterator<Item = &Arc<Service>> {
    scope.services.iter().chain(scope.egress.iter().flat_map(|egress| &egress.services))
}

/// A form with some of the ports is made for each scope.
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

/// Those that are in memory of one side alone.
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
