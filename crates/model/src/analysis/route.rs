//! VirtualServices: missing destinations, gateways, delegates and ports, and hosts that an older VirtualService claims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use config::kind::Kind;
use config::kinds::string_match::StringMatch;
use config::kinds::virtual_service::{Destination, VirtualService};
use config::meta::Object;
use config::store::Name;
use config::validate::is_claim;

use super::{Diagnostics, ReferenceIndex, suggestion};
use crate::mesh::Mesh;
use crate::service::Service;
use crate::virtual_service::MESH;
use crate::visibility::Visibility;

type VirtualServiceObject = Object<VirtualService>;

pub(super) fn check(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    let mut objects: Vec<&Arc<VirtualServiceObject>> = mesh.objects.virtual_services.values().collect();
    objects.sort_by(|a, b| a.meta.age_order(&b.meta));
    for object in &objects {
        check_destinations(object, references, diagnostics);
        check_weights(object, diagnostics);
        check_claims(object, diagnostics);
        check_gateways(mesh, object, diagnostics);
        check_delegates(mesh, object, diagnostics);
        check_ports(object, references, diagnostics);
    }
    check_unreferenced_delegates(&objects, diagnostics);
    check_conflicts(mesh, &objects, references, diagnostics);
}

fn warn(
    diagnostics: &mut Diagnostics,
    object: &VirtualServiceObject,
    field: impl Into<String>,
    what: impl Into<String>,
) {
    diagnostics.warn(Kind::VirtualService, &object.meta, field, what);
}

/// Destinations with the paths of their fields.
pub(super) fn destinations(spec: &VirtualService) -> Vec<(String, &Destination)> {
    let mut found = Vec::new();
    for (index, route) in spec.http.iter().enumerate() {
        let to = route.route.iter().map(|to| to.destination.as_ref());
        found.extend(with_field_paths(&format!("spec.http[{index}].route"), to));
        found.extend(route.mirror.as_deref().map(|mirror| (format!("spec.http[{index}].mirror"), mirror)));
        let mirrors = route.mirrors.iter().map(|mirror| mirror.destination.as_ref());
        found.extend(with_field_paths(&format!("spec.http[{index}].mirrors"), mirrors));
    }
    for (index, route) in spec.tls.iter().enumerate() {
        found.extend(with_field_paths(
            &format!("spec.tls[{index}].route"),
            route.route.iter().map(|to| to.destination.as_ref()),
        ));
    }
    for (index, route) in spec.tcp.iter().enumerate() {
        found.extend(with_field_paths(
            &format!("spec.tcp[{index}].route"),
            route.route.iter().map(|to| to.destination.as_ref()),
        ));
    }
    found
}

fn with_field_paths<'a>(
    path: &str,
    list: impl Iterator<Item = Option<&'a Destination>>,
) -> Vec<(String, &'a Destination)> {
    let found = list.enumerate().filter_map(|(index, to)| Some((format!("{path}[{index}].destination"), to?)));
    found.collect()
}

fn check_destinations(object: &VirtualServiceObject, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    for (path, destination) in destinations(&object.spec) {
        let host = Host::resolve_short(&destination.host, &object.meta.namespace, references.domain);
        let services = references.services_of(&host);
        if services.is_empty() {
            warn(
                diagnostics,
                object,
                format!("{path}.host"),
                format!(
                    "no Service or ServiceEntry is called {host}; requests that are sent there fail with 503{}",
                    suggestion::of_hosts(&host, references)
                ),
            );
            continue;
        }
        if !destination.subset.is_empty() && !references.has_subset(&host, &destination.subset) {
            warn(
                diagnostics,
                object,
                format!("{path}.subset"),
                format!(
                    "no DestinationRule has a subset {:?} of {host}; requests that are sent there fail with 503{}",
                    destination.subset,
                    suggestion::of_names(&destination.subset, references.subsets_of(&host))
                ),
            );
        }
        let number = destination.port.map_or(0, |port| port.number);
        let has_port = services.iter().any(|service| service.ports.iter().any(|port| u32::from(port.number) == number));
        if number != 0 && !has_port {
            warn(
                diagnostics,
                object,
                format!("{path}.port"),
                format!(
                    "{host} has no port {number}; requests that are sent there fail with 503; it has {}",
                    ports(&services)
                ),
            );
        }
    }
}

