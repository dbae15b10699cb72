//! What a Sidecar would save: a second mesh is computed, with a Sidecar in each namespace that has none. It imports what objects of the namespace
//! name and what its workloads were observed to call.

pub mod observed_use;
pub(crate) mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use config::kinds::sidecar::{IstioEgressListener, Sidecar};
use config::meta::{Meta, Object};
use config::store::{Name, Snapshot};
use model::{Mesh, Placement, Proxy, ProxyKind, Service};
use xds::{Class, Connection, TypeUrl, Variant};

use crate::doctor::facts::{ConfigSize, ImportedHost, UnscopedNamespace};
use crate::registry::placement_of;
use observed_use::ObservedCalls;

/// Which namespaces are worth a Sidecar.
#[derive(Debug, Clone, Copy)]
pub struct ScopeLimits {
    /// Below this many services in scope a Sidecar saves little.
    services: usize,
    /// Namespaces that are measured; the first by name.
    namespaces: usize,
    /// The largest part of the bytes that is left with it.
    left: f64,
}

impl ScopeLimits {
    /// What an operator should hear of unasked.
    pub(crate) const WARNED: ScopeLimits = ScopeLimits { services: 200, namespaces: 20, left: 0.5 };
    /// All that is asked for.
    pub const ALL: ScopeLimits = ScopeLimits { services: 0, namespaces: 1000, left: 1.0 };
}

/// The proxies of a namespace, and one of them by which they are measured.
struct NamespaceSample {
    proxies: usize,
    name: String,
    placement: Placement,
    size: ConfigSize,
}

/// Of the proxies that are connected.
pub(crate) fn unscoped(
    objects: &Snapshot,
    mesh: &Arc<Mesh>,
    connections: &[Connection],
    observed: &ObservedCalls,
    limits: ScopeLimits,
) -> Vec<UnscopedNamespace> {
    let mut first: BTreeMap<&str, (usize, &Connection)> = BTreeMap::new();
    for connection in connections.iter().filter(|it| it.proxy.kind == "sidecar") {
        first.entry(&connection.proxy.namespace).or_insert((0, connection)).0 += 1;
    }
    let samples = first.into_iter().filter_map(|(namespace, (proxies, connection))| {
        let placement = placement_of(mesh, connection).filter(|it| is_unscoped(it, limits))?;
        let (name, size) = (connection.proxy.id.clone(), size_of(connection.class.as_ref()));
        Some((namespace, NamespaceSample { proxies, name, placement, size }))
    });
    suggested(objects, mesh, samples.take(limits.namespaces).collect(), observed, limits)
}

/// Of proxies that nobody serves.
pub fn unscoped_proxies(
    objects: &Snapshot,
    mesh: &Mesh,
    proxies: &[Arc<Proxy>],
    observed: &ObservedCalls,
    limits: ScopeLimits,
) -> Vec<UnscopedNamespace> {
    let mut first: BTreeMap<&str, (usize, &Arc<Proxy>)> = BTreeMap::new();
    for proxy in proxies.iter().filter(|it| it.kind == ProxyKind::Sidecar) {
        first.entry(&proxy.namespace).or_insert((0, proxy)).0 += 1;
    }
    let samples = first.into_iter().filter_map(|(namespace, (proxies, proxy))| {
        let placement = Some(mesh.place(proxy)).filter(|it| is_unscoped(it, limits))?;
        let size = rendered_size(mesh, &placement);
        Some((namespace, NamespaceSample { proxies, name: proxy.id.to_string(), placement, size }))
    });
    suggested(objects, mesh, samples.take(limits.namespaces).collect(), observed, limits)
}

fn is_unscoped(placement: &Placement, limits: ScopeLimits) -> bool {
    placement.scope.sidecar.is_none() && placement.scope.services.len() >= limits.services
}

fn suggested(
    objects: &Snapshot,
    mesh: &Mesh,
    samples: BTreeMap<&str, NamespaceSample>,
    observed: &ObservedCalls,
    limits: ScopeLimits,
) -> Vec<UnscopedNamespace> {
    if samples.is_empty() {
        return Vec::new();
    }
    let imports: BTreeMap<&str, Imports> =
        samples.keys().map(|namespace| (*namespace, Imports::of(objects, mesh, namespace, observed))).collect();
    let sidecars =
        imports.iter().map(|(namespace, it)| (*namespace, it.egress(&objects.mesh.root_namespace))).collect();
    let scoped = with_sidecars(objects, mesh, &sidecars);
    let found = samples.into_iter().filter_map(|(namespace, sample)| {
        let placement = scoped.place(&sample.placement.proxy);
        let (before, after) = (sample.size, rendered_size(&scoped, &placement));
        let Imports { hosts, unknown } = imports[namespace].clone();
        let saves = (after.bytes as f64) < before.bytes as f64 * limits.left;
        saves.then(|| UnscopedNamespace {
            namespace: namespace.to_owned(),
            proxies: sample.proxies,
            sample: sample.name,
            before,
            after,
            sidecar: yaml(namespace, &sidecars[namespace]),
            hosts,
            unknown,
            left_out: sample.placement.scope.services.len().saturating_sub(placement.scope.services.len()),
        })
    });
    found.collect()
}

