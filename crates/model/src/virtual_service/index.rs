//! All VirtualServices of the mesh in order of age, and their update after a change of objects. Unchanged ones keep their address.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::kinds::virtual_service::{self as kube, HttpAction};
use config::meta::Object;
use config::store::{Name, Snapshot, Table};
use imbl::OrdMap;

use super::delegate::Delegates;
use super::{MESH, PathPrefix, ResolvedVirtualService};
use crate::ingress::IngressRoutes;

/// All VirtualServices of the mesh, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct VirtualServiceIndex {
    all: Vec<Arc<ResolvedVirtualService>>,
    /// By `namespace/name` of the Gateways that they are bound to, each oldest first.
    by_gateway: OrdMap<String, Vec<Arc<ResolvedVirtualService>>>,
    delegates: Delegates,
    /// Source labels that some route matches on.
    label_keys: BTreeSet<String>,
}

/// A VirtualService that was added, removed or changed.
#[derive(Debug)]
pub(crate) struct RouteChange {
    pub(crate) old: Option<Arc<ResolvedVirtualService>>,
    pub(crate) new: Option<Arc<ResolvedVirtualService>>,
}

impl RouteChange {
    pub(crate) fn sides(&self) -> impl Iterator<Item = &Arc<ResolvedVirtualService>> {
        self.old.iter().chain(&self.new)
    }

    /// Both versions, where the new one can replace the old one in place for clients of the namespace.
    pub(crate) fn in_place(
        &self,
        namespace: &str,
    ) -> Option<(&Arc<ResolvedVirtualService>, &Arc<ResolvedVirtualService>)> {
        let (old, new) = (self.old.as_ref()?, self.new.as_ref()?);
        (old.is_interchangeable_with(new) && old.destinations(Some(namespace)) == new.destinations(Some(namespace)))
            .then_some((old, new))
    }
}

impl VirtualServiceIndex {
    /// `ingress`: VirtualServices converted from Ingresses.
    pub(crate) fn new(snapshot: &Snapshot, ingress: &[IngressRoutes], domain: &str) -> Self {
        let table = &snapshot.virtual_services;
        let mut delegates = Delegates::default();
        for object in table.values().filter(|object| is_delegate(object)) {
            delegates.put(object, &snapshot.mesh, domain);
        }
        let roots = table.values().filter(|object| !is_delegate(object));
        let made = roots.filter_map(|object| ResolvedVirtualService::new(object, &snapshot.mesh, domain, &delegates));
        let of_ingress = ingress.iter().filter_map(|routes| {
            let own = ResolvedVirtualService::new(&routes.object, &snapshot.mesh, domain, &delegates)?;
            Some(own.of_ingress(routes))
        });
        let mut all: Vec<_> = made.chain(of_ingress).map(Arc::new).collect();
        all.sort_by(|a, b| a.age_order(b));
        let mut by_gateway: OrdMap<String, Vec<Arc<ResolvedVirtualService>>> = OrdMap::new();
        for object in &all {
            for gateway in object.bound_to() {
                by_gateway.entry(gateway.clone()).or_default().push(object.clone());
            }
        }
        Self { label_keys: all.iter().flat_map(|object| label_keys(object)).collect(), by_gateway, delegates, all }
    }

    /// After a change of VirtualServices alone, with mesh config and namespaces unchanged.
    pub(crate) fn next(
        &self,
        old: &Table<kube::VirtualService>,
        snapshot: &Snapshot,
        domain: &str,
    ) -> (Self, Vec<RouteChange>) {
        let mut next = self.clone();
        let mut names = next.update_delegates(old, snapshot, domain);
        names.extend(changed_names(old, &snapshot.virtual_services));
        let mut changes = Vec::new();
        for name in names {
            let root = snapshot.virtual_services.get(&name).filter(|object| !is_delegate(object));
            let new =
                root.and_then(|object| ResolvedVirtualService::new(object, &snapshot.mesh, domain, &next.delegates));
            let is_written = |object: &ResolvedVirtualService| object.prefix == PathPrefix::Text;
            let at = next.all.iter().position(|object| {
                object.name == name.name && object.namespace == name.namespace && is_written(object)
            });
            if at.map(|at| &*next.all[at]) == new.as_ref() {
                continue;
            }
            let (old, new) = (at.map(|at| next.all.remove(at)), new.map(Arc::new));
            if let Some(new) = &new {
                let at = next.all.partition_point(|object| object.age_order(new).is_lt());
                next.all.insert(at, new.clone());
            }
            let change = RouteChange { old, new };
            next.rebind(&change);
            changes.push(change);
        }
        if changes.iter().flat_map(RouteChange::sides).any(|object| !label_keys(object).is_empty()) {
            next.label_keys = next.all.iter().flat_map(|object| label_keys(object)).collect();
        }
        (next, changes)
    }

