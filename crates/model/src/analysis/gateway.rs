//! Gateways and what they are to serve: hosts of VirtualServices that their servers exclude, ports that no Service leads to, JWT claims that nobody
//! verifies, destinations that need a port.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::host::Host;
use config::kind::Kind;
use config::kinds::gateway::Gateway;
use config::kinds::pod::Pod;
use config::kinds::virtual_service::VirtualService;
use config::labels::Labels;
use config::meta::Object;
use config::store::Name;
use config::validate::is_claim;

use super::{Diagnostics, ReferenceIndex};
use crate::attachment::Attachment;
use crate::mesh::Mesh;
use crate::service::{Port, TargetPort};
use crate::virtual_service::MESH;

pub(super) fn check(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    for object in mesh.objects.virtual_services.values() {
        let bound = bound_gateways(mesh, object);
        check_hosts(object, &bound, references, diagnostics);
        check_claims(mesh, object, &bound, diagnostics);
        check_destination_ports(object, &bound, references, diagnostics);
    }
    for object in mesh.objects.gateways.values() {
        check_ports(mesh, object, references, diagnostics);
    }
}

/// The Gateways that a VirtualService names and that exist, with their places in its list.
fn bound_gateways<'a>(mesh: &'a Mesh, object: &Object<VirtualService>) -> Vec<(usize, &'a Arc<Object<Gateway>>)> {
    let names = object.spec.gateways.iter().enumerate();
    let found = names.filter_map(|(index, name)| {
        let (namespace, gateway) = name.split_once('/').unwrap_or((&object.meta.namespace, name));
        Some((index, mesh.objects.gateways.get(&Name::new(namespace, gateway))?))
    });
    found.collect()
}

/// A gateway serves only hosts that one of its servers has.
fn check_hosts(
    object: &Object<VirtualService>,
    bound: &[(usize, &Arc<Object<Gateway>>)],
    references: &ReferenceIndex<'_>,
    diagnostics: &mut Diagnostics,
) {
    let namespace = &*object.meta.namespace;
    let hosts: Vec<Host> =
        object.spec.hosts.iter().map(|host| Host::resolve_short(host, namespace, references.domain)).collect();
    let serves = |gateway: &Object<Gateway>, host: &Host| {
        let servers = gateway.spec.servers.iter().flat_map(|server| &server.hosts);
        let mut own = servers.filter_map(|entry| server_host(entry, &gateway.meta.namespace, namespace));
        own.any(|own| own.matches(host))
    };
    for (index, gateway) in bound {
        if !hosts.is_empty() && !hosts.iter().any(|host| serves(gateway, host)) {
            let (home, name) = (&gateway.meta.namespace, &gateway.meta.name);
            let what = format!(
                "no server of Gateway {home}/{name} has one of these hosts for namespace {namespace} (it has {}), so that it routes nothing of this",
                server_hosts(gateway)
            );
            diagnostics.warn(Kind::VirtualService, &object.meta, format!("spec.gateways[{index}]"), what);
        }
    }
    let is_for_sidecars = object.spec.gateways.iter().any(|name| name == MESH);
    if is_for_sidecars || bound.len() < object.spec.gateways.len() || bound.is_empty() {
        return;
    }
    let is_useful = hosts.iter().any(|host| bound.iter().any(|(_, gateway)| serves(gateway, host)));
    for (index, host) in hosts.iter().enumerate().filter(|_| is_useful) {
        if !bound.iter().any(|(_, gateway)| serves(gateway, host)) {
            let what = format!(
                "none of its Gateways has a server for {host}, so that it is not routed; add it to hosts there"
            );
            diagnostics.warn(Kind::VirtualService, &object.meta, format!("spec.hosts[{index}]"), what);
        }
    }
}

/// The host of an entry `[namespace/]host`. `None`: it is for other namespaces.
fn server_host(entry: &str, home: &str, namespace: &str) -> Option<Host> {
    let Some((scope, host)) = entry.split_once('/') else { return Some(Host::new(entry)) };
    let is_allowed = scope == "*" || scope == namespace || scope == "." && home == namespace;
    is_allowed.then(|| Host::new(host))
}

fn server_hosts(gateway: &Object<Gateway>) -> String {
    const SHOWN: usize = 5;
    let hosts: BTreeSet<&str> =
        gateway.spec.servers.iter().flat_map(|server| &server.hosts).map(String::as_str).collect();
    let shown = hosts.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if hosts.len() > SHOWN { format!("{shown} and {} more", hosts.len() - SHOWN) } else { shown }
}

