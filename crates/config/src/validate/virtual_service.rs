//! VirtualService: hosts, gateways, TLS and TCP routes. HTTP routes and unreachable rules are in files of their own.

mod action;
mod destination;
mod http;
mod http_match;
mod shadow;
#[cfg(test)]
mod tests;

use super::field_context::{FieldContext, Grade};
use super::header::is_claim;
use super::label::{Exported, check_export_to, check_labels};
use super::network::{is_ip, subnet_fault};
use crate::host::Host;
use crate::kinds::virtual_service::{L4MatchAttributes, TcpRoute, TlsMatchAttributes, TlsRoute, VirtualService};
use crate::mesh::dns_name::{is_label, name_fault, wildcard_name_fault};
use crate::meta::Meta;

use self::destination::check_destinations;

pub(super) use self::destination::check_destination;

pub(super) fn check(at: &FieldContext<'_>, meta: &Meta, service: &VirtualService) {
    let role = if service.hosts.is_empty() { http::Role::Delegate } else { http::Role::Root };
    if role == http::Role::Delegate {
        check_delegate(at, service);
    }
    check_gateways(at, &service.gateways);
    let bound = Bound::of(service);
    if bound == Bound::Mesh {
        check_claims(at, service);
    }
    check_hosts(at, service, bound);
    if service.http.is_empty() && service.tcp.is_empty() && service.tls.is_empty() {
        at.error("there are no routes; write http, tls or tcp");
    }
    at.each("http", &service.http, |at, route| http::check(at, route, role));
    at.each("tls", &service.tls, |at, route| check_tls(at, route, service, bound));
    at.each("tcp", &service.tcp, check_tcp);
    check_export_to(at, &meta.namespace, &service.export_to, Exported::Other);
    shadow::check(at, service);
}

/// A VirtualService without hosts is a delegate.
fn check_delegate(at: &FieldContext<'_>, service: &VirtualService) {
    let only = "a VirtualService without hosts is for others to delegate HTTP to; give it hosts, or remove";
    at.reject_if("gateways", !service.gateways.is_empty(), &format!("{only} gateways"));
    at.reject_if("tls", !service.tls.is_empty(), &format!("{only} tls"));
    at.reject_if("tcp", !service.tcp.is_empty(), &format!("{only} tcp"));
}

/// The proxies that the routes apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Mesh,
    /// Gateways only.
    Gateways,
}

impl Bound {
    fn of(service: &VirtualService) -> Bound {
        let mesh = service.gateways.is_empty() || service.gateways.iter().any(|name| name == "mesh");
        if mesh { Bound::Mesh } else { Bound::Gateways }
    }
}

/// Names of gateways: `mesh`, `name` or `namespace/name`.
fn check_gateways(at: &FieldContext<'_>, gateways: &[String]) {
    // istiod stops at the first name without a namespace, so that an invalid name after it does not reject the object.
    let mut grade = Grade::Rejected;
    at.each("gateways", gateways, |at, name| {
        let Some((namespace, gateway)) = name.split_once('/') else {
            if name.contains('.') {
                let mut parts = name.split('.');
                let (gateway, namespace) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                at.warn(format!("{name:?} is the old way to name a gateway; write {namespace}/{gateway}"));
            }
            if let Some(fault) = name_fault(name) {
                at.report(grade, fault);
            }
            grade = Grade::Odd;
            return;
        };
        if !is_label(namespace) || !is_label(gateway) {
            at.report(grade, format!("{name:?} is not the name of a gateway; write name or namespace/name"));
        }
    });
}

/// JWTs are verified at gateways; sidecars do not route by claims.
fn check_claims(at: &FieldContext<'_>, service: &VirtualService) {
    at.each("http", &service.http, |at, route| {
        at.each("match", &route.matches, |at, wanted| {
            for (field, names) in [("headers", &wanted.headers), ("withoutHeaders", &wanted.without_headers)] {
                for name in names.keys().filter(|name| is_claim(name)) {
                    at.field(field).field(name).error(
                        "claims of tokens are known at gateways only; name the gateways, and not mesh, in spec.gateways",
                    );
                }
            }
        });
    });
}

fn check_hosts(at: &FieldContext<'_>, service: &VirtualService, bound: Bound) {
    let has_sni = service.tls.iter().flat_map(|route| &route.matches).any(|wanted| !wanted.sni_hosts.is_empty());
    let mut good = true;
    at.each("hosts", &service.hosts, |at, host| {
        let fault = match bound {
            Bound::Gateways => gateway_host_fault(host, has_sni),
            Bound::Mesh => wildcard_name_fault(host),
        };
        match fault {
            Some(fault) if !is_ip(host) => at.error(fault),
            None if bound == Bound::Mesh && host == "*" => {
                at.unfit("* would take over every host of the mesh; name the hosts, or gateways other than mesh");
            }
            _ => return,
        }
        good = false;
    });
    if good {
        check_repeated(at, &service.hosts);
    }
}

