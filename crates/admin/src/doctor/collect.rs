//! Collects the facts in a running server, from its objects, its mesh and its streams.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use config::kinds::authorization_policy::AuthorizationPolicy;
use config::kinds::peer_authentication::PeerAuthentication;
use config::store::{Snapshot, Table};
use model::Mesh;
use views::HoldInForce;
use xds::{Connection, Variant};

use super::facts::{DuplicateEntry, EffectiveSettings, Facts, IdleNamespace, LongEntry, Rejection, RepeatedPolicies};
use crate::metrics::{ObjectStats, has_sidecar};
use crate::registry::placement_of;
use crate::scope::observed_use::ObservedCalls;
use crate::scope::{self, ScopeLimits};

/// A ServiceEntry with more addresses should have a DNS name instead.
const MANY_ADDRESSES: usize = 50;
/// The number of equal policies that are reported.
const MANY_POLICIES: usize = 5;
/// The number of policies that are compared, at quadratic cost.
const COMPARED: usize = 2000;

/// `namespace`: the one that is asked about, with its objects and proxies alone; `None`: all.
pub(crate) fn facts(
    effective: &EffectiveSettings,
    (objects, mesh): (&Snapshot, &Arc<Mesh>),
    connections: &[Connection],
    holds: &[HoldInForce],
    observed: &ObservedCalls,
    namespace: Option<&str>,
) -> Facts {
    let is_asked = |name: &str| namespace.is_none_or(|asked| asked == name);
    let own: Vec<Connection> = connections.iter().filter(|it| is_asked(&it.proxy.namespace)).cloned().collect();
    let connections = own.as_slice();
    let facts = Facts {
        settings: effective.clone(),
        signing_key: String::new(),
        services: mesh.all_services().count(),
        proxies: connections.len(),
        expected: match namespace {
            None => ObjectStats::of(objects, &effective.revision).expected_proxies,
            Some(asked) => {
                objects.pods.values().filter(|pod| &*pod.meta.namespace == asked && has_sidecar(pod)).count()
            }
        },
        state_of_the_world: names(connections.iter().filter(|it| it.variant == Variant::Sotw)),
        zombies: zombies(objects, mesh, connections),
        rejections: rejections(connections, holds),
        unscoped: scope::unscoped(objects, mesh, connections, observed, ScopeLimits::WARNED),
        broad_filters: broad_filters(objects),
        wildcard_entries: wildcard_entries(objects),
        long_entries: long_entries(objects),
        doubled_entries: doubled_entries(objects, mesh),
        repeated_policies: repeated_policies(objects),
        idle_namespaces: idle_namespaces(objects, connections),
    };
    namespace.map_or(facts.clone(), |asked| of_namespace(facts, asked))
}

/// Without the objects of other namespaces.
fn of_namespace(mut facts: Facts, asked: &str) -> Facts {
    let is_own = |name: &str| name.split_once('/').is_some_and(|(namespace, _)| namespace == asked);
    for names in [&mut facts.broad_filters, &mut facts.wildcard_entries] {
        names.retain(|name| is_own(name));
    }
    facts.long_entries.retain(|it| is_own(&it.entry));
    facts.doubled_entries.retain(|it| is_own(&it.entry));
    facts.repeated_policies.retain(|it| it.namespace == asked);
    facts.idle_namespaces.retain(|it| it.namespace == asked);
    facts
}

fn names<'a>(connections: impl Iterator<Item = &'a Connection>) -> Vec<String> {
    connections.map(|connection| connection.proxy.id.clone()).collect()
}

/// Only where there are pods: a folder may have services only.
fn zombies(objects: &Snapshot, mesh: &Arc<Mesh>, connections: &[Connection]) -> Vec<String> {
    if objects.pods.is_empty() {
        return Vec::new();
    }
    let has_workload = |it: &Connection| {
        placement_of(mesh, it)
            .is_none_or(|placement| placement.workload.is_some() || mesh.has_workload_entry_of(&placement.proxy))
    };
    names(connections.iter().filter(|it| !has_workload(it)))
}

/// Of one reason to reject a type.
#[derive(Default)]
struct Causes {
    objects: BTreeSet<String>,
    proxies: Vec<String>,
}

/// What is held back is rejected, although the proxies have acknowledged since.
fn rejections(connections: &[Connection], holds: &[HoldInForce]) -> Vec<Rejection> {
    let mut causes: BTreeMap<(&str, String), Causes> = BTreeMap::new();
    for connection in connections {
        for watched in &connection.watched {
            let Some(error) = &watched.last_error else { continue };
            let reason = error.split_whitespace().collect::<Vec<_>>().join(" ");
            let causes = causes.entry((watched.kind.short(), reason)).or_default();
            causes.proxies.push(connection.proxy.id.clone());
            let behind = connection.class.since(watched.kind, watched.position);
            let named = behind.changed.iter().filter(|it| xds::mentions_name(error, &it.name));
            causes.objects.extend(named.flat_map(|it| &it.provenance).map(ToString::to_string));
        }
    }
    let own: HashSet<&str> = connections.iter().map(|it| it.proxy.id.as_str()).collect();
    for HoldInForce { hold, proxies } in holds {
        let reason = hold.reason.split_whitespace().collect::<Vec<_>>().join(" ");
        for proxy in proxies.iter().filter(|it| own.contains(&*it.id)) {
            let causes = causes.entry((hold.key.kind.short(), reason.clone())).or_default();
            if !causes.proxies.iter().any(|known| **known == *proxy.id) {
                causes.proxies.push(proxy.id.to_string());
            }
            causes.objects.extend(hold.refused.provenance.iter().map(ToString::to_string));
        }
    }
    let of_kinds = causes.into_iter().map(|((kind, reason), causes)| Rejection {
        kind: kind.to_owned(),
        reason,
        objects: causes.objects.into_iter().collect(),
        proxies: causes.proxies,
    });
    of_kinds.collect()
}