/// `80, 443`
fn ports(services: &[&Arc<Service>]) -> String {
    let numbers: BTreeSet<u16> = services.iter().flat_map(|service| &service.ports).map(|port| port.number).collect();
    if numbers.is_empty() {
        "none".to_owned()
    } else {
        numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// istiod sends such a matcher all the same, and so do we.
fn check_claims(object: &VirtualServiceObject, diagnostics: &mut Diagnostics) {
    for (index, route) in object.spec.http.iter().enumerate() {
        for (at, wanted) in route.matches.iter().enumerate() {
            let lists = [("headers", &wanted.headers), ("withoutHeaders", &wanted.without_headers)];
            let claims =
                lists.into_iter().flat_map(|(field, list)| list.iter().map(move |(name, text)| (field, name, text)));
            for (field, name, text) in claims.filter(|(_, name, _)| is_claim(name)) {
                let Some(fault) = claim_fault(text) else { continue };
                let path = format!("spec.http[{index}].match[{at}].{field}[{name:?}]");
                let what =
                    format!("{fault}, and proxies reject all routes of the port; match any text with the regex \".*\"");
                warn(diagnostics, object, path, what);
            }
        }
    }
}

/// Of a header both mean that it is there. For claims there is no such matcher.
fn claim_fault(text: &StringMatch) -> Option<&'static str> {
    match text {
        StringMatch::Any => Some("a claim is matched without a value"),
        StringMatch::Regex(pattern) if pattern == "*" => Some("a claim is matched with the pattern \"*\""),
        _ => None,
    }
}

fn check_weights(object: &VirtualServiceObject, diagnostics: &mut Diagnostics) {
    let http = object.spec.http.iter().map(|route| route.route.iter().map(|to| to.weight).collect::<Vec<_>>());
    let tcp = object.spec.tcp.iter().map(|route| route.route.iter().map(|to| to.weight).collect());
    let tls = object.spec.tls.iter().map(|route| route.route.iter().map(|to| to.weight).collect());
    let all = [("http", http.collect::<Vec<_>>()), ("tcp", tcp.collect()), ("tls", tls.collect())];
    for (kind, routes) in all {
        for (index, weights) in routes.iter().enumerate().filter(|(_, weights)| weights.len() > 1) {
            let total: i64 = weights.iter().map(|&weight| i64::from(weight)).sum();
            if total != 100 && total > 0 {
                let what = format!("the weights add up to {total}, not to 100; each is taken as a share of {total}");
                warn(diagnostics, object, format!("spec.{kind}[{index}].route"), what);
            }
        }
    }
}

fn check_gateways(mesh: &Mesh, object: &VirtualServiceObject, diagnostics: &mut Diagnostics) {
    for (index, name) in object.spec.gateways.iter().enumerate().filter(|(_, name)| *name != MESH) {
        let (namespace, gateway) = name.split_once('/').unwrap_or((&object.meta.namespace, name));
        let is_host_name = !name.contains('/') && name.contains('.');
        if !is_host_name && !mesh.objects.gateways.contains_key(&Name::new(namespace, gateway)) {
            let hint = suggestion::of_objects(namespace, gateway, &mesh.objects.gateways);
            let what =
                format!("there is no Gateway {namespace}/{gateway}, so that no requests are routed through it{hint}");
            warn(diagnostics, object, format!("spec.gateways[{index}]"), what);
        }
    }
}

fn check_delegates(mesh: &Mesh, object: &VirtualServiceObject, diagnostics: &mut Diagnostics) {
    let own = &object.meta.namespace;
    for (index, route) in object.spec.http.iter().enumerate() {
        let Some(delegate) = &route.delegate else { continue };
        let namespace: &str = if delegate.namespace.is_empty() { own } else { &delegate.namespace };
        let name = format!("{namespace}/{}", delegate.name);
        let found = mesh.objects.virtual_services.get(&Name::new(namespace, &delegate.name));
        let what = match found {
            None => {
                let hint = suggestion::of_objects(namespace, &delegate.name, &mesh.objects.virtual_services);
                format!("there is no VirtualService {name}; the route is left out{hint}")
            }
            Some(found) if !found.spec.hosts.is_empty() => {
                format!("{name} has hosts, so that nobody can delegate to it; remove its hosts. The route is left out")
            }
            Some(found) if !visibility(mesh, found).allows(own) => {
                format!("{name} is not exported to {own}; add it to exportTo there. The route is left out")
            }
            Some(found) if found.spec.http.iter().any(|route| route.delegate.is_some()) => {
                format!(
                    "{name} delegates in turn, which is not followed, in circles or not; those of its routes are left out"
                )
            }
            Some(_) => continue,
        };
        warn(diagnostics, object, format!("spec.http[{index}].delegate"), what);
    }
}

fn visibility(mesh: &Mesh, object: &VirtualServiceObject) -> Visibility {
    let own = &object.spec.export_to;
    let export_to = if own.is_empty() { &mesh.config.default_virtual_service_export_to } else { own };
    Visibility::new(export_to.iter().map(String::as_str), &object.meta.namespace)
}

/// VirtualServices without hosts to which no other delegates.
fn check_unreferenced_delegates(objects: &[&Arc<VirtualServiceObject>], diagnostics: &mut Diagnostics) {
    let mut delegates = BTreeSet::new();
    for object in objects {
        for delegate in object.spec.http.iter().filter_map(|route| route.delegate.as_ref()) {
            let namespace =
                if delegate.namespace.is_empty() { &*object.meta.namespace } else { delegate.namespace.as_str() };
            delegates.insert((namespace, delegate.name.as_str()));
        }
    }
    for object in objects.iter().filter(|object| object.spec.hosts.is_empty()) {
        if !delegates.contains(&(&*object.meta.namespace, &*object.meta.name)) {
            warn(
                diagnostics,
                object,
                "spec.hosts",
                "it has no hosts and nobody delegates to it, so that it has no effect; give it hosts, or delegate to it",
            );
        }
    }
}

/// Matched ports on which none of the hosts listens.
fn check_ports(object: &VirtualServiceObject, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    if !is_for_mesh(object) {
        return;
    }
    let hosts =
        object.spec.hosts.iter().map(|host| Host::resolve_short(host, &object.meta.namespace, references.domain));
    let services: Vec<_> = hosts.flat_map(|host| references.services_of(&host)).collect();
    let ports: BTreeSet<u32> =
        services.iter().flat_map(|service| &service.ports).map(|port| u32::from(port.number)).collect();
    if ports.is_empty() || object.spec.hosts.iter().any(|host| host.starts_with('*')) {
        return;
    }
    let http = object.spec.http.iter().map(|route| route.matches.iter().map(|wanted| wanted.port).collect::<Vec<_>>());
    let tcp = object.spec.tcp.iter().map(|route| route.matches.iter().map(|wanted| wanted.port).collect());
    let tls = object.spec.tls.iter().map(|route| route.matches.iter().map(|wanted| wanted.port).collect());
    for (kind, routes) in [("http", http.collect::<Vec<_>>()), ("tcp", tcp.collect()), ("tls", tls.collect())] {
        for (index, matches) in routes.iter().enumerate() {
            for (match_index, port) in
                matches.iter().enumerate().filter(|(_, port)| **port != 0 && !ports.contains(port))
            {
                let what = format!("none of the hosts has port {port}, so that no listener takes such requests");
                warn(diagnostics, object, format!("spec.{kind}[{index}].match[{match_index}].port"), what);
            }
        }
    }
}

fn is_for_mesh(object: &VirtualServiceObject) -> bool {
    object.spec.gateways.is_empty() || object.spec.gateways.iter().any(|gateway| gateway == MESH)
}

/// Sidecars use only the oldest VirtualService of a host.
fn check_conflicts(
    mesh: &Mesh,
    objects: &[&Arc<VirtualServiceObject>],
    references: &ReferenceIndex<'_>,
    diagnostics: &mut Diagnostics,
) {
    let mut oldest: BTreeMap<Host, &Arc<VirtualServiceObject>> = BTreeMap::new();
    for object in objects.iter().filter(|object| is_for_mesh(object)) {
        for (index, host) in object.spec.hosts.iter().enumerate() {
            let host = Host::resolve_short(host, &object.meta.namespace, references.domain);
            let Some(older) = oldest.get(&host) else {
                oldest.insert(host, object);
                continue;
            };
            if !Arc::ptr_eq(older, object) && overlaps(&visibility(mesh, older), &visibility(mesh, object)) {
                let (namespace, name) = (&older.meta.namespace, &older.meta.name);
                let what = format!(
                    "VirtualService {namespace}/{name} has {host} too and goes first; put the routes of sidecars into one of them"
                );
                warn(diagnostics, object, format!("spec.hosts[{index}]"), what);
            }
        }
    }
}

/// Some namespace sees both.
fn overlaps(a: &Visibility, b: &Visibility) -> bool {
    match (a, b) {
        (Visibility::Nobody, _) | (_, Visibility::Nobody) => false,
        (Visibility::Namespaces(a), Visibility::Namespaces(b)) => !a.is_disjoint(b),
        _ => true,
    }
}