/// The number of hosts compared with each other, which bounds the cost of a large object.
const COMPARED: usize = 1000;

/// Hosts that another one of the list already covers.
fn check_repeated(at: &FieldContext<'_>, hosts: &[String]) {
    let hosts = &hosts[..hosts.len().min(COMPARED)];
    at.each("hosts", hosts.iter().enumerate(), |at, (index, host)| {
        if let Some(other) = hosts[..index].iter().find(|other| overlap(other, host)) {
            at.error(format!("{host:?} overlaps with {other:?} of the same list; remove one of them"));
        }
    });
}

/// Some name matches both; case-sensitive, as in istiod.
fn overlap(a: &str, b: &str) -> bool {
    match (a.strip_prefix('*'), b.strip_prefix('*')) {
        (Some(a), Some(b)) => a.ends_with(b) || b.ends_with(a),
        (Some(a), None) => b.ends_with(a),
        (None, Some(b)) => a.ends_with(b),
        (None, None) => a == b,
    }
}

/// Behind a gateway with AUTO_PASSTHROUGH, hosts like `outbound_.80_._.cart.shop.svc.cluster.local` are generated.
fn gateway_host_fault(host: &str, has_sni: bool) -> Option<String> {
    if !has_sni || !host.starts_with("outbound_") {
        return wildcard_name_fault(host);
    }
    let parts: Vec<&str> = host.split('_').collect();
    let port = parts.get(1).is_some_and(|port| port.bytes().any(|b| b.is_ascii_digit()));
    let name = parts.get(3).is_some_and(|name| name.bytes().any(|b| b.is_ascii_alphabetic()));
    let good = host.len() <= 255 && port && name;
    (!good).then(|| format!("{host:?} is not a generated name; it would be outbound_.PORT_.SUBSET_.HOST"))
}

fn check_tls(at: &FieldContext<'_>, route: &TlsRoute, service: &VirtualService, bound: Bound) {
    at.reject_if("match", route.matches.is_empty(), "a TLS route needs at least one match with sniHosts");
    at.each("match", &route.matches, |at, wanted| check_tls_match(at, wanted, service, bound));
    at.unfit_field_if("route", route.route.is_empty(), "a TLS route needs a destination");
    check_destinations(at, route.route.iter().map(|to| (to.destination.as_ref(), to.weight)));
}

fn check_tls_match(at: &FieldContext<'_>, wanted: &TlsMatchAttributes, service: &VirtualService, bound: Bound) {
    at.reject_if("sniHosts", wanted.sni_hosts.is_empty(), "name at least one host; TLS is routed by server name");
    at.each("sniHosts", &wanted.sni_hosts, |at, host| check_sni(at, host, service, bound));
    at.each("destinationSubnets", &wanted.destination_subnets, |at, subnet| at.reject_here(subnet_fault(subnet)));
    if wanted.port != 0 {
        at.check_port("port", wanted.port);
    }
    check_labels(&at.field("sourceLabels"), &wanted.source_labels);
    check_gateways(at, &wanted.gateways);
}

fn check_sni(at: &FieldContext<'_>, name: &str, service: &VirtualService, bound: Bound) {
    let fault = match bound {
        // As in istiod, which treats a VirtualService without gateways like one of a gateway here.
        Bound::Mesh if !service.gateways.is_empty() => wildcard_name_fault(name),
        _ => gateway_host_fault(name, true),
    };
    if let Some(fault) = fault {
        if is_ip(name) {
            at.warn(format!("{name:?} is an IP address, which clients do not send as a server name; use a host name"));
        } else {
            at.error(fault);
        }
        return;
    }
    let name = Host::new(name);
    if !service.hosts.iter().any(|host| name.is_subset_of(&Host::new(host))) {
        let hosts = service.hosts.join(", ");
        at.error(format!("\"{name}\" is not among the hosts of the VirtualService ({hosts}); add it there"));
    }
}

fn check_tcp(at: &FieldContext<'_>, route: &TcpRoute) {
    at.each("match", &route.matches, check_tcp_match);
    at.unfit_field_if("route", route.route.is_empty(), "a TCP route needs a destination");
    check_destinations(at, route.route.iter().map(|to| (to.destination.as_ref(), to.weight)));
}

fn check_tcp_match(at: &FieldContext<'_>, wanted: &L4MatchAttributes) {
    at.each("destinationSubnets", &wanted.destination_subnets, |at, subnet| at.reject_here(subnet_fault(subnet)));
    if wanted.port != 0 {
        at.check_port("port", wanted.port);
    }
    check_labels(&at.field("sourceLabels"), &wanted.source_labels);
    check_gateways(at, &wanted.gateways);
}