/// In the root namespace and without a selector: they are merged into every proxy's configuration.
fn broad_filters(objects: &Snapshot) -> Vec<String> {
    let broad = objects.envoy_filters.values().filter(|filter| {
        *filter.meta.namespace == *objects.mesh.root_namespace
            && filter.spec.workload_selector.is_none()
            && filter.spec.target_refs.is_empty()
    });
    broad.map(|filter| format!("{}/{}", filter.meta.namespace, filter.meta.name)).collect()
}

fn wildcard_entries(objects: &Snapshot) -> Vec<String> {
    let wide = objects.service_entries.values().filter(|it| it.spec.hosts.iter().any(|host| host.starts_with('*')));
    wide.map(|entry| format!("{}/{}", entry.meta.namespace, entry.meta.name)).collect()
}

fn long_entries(objects: &Snapshot) -> Vec<LongEntry> {
    let long = objects.service_entries.values().map(|entry| {
        let addresses = entry.spec.addresses.len() + entry.spec.endpoints.len();
        LongEntry { entry: format!("{}/{}", entry.meta.namespace, entry.meta.name), addresses }
    });
    long.filter(|entry| entry.addresses > MANY_ADDRESSES).collect()
}

fn doubled_entries(objects: &Snapshot, mesh: &Mesh) -> Vec<DuplicateEntry> {
    let host = |name: &config::store::Name| format!("{}.{}.svc.{}", name.name, name.namespace, mesh.env.domain);
    let services: BTreeMap<String, String> =
        objects.services.keys().map(|name| (host(name), format!("{}/{}", name.namespace, name.name))).collect();
    let entries = objects.service_entries.values().flat_map(|entry| {
        let twins = entry.spec.hosts.iter().filter_map(|host| services.get(host));
        twins.map(|twin| DuplicateEntry {
            entry: format!("{}/{}", entry.meta.namespace, entry.meta.name),
            service: twin.clone(),
        })
    });
    entries.collect()
}

fn repeated_policies(objects: &Snapshot) -> Vec<RepeatedPolicies> {
    let calls = equal_policies("AuthorizationPolicies", &objects.authorization_policies, |policy| {
        policy.selector.is_some().then(|| AuthorizationPolicy { selector: None, ..policy.clone() })
    });
    let peers = equal_policies("PeerAuthentications", &objects.peer_authentications, |policy| {
        policy.selector.is_some().then(|| PeerAuthentication { selector: None, ..policy.clone() })
    });
    calls.into_iter().chain(peers).collect()
}

/// `without_selector`: `None` if the policy has none.
fn equal_policies<S: PartialEq>(
    kind: &str,
    policies: &Table<S>,
    without_selector: impl Fn(&S) -> Option<S>,
) -> Vec<RepeatedPolicies> {
    let mut groups: Vec<(&str, S, Vec<String>)> = Vec::new();
    for policy in policies.values().take(COMPARED) {
        let Some(without_selector) = without_selector(&policy.spec) else { continue };
        let name = policy.meta.name.to_string();
        match groups
            .iter_mut()
            .find(|(namespace, spec, _)| *namespace == &*policy.meta.namespace && *spec == without_selector)
        {
            Some((_, _, names)) => names.push(name),
            None => groups.push((&policy.meta.namespace, without_selector, vec![name])),
        }
    }
    let many = groups.into_iter().filter(|(_, _, names)| names.len() >= MANY_POLICIES);
    many.map(|(namespace, _, policies)| RepeatedPolicies {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        policies,
    })
    .collect()
}

fn idle_namespaces(objects: &Snapshot, connections: &[Connection]) -> Vec<IdleNamespace> {
    let pods = objects.pods.values().filter(|pod| has_sidecar(pod)).map(|pod| &*pod.meta.namespace);
    let busy: BTreeSet<&str> = pods.chain(connections.iter().map(|it| &*it.proxy.namespace)).collect();
    let mut idle: BTreeMap<&str, usize> = BTreeMap::new();
    for name in objects.services.keys() {
        let namespace = &*name.namespace;
        if !busy.contains(namespace) && namespace != objects.mesh.root_namespace {
            *idle.entry(namespace).or_default() += 1;
        }
    }
    idle.into_iter().map(|(namespace, services)| IdleNamespace { namespace: namespace.to_owned(), services }).collect()
}
