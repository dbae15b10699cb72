//! The scopes of a mesh, computed on first use and cached, and their update after a change of objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::host::Host;
use config::kinds::sidecar::Sidecar;
use config::labels::Labels;
use config::meta::Object;
use config::store::{Name, Table};

use crate::delta::ServiceChange;
use crate::destination::ScopeDestinations;
use crate::mesh::Mesh;
use crate::proxy::{Proxy, ProxyKind};
use crate::ranking::Ranking;
use crate::scope::{Scope, ScopeInputs, ScopeKey};
use crate::service::Service;
use crate::virtual_service::RouteChange;

/// All services, and the cached scopes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scopes {
    pub(crate) ranking: Arc<Ranking>,
    /// ExternalName services, by namespace and host.
    pub(crate) aliases: Arc<[Arc<Service>]>,
    /// Some service has `internalTrafficPolicy: Local`.
    pub(crate) node_local: bool,
    cache: Arc<Mutex<BTreeMap<ScopeKey, Arc<Scope>>>>,
}

/// Changed inputs of scopes.
pub(crate) struct ScopeChanges<'a> {
    pub(crate) services: &'a BTreeMap<Name, ServiceChange>,
    pub(crate) routes: &'a [RouteChange],
    /// Hosts whose DestinationRules changed.
    pub(crate) rules: &'a BTreeSet<Host>,
    pub(crate) sidecars: &'a BTreeSet<Name>,
}

impl ScopeChanges<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.services.is_empty() && self.routes.is_empty() && self.rules.is_empty() && self.sidecars.is_empty()
    }

    /// Updates routes and rules of a scope in place. `false`: the scope must be computed again.
    fn try_update(&self, mesh: &Mesh, key: &ScopeKey, scope: &mut Arc<Scope>) -> bool {
        for change in self.routes {
            if !change.sides().any(|object| scope.reads(key, object)) {
                continue;
            }
            let Some((old, new)) = change.in_place(&key.namespace) else { return false };
            Arc::make_mut(scope).replace_route(old, new);
        }
        for host in self.rules {
            let about: Vec<_> = match scope.service(host) {
                Some(service) if !host.is_wildcard() => vec![service.clone()],
                _ if !host.is_wildcard() => Vec::new(),
                _ => scope.services.iter().filter(|service| service.host.is_subset_of(host)).cloned().collect(),
            };
            let mut destinations = scope.destinations.clone();
            let changed =
                about.iter().filter(|service| destinations.refresh(&mesh.destination_rules, &key.namespace, service));
            if changed.count() > 0 {
                Arc::make_mut(scope).destinations = destinations;
            }
        }
        true
    }
}

impl Scopes {
    pub(crate) fn new<'a>(services: impl Iterator<Item = &'a Arc<Service>>) -> Self {
        let ranking = Ranking::new(services);
        let mut aliases: Vec<_> = ranking.all().iter().filter(|service| service.is_alias()).cloned().collect();
        aliases.sort_by(|a, b| (&a.namespace, &a.host).cmp(&(&b.namespace, &b.host)));
        Self {
            node_local: ranking.all().iter().any(|service| service.node_local),
            aliases: aliases.into(),
            ranking: Arc::new(ranking),
            cache: Arc::default(),
        }
    }

    /// Keeps the scopes that no change concerns, and updates in place those whose imports stay.
    pub(crate) fn next(&self, mesh: &Mesh, changes: &ScopeChanges<'_>) -> Self {
        let services = || changes.services.values().flat_map(ServiceChange::sides);
        let mut made = self.lock().clone();
        made.retain(|key, scope| {
            let rebuilt = key.sidecar.as_ref().is_some_and(|name| changes.sidecars.contains(name))
                || services().any(|service| scope.concerns(key, service));
            !rebuilt && changes.try_update(mesh, key, scope)
        });
        let made = Arc::new(Mutex::new(made));
        match changes.services.is_empty() {
            true => Self { cache: made, ..self.clone() },
            false => Self { cache: made, ..Self::new(mesh.all_services()) },
        }
    }

    pub(crate) fn of(&self, proxy: &Proxy, labels: &Labels, mesh: &Mesh) -> (ScopeKey, Arc<Scope>) {
        let sidecar = match proxy.kind {
            ProxyKind::Sidecar => {
                sidecar_for(&mesh.objects.sidecars, &mesh.config.root_namespace, &proxy.namespace, labels)
            }
            ProxyKind::Gateway => None,
        };
        let gateway = proxy.kind == ProxyKind::Gateway;
        let key = ScopeKey {
            gateway,
            namespace: proxy.namespace.clone(),
            sidecar: sidecar.map(|object| Name::new(&object.meta.namespace, &object.meta.name)),
        };
        let made = self.lock().get(&key).cloned();
        let scope = made.unwrap_or_else(|| {
            let world = ScopeInputs {
                gateway,
                namespace: &proxy.namespace,
                services: &self.ranking,
                virtual_services: &mesh.virtual_services.visible_in(&proxy.namespace),
            };
            let mut scope = Scope::new(sidecar, &world, &mesh.config);
            scope.destinations = ScopeDestinations::new(&mesh.destination_rules, &proxy.namespace, &scope.services);
            let scope = Arc::new(scope);
            self.lock().insert(key.clone(), scope.clone());
            scope
        });
        (key, scope)
    }

    // Entries are inserted whole, so that a poisoned lock holds no partial entry.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ScopeKey, Arc<Scope>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Sidecar that applies: with a matching selector in the namespace, then without one there, then without one in the root namespace; oldest first.
fn sidecar_for<'a>(
    sidecars: &'a Table<Sidecar>,
    root: &str,
    namespace: &str,
    labels: &Labels,
) -> Option<&'a Arc<Object<Sidecar>>> {
    let oldest = |namespace: &str, keep: &dyn Fn(&Object<Sidecar>) -> bool| {
        let here = sidecars.range(Name::new(namespace, "")..).take_while(|(key, _)| *key.namespace == *namespace);
        here.map(|(_, object)| object).filter(|object| keep(object)).min_by(|a, b| a.meta.age_order(&b.meta))
    };
    oldest(namespace, &|object| selects(object).is_some_and(|wanted| labels.contains_all(wanted)))
        .or_else(|| oldest(namespace, &|object| selects(object).is_none()))
        .or_else(|| oldest(root, &|object| selects(object).is_none()))
}

/// `None`: it applies to every workload.
fn selects(object: &Object<Sidecar>) -> Option<&Labels> {
    object.spec.workload_selector.as_ref().map(|selector| &selector.labels).filter(|labels| !labels.is_empty())
}