    fn rebind(&mut self, change: &RouteChange) {
        if let Some(old) = &change.old {
            for gateway in old.bound_to() {
                if let Some(bound) = self.by_gateway.get_mut(gateway) {
                    bound.retain(|object| !Arc::ptr_eq(object, old));
                }
            }
        }
        if let Some(new) = &change.new {
            for gateway in new.bound_to() {
                let bound = self.by_gateway.entry(gateway.clone()).or_default();
                bound.insert(bound.partition_point(|object| object.age_order(new).is_lt()), new.clone());
            }
        }
    }

    /// Returns the roots that delegate to a changed delegate.
    fn update_delegates(
        &mut self,
        old: &Table<kube::VirtualService>,
        snapshot: &Snapshot,
        domain: &str,
    ) -> BTreeSet<Name> {
        let table = &snapshot.virtual_services;
        let mut changed = BTreeSet::new();
        for name in changed_names(old, table) {
            self.delegates.remove(&name);
            if let Some(object) = table.get(&name).filter(|object| is_delegate(object)) {
                self.delegates.put(object, &snapshot.mesh, domain);
            }
            if [old.get(&name), table.get(&name)].into_iter().flatten().any(|object| is_delegate(object)) {
                changed.insert(name);
            }
        }
        if changed.is_empty() {
            return changed;
        }
        let roots = table.iter().filter(|(_, object)| delegates(object).any(|to| changed.contains(&to)));
        roots.map(|(name, _)| name.clone()).collect()
    }

    /// Bound to sidecars and visible there.
    pub(crate) fn visible_in(&self, namespace: &str) -> Vec<Arc<ResolvedVirtualService>> {
        by_precedence(self.all.iter().filter(|object| object.is_for(MESH)), namespace)
    }

    /// Bound to a Gateway and visible to proxies of the namespace.
    pub(crate) fn for_gateway(&self, namespace: &str, gateway: &str) -> Vec<Arc<ResolvedVirtualService>> {
        by_precedence(self.bound_to(gateway), namespace)
    }

    /// Visible or not.
    pub(crate) fn bound_to(&self, gateway: &str) -> impl Iterator<Item = &Arc<ResolvedVirtualService>> {
        self.by_gateway.get(gateway).into_iter().flatten()
    }

    pub(crate) fn label_keys(&self) -> &BTreeSet<String> {
        &self.label_keys
    }
}

/// Private ones first, then those exported to the namespace, then public ones; oldest first in each.
fn by_precedence<'a>(
    objects: impl Iterator<Item = &'a Arc<ResolvedVirtualService>>,
    namespace: &str,
) -> Vec<Arc<ResolvedVirtualService>> {
    let mut found: Vec<_> = objects.filter_map(|object| Some((object.rank(namespace)?, object.clone()))).collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, object)| object).collect()
}

fn changed_names(old: &Table<kube::VirtualService>, new: &Table<kube::VirtualService>) -> Vec<Name> {
    use imbl::ordmap::DiffItem::{Add, Remove, Update};
    let names = old.diff(new).map(|item| match item {
        Add(name, _) | Remove(name, _) | Update { new: (name, _), .. } => name.clone(),
    });
    names.collect()
}

/// Without hosts it has an effect only as a delegate.
fn is_delegate(object: &Object<kube::VirtualService>) -> bool {
    object.spec.hosts.is_empty()
}

fn delegates(object: &Object<kube::VirtualService>) -> impl Iterator<Item = Name> {
    object.spec.http.iter().filter_map(|route| match route.action() {
        HttpAction::Delegate(to) if to.namespace.is_empty() => Some(Name::new(&object.meta.namespace, &to.name)),
        HttpAction::Delegate(to) => Some(Name::new(&to.namespace, &to.name)),
        _ => None,
    })
}

fn label_keys(object: &ResolvedVirtualService) -> Vec<String> {
    let http = object.http.iter().flat_map(|route| &route.matches).map(|one| &one.source_labels);
    let tls = object.tls.iter().flat_map(|route| &route.matches).map(|one| &one.source_labels);
    let tcp = object.tcp.iter().flat_map(|route| &route.matches).map(|one| &one.source_labels);
    http.chain(tls).chain(tcp).flat_map(|labels| labels.iter().map(|(key, _)| key.to_owned())).collect()
}