/// Claims are known only where a RequestAuthentication verifies tokens.
fn check_claims(
    mesh: &Mesh,
    object: &Object<VirtualService>,
    bound: &[(usize, &Arc<Object<Gateway>>)],
    diagnostics: &mut Diagnostics,
) {
    let matches = object.spec.http.iter().enumerate().flat_map(|(index, route)| {
        route.matches.iter().enumerate().map(move |(at, wanted)| (format!("spec.http[{index}].match[{at}]"), wanted))
    });
    let first = matches.into_iter().find_map(|(path, wanted)| {
        let lists = [("headers", &wanted.headers), ("withoutHeaders", &wanted.without_headers)];
        let mut claims = lists.into_iter().flat_map(|(field, list)| list.keys().map(move |name| (field, name)));
        claims.find(|(_, name)| is_claim(name)).map(|(field, name)| format!("{path}.{field}[{name:?}]"))
    });
    let Some(field) = first else { return };
    for (_, gateway) in bound.iter().filter(|(_, gateway)| !gateway.spec.selector.is_empty()) {
        let unverified = mesh.objects.pods.values().find(|pod| {
            pod.meta.labels.contains_all(&gateway.spec.selector)
                && !verifies_tokens(mesh, &pod.meta.namespace, &pod.meta.labels)
        });
        if let Some(pod) = unverified {
            let (home, name) = (&gateway.meta.namespace, &gateway.meta.name);
            let what = format!(
                "no RequestAuthentication applies to the pods of Gateway {home}/{name} ({}/{}), so that no claim is known there and this never matches",
                pod.meta.namespace, pod.meta.name
            );
            diagnostics.warn(Kind::VirtualService, &object.meta, &field, what);
        }
    }
}

fn verifies_tokens(mesh: &Mesh, namespace: &str, labels: &Labels) -> bool {
    let root = mesh.config.root_namespace.as_str();
    mesh.objects.request_authentications.values().any(|object| {
        let (spec, home) = (&object.spec, &*object.meta.namespace);
        let selector = spec.selector.as_ref().map(|selector| &selector.match_labels);
        let attachment = Attachment::new(selector, &spec.target_refs, spec.target_ref.as_ref());
        (home == root || home == namespace) && attachment.applies(home, namespace, labels)
    })
}

/// Without a port a destination has that of the listener, unless its service has only one.
fn check_destination_ports(
    object: &Object<VirtualService>,
    bound: &[(usize, &Arc<Object<Gateway>>)],
    references: &ReferenceIndex<'_>,
    diagnostics: &mut Diagnostics,
) {
    let servers = bound.iter().flat_map(|(_, gateway)| &gateway.spec.servers);
    let listeners: BTreeSet<u32> = servers.filter_map(|server| server.port.as_ref()).map(|port| port.number).collect();
    for (path, destination) in super::route::destinations(&object.spec).into_iter().filter(|(_, it)| it.port.is_none())
    {
        let host = Host::resolve_short(&destination.host, &object.meta.namespace, references.domain);
        let services = references.services_of(&host);
        let ports: BTreeSet<u32> =
            services.iter().flat_map(|service| &service.ports).map(|port| u32::from(port.number)).collect();
        let missing = listeners.iter().find(|listener| !ports.contains(listener));
        if let Some(listener) = missing.filter(|_| ports.len() > 1) {
            let ports = ports.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let what = format!(
                "{host} has the ports {ports} and none is chosen; the gateway listens on {listener}, which is not one of them, so that requests fail with 503; add port"
            );
            diagnostics.warn(Kind::VirtualService, &object.meta, path, what);
        }
    }
}

/// Ports that no Service of the gateway's pods leads to.
fn check_ports(mesh: &Mesh, object: &Object<Gateway>, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    if object.spec.selector.is_empty() {
        return;
    }
    let mut targets = BTreeSet::new();
    for pod in mesh.objects.pods.values().filter(|pod| pod.meta.labels.contains_all(&object.spec.selector)) {
        for service in references.selecting(&pod.meta.namespace, &pod.meta.labels) {
            let Some(service) = references.service_of(&service.meta) else { continue };
            targets.extend(service.ports.iter().flat_map(|port| reached_ports(port, pod)));
        }
    }
    // Without a Service, clients reach the pods in another way, such as ports of their hosts.
    if targets.is_empty() {
        return;
    }
    for (index, server) in object.spec.servers.iter().enumerate() {
        let Some(port) = server.port.as_ref().filter(|port| !targets.contains(&port.number)) else { continue };
        let what = format!(
            "no Service of the pods that this selects leads to port {}, so that it is reached only from inside; add the port there",
            port.number
        );
        diagnostics.warn(Kind::Gateway, &object.meta, format!("spec.servers[{index}].port.number"), what);
    }
}

/// The port of a Service, by which a Gateway may name it too, and that of the pod behind it.
fn reached_ports(port: &Port, pod: &Object<Pod>) -> Vec<u32> {
    let mut reached = vec![port.number.into()];
    match &port.target {
        TargetPort::Same => {}
        TargetPort::Number(number) => reached.push((*number).into()),
        TargetPort::Name(name) => {
            reached.extend(pod.spec.ports.iter().filter(|it| *it.name == **name).map(|it| u32::from(it.port)));
        }
    }
    reached
}
