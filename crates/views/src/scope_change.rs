//! The inputs of a delta as one client sees them: what changed between its scope before and after. Only what the delta names is looked up.
//! Which resources read it is declared in `dependencies`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use config::store::Name;
use model::{Delta, Input, MergedDestinationRule, Placement, ResolvedVirtualService, Scope, Service};

pub(crate) struct ScopeChange<'a> {
    pub(crate) delta: &'a Delta,
    pub(crate) now: &'a Placement,
    pub(crate) before: &'a Placement,
    /// Some service was added, removed or changed, imported or not.
    pub(crate) any_service: bool,
    /// Imported services that were added, removed or changed, in all their variants.
    pub(crate) services: Vec<&'a Arc<Service>>,
    /// Imported services with changed endpoints or mutual TLS, and the input that says so.
    pub(crate) endpoints: Vec<(&'a Input, &'a Arc<Service>)>,
    /// Endpoints of an imported headless service changed, even of one that another service of the same host precedes.
    pub(crate) headless: bool,
    pub(crate) virtual_services: Vec<VirtualServiceChange<'a>>,
    /// Hosts of imported services whose DestinationRules changed.
    pub(crate) rules: BTreeSet<Host>,
}

pub(crate) struct VirtualServiceChange<'a> {
    pub(crate) old: Option<&'a Arc<ResolvedVirtualService>>,
    pub(crate) new: Option<&'a Arc<ResolvedVirtualService>>,
}

impl<'a> VirtualServiceChange<'a> {
    pub(crate) fn sides(&self) -> impl Iterator<Item = &'a Arc<ResolvedVirtualService>> + use<'a> {
        self.old.into_iter().chain(self.new)
    }

    /// The services that routes lead to are imported: others may be now.
    fn may_change_imports(&self) -> bool {
        !self.old.zip(self.new).is_some_and(|(old, new)| old.imports_like(new))
    }
}

impl<'a> ScopeChange<'a> {
    pub(crate) fn new(delta: &'a Delta, before: &'a Placement, now: &'a Placement) -> Self {
        let imports = ImportChange::new(delta, &before.scope, &now.scope);
        let (mut endpoints, mut headless, mut any_service) = (Vec::new(), false, false);
        for input in delta.inputs() {
            any_service |= matches!(input, Input::Service(_));
            let (Input::Endpoints(name) | Input::MutualTls(name)) = input else { continue };
            let sides = [&now.scope, &before.scope];
            endpoints.extend(sides.iter().filter_map(|scope| imported(scope, name)).map(|service| (input, service)));
            headless |= matches!(input, Input::Endpoints(_)) && sides.iter().any(|scope| has_headless(scope, name));
        }
        let services = imports.services(&before.scope, &now.scope);
        let ImportChange { virtual_services, rules, .. } = imports;
        Self { delta, now, before, any_service, services, endpoints, headless, virtual_services, rules }
    }

    /// The client's rules of a host, before and after.
    pub(crate) fn rules_of(&self, host: &Host) -> impl Iterator<Item = &'a Arc<MergedDestinationRule>> {
        [self.now.destination_rule(host), self.before.destination_rule(host)].into_iter().flatten()
    }
}

/// What changed of the services, VirtualServices and DestinationRules that a scope imports.
#[derive(Default)]
pub(crate) struct ImportChange<'a> {
    /// Hosts whose services may be imported in another way.
    hosts: BTreeSet<Host>,
    virtual_services: Vec<VirtualServiceChange<'a>>,
    pub(crate) rules: BTreeSet<Host>,
}

impl<'a> ImportChange<'a> {
    pub(crate) fn new(delta: &Delta, before: &'a Arc<Scope>, now: &'a Arc<Scope>) -> Self {
        if Arc::ptr_eq(before, now) {
            return Self::default();
        }
        let mut change = Self::default();
        for input in delta.inputs() {
            match input {
                Input::Service(name) => drop(change.hosts.insert(Host::new(&name.name))),
                Input::VirtualService(name) => change.virtual_services.extend(virtual_service(name, before, now)),
                Input::DestinationRule(host) if host.is_wildcard() => {
                    let services = before.services.iter().chain(&now.services);
                    let covered = services.filter(|service| service.host.is_subset_of(host));
                    change.rules.extend(covered.map(|service| service.host.clone()));
                }
                Input::DestinationRule(host) => drop(change.rules.insert(host.clone())),
                _ => {}
            }
        }
        let rerouted = change.virtual_services.iter().filter(|change| change.may_change_imports());
        let destinations = rerouted.flat_map(VirtualServiceChange::sides).flat_map(|object| object.destinations(None));
        change.hosts.extend(destinations.map(|(host, _)| host));
        // A service that is imported or not brings its rules.
        change.rules.extend(change.hosts.iter().cloned());
        change.rules.retain(|host| !are_same(before.destination_rules(host), now.destination_rules(host)));
        change
    }

    /// The services of these hosts that are not the same before and after, of both sides.
    fn services(&self, before: &'a Scope, now: &'a Scope) -> Vec<&'a Arc<Service>> {
        if self.hosts.is_empty() {
            return Vec::new();
        }
        let (before, now) = (self.variants(before), self.variants(now));
        let changed =
            self.hosts.iter().map(|host| [&now, &before].map(|side| side.get(host).map_or(&[][..], Vec::as_slice)));
        changed.filter(|[now, before]| !are_same(now, before)).flatten().flatten().copied().collect()
    }

    /// The services of these hosts: each egress listener may import other ports.
    fn variants(&self, scope: &'a Scope) -> BTreeMap<&'a Host, Vec<&'a Arc<Service>>> {
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let chosen = self.hosts.iter().filter_map(|host| scope.service(host));
        let listed = scope.egress.iter().flat_map(|egress| &egress.services);
        for service in chosen.chain(listed.filter(|service| self.hosts.contains(&service.host))) {
            found.entry(&service.host).or_default().push(service);
        }
        found
    }
}

/// `None`: neither scope holds it, or both hold the same.
fn virtual_service<'a>(name: &Name, before: &'a Scope, now: &'a Scope) -> Option<VirtualServiceChange<'a>> {
    let [old, new] =
        [before, now].map(|scope| scope.egress.iter().find_map(|egress| egress.virtual_services.named(name)));
    (old.map(Arc::as_ptr) != new.map(Arc::as_ptr)).then_some(VirtualServiceChange { old, new })
}

pub(crate) fn imported<'a>(scope: &'a Scope, name: &Name) -> Option<&'a Arc<Service>> {
    scope.service(&Host::new(&name.name)).filter(|service| service.namespace == name.namespace)
}

fn has_headless(scope: &Scope, name: &Name) -> bool {
    let named = |service: &Arc<Service>| *service.host.as_str() == *name.name && service.namespace == name.namespace;
    scope.headless.iter().any(named)
}

/// Unchanged objects mostly keep their address; a comparison by value is long.
fn are_same<T: PartialEq, A: AsRef<T>>(one: &[A], two: &[A]) -> bool {
    let same = |(one, two): (&A, &A)| std::ptr::eq(one.as_ref(), two.as_ref()) || one.as_ref() == two.as_ref();
    one.len() == two.len() && one.iter().zip(two).all(same)
}
