//! What a Sidecar would save: a second mesh is computed, with a Sidecar in each namespace that has none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use config::kinds::sidecar::{IstioEgressListener, Sidecar};
use config::meta::{Meta, Object};
use config::store::{Name, Snapshot};
use model::{Mesh, Placement};
use xds::{Class, Connection, TypeUrl, Variant};

use super::facts::{ConfigSize, UnscopedNamespace};
use super::observed::ObservedCalls;
use crate::registry::placement_of;

/// Below this many services a Sidecar saves little.
const MANY_SERVICES: usize = 200;
/// Namespaces that are measured; the first by name.
const MAX_MEASURED: usize = 20;

pub(crate) fn unscoped(
    objects: &Snapshot,
    mesh: &Arc<Mesh>,
    connections: &[Connection],
    observed: &ObservedCalls,
) -> Vec<UnscopedNamespace> {
    let mut samples: BTreeMap<&str, (usize, &Connection)> = BTreeMap::new();
    for connection in connections.iter().filter(|it| it.proxy.kind == "sidecar") {
        samples.entry(&connection.proxy.namespace).or_insert((0, connection)).0 += 1;
    }
    let is_unscoped =
        |placement: &Placement| placement.scope.sidecar.is_none() && placement.scope.services.len() >= MANY_SERVICES;
    let unscoped: Vec<_> = samples
        .into_iter()
        .filter(|(_, (_, sample))| placement_of(mesh, sample).is_some_and(|placement| is_unscoped(&placement)))
        .take(MAX_MEASURED)
        .collect();
    if unscoped.is_empty() {
        return Vec::new();
    }
    let sidecars: BTreeMap<&str, Vec<String>> =
        unscoped.iter().map(|(namespace, _)| (*namespace, hosts(objects, mesh, namespace, observed))).collect();
    let scoped = with_sidecars(objects, mesh, &sidecars);
    let found = unscoped.into_iter().filter_map(|(namespace, (proxies, sample))| {
        let placement = placement_of(&scoped, sample)?;
        let (before, after) = (size_of(sample.class.as_ref()), rendered_size(&scoped, &placement));
        let sidecar = yaml(namespace, &sidecars[namespace]);
        let saves = after.bytes * 2 < before.bytes;
        saves.then(|| UnscopedNamespace {
            namespace: namespace.to_owned(),
            proxies,
            sample: sample.proxy.id.clone(),
            before,
            after,
            sidecar,
        })
    });
    found.collect()
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

/// The namespace itself, that of the control plane, and the observed calls, else the hosts that its objects name.
fn hosts(objects: &Snapshot, mesh: &Mesh, namespace: &str, observed: &ObservedCalls) -> Vec<String> {
    let called = match observed.get(namespace) {
        Some(called) => called.iter().map(|host| Host::new(host)).collect(),
        None => referenced_hosts(objects, mesh, namespace),
    };
    let imported =
        called.iter().filter_map(|host| mesh.service(host)).filter(|service| &*service.namespace != namespace);
    let imported: BTreeSet<String> = imported
        .filter(|service| *service.namespace != *objects.mesh.root_namespace)
        .map(|service| format!("{}/{}", service.namespace, service.host))
        .collect();
    let defaults = ["./*".to_owned(), format!("{}/*", objects.mesh.root_namespace)];
    defaults.into_iter().chain(imported).collect()
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