/// What a Sidecar of a namespace imports from others.
#[derive(Debug, Clone, Default)]
struct Imports {
    /// Sorted.
    hosts: Vec<ImportedHost>,
    /// Called, and no service of the mesh.
    unknown: Vec<String>,
}

impl Imports {
    fn of(objects: &Snapshot, mesh: &Mesh, namespace: &str, observed: &ObservedCalls) -> Imports {
        let mut found: BTreeMap<(String, String), ImportedHost> = BTreeMap::new();
        let mut unknown = Vec::new();
        for (host, used) in observed.get(namespace).into_iter().flatten() {
            match service_of(mesh, &Host::new(host)) {
                None => unknown.push(host.clone()),
                Some(service) => {
                    let imported = found.entry(key(service)).or_default();
                    imported.calls += used.calls;
                    imported.workloads.extend(used.workloads.iter().cloned());
                    imported.observed = true;
                }
            }
        }
        for service in referenced_hosts(objects, mesh, namespace).iter().filter_map(|host| service_of(mesh, host)) {
            found.entry(key(service)).or_default().declared = true;
        }
        found.retain(|(of, _), _| of != namespace && **of != *objects.mesh.root_namespace);
        let named = |((namespace, host), it)| ImportedHost { namespace, host, ..it };
        Imports { hosts: found.into_iter().map(named).collect(), unknown }
    }

    /// With the namespace itself and that of the control plane.
    fn egress(&self, root: &str) -> Vec<String> {
        let defaults = ["./*".to_owned(), format!("{root}/*")];
        let imported = self.hosts.iter().map(|it| format!("{}/{}", it.namespace, it.host));
        defaults.into_iter().chain(imported).collect()
    }
}

fn key(service: &Service) -> (String, String) {
    (service.namespace.to_string(), service.host.to_string())
}

/// That of the host, else of the longest wildcard that covers it.
fn service_of<'a>(mesh: &'a Mesh, host: &Host) -> Option<&'a Arc<Service>> {
    let name = host.to_string();
    let wider = name.match_indices('.').map(|(at, _)| Host::new(&format!("*{}", &name[at..])));
    mesh.service(host).or_else(|| wider.into_iter().find_map(|it| mesh.service(&it)))
}

fn with_sidecars(objects: &Snapshot, mesh: &Mesh, sidecars: &BTreeMap<&str, Vec<String>>) -> Mesh {
    let mut objects = objects.clone();
    objects.seq += 1;
    for (namespace, hosts) in sidecars {
        let meta = Meta { name: "default".into(), namespace: (*namespace).into(), ..Meta::default() };
        let egress = vec![IstioEgressListener { hosts: hosts.clone(), ..IstioEgressListener::default() }];
        let spec = Sidecar { egress, ..Sidecar::default() };
        objects.sidecars.insert(Name::new(namespace, "default"), Arc::new(Object { meta, spec }));
    }
    mesh.next(&objects).0
}

/// Hosts in VirtualServices and DestinationRules of a namespace.
fn referenced_hosts(objects: &Snapshot, mesh: &Mesh, namespace: &str) -> BTreeSet<Host> {
    let own = |meta: &Meta| &*meta.namespace == namespace;
    let qualified = |host: &String| {
        let domain = &mesh.env.domain;
        match host.split('.').count() {
            1 => format!("{host}.{namespace}.svc.{domain}"),
            2 => format!("{host}.svc.{domain}"),
            _ => host.clone(),
        }
    };
    let routes = objects.virtual_services.values().filter(|it| own(&it.meta)).flat_map(|it| {
        let http = it.spec.http.iter().flat_map(|route| &route.route);
        http.filter_map(|to| to.destination.as_ref()).map(|to| &to.host)
    });
    let rules = objects.destination_rules.values().filter(|it| own(&it.meta)).map(|it| &it.spec.host);
    routes.chain(rules).map(|host| Host::new(&qualified(host))).collect()
}

fn size_of(class: &dyn Class) -> ConfigSize {
    let of = |kind| class.since(kind, 0);
    let kinds = [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route];
    let bytes = kinds
        .into_iter()
        .map(|kind| of(kind).changed.iter().map(|it| it.entry(Variant::Sotw).len()).sum::<usize>())
        .sum();
    ConfigSize { clusters: of(TypeUrl::Cluster).changed.len(), bytes }
}

fn rendered_size(mesh: &Mesh, placement: &Placement) -> ConfigSize {
    let all = views::render(mesh, placement);
    let clusters = all.iter().filter(|it| it.kind == TypeUrl::Cluster).count();
    ConfigSize { clusters, bytes: all.iter().map(|it| it.any.value.len() + it.any.type_url.len()).sum() }
}

fn yaml(namespace: &str, hosts: &[String]) -> String {
    let hosts: String = hosts.iter().map(|host| format!("    - \"{host}\"\n")).collect();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata:\n  name: default\n  namespace: {namespace}\nspec:\n  egress:\n  - hosts:\n{hosts}"
    )
}
