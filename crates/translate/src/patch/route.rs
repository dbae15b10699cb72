//! ROUTE_CONFIGURATION, VIRTUAL_HOST and HTTP_ROUTE patches.

use std::collections::BTreeSet;

use config::kinds::envoy_filter::{
    ApplyTo, MatchedObject, Operation, RouteAction, RouteConfigurationMatch, RouteMatch, VirtualHostMatch,
};
use model::{Patch, PatchSet, Placement};
use wire::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost, route::Action};

use super::{Applied, ROUTE_PATCH_KINDS, list, value};
use crate::names::ClusterName;
use crate::translated::Translated;

/// Patches an outbound route configuration.
pub(crate) fn patch_configuration(
    placement: &Placement,
    mut made: Translated<RouteConfiguration>,
) -> Translated<RouteConfiguration> {
    let set = &placement.patches.outbound;
    if concerns(set, placement, &made.value.name) {
        let mut applied = Applied::default();
        patch(set, placement, &mut made.value, &mut applied);
        made.patched.extend(applied.0);
    }
    made
}

/// Whether a patch matches the outbound route configuration of this name.
pub fn patches_route(placement: &Placement, name: &str) -> bool {
    concerns(&placement.patches.outbound, placement, name)
}

pub(super) fn concerns(set: &PatchSet, placement: &Placement, name: &str) -> bool {
    set.has(ROUTE_PATCH_KINDS)
        && ROUTE_PATCH_KINDS.iter().flat_map(|kind| set.of(*kind)).any(|patch| matches(patch, placement, name))
}

pub(super) fn patch(set: &PatchSet, placement: &Placement, routes: &mut RouteConfiguration, applied: &mut Applied) {
    let name = routes.name.clone();
    let asked = |kind: ApplyTo| set.of(kind).iter().filter(|patch| matches(patch, placement, &name));
    for patch in asked(ApplyTo::RouteConfiguration).filter(|patch| patch.operation == Operation::Merge) {
        applied.record_if(value::merge(routes, patch), patch);
    }
    let hosts: Vec<_> = asked(ApplyTo::VirtualHost).map(|patch| &**patch).collect();
    let within: Vec<_> = asked(ApplyTo::HttpRoute).map(|patch| &**patch).collect();
    let mut removed = BTreeSet::new();
    for host in &mut routes.virtual_hosts {
        if patch_host(&hosts, host, applied) {
            patch_routes(&within, host, applied);
        } else {
            removed.insert(host.name.clone());
        }
    }
    for patch in hosts.iter().filter(|patch| patch.operation == Operation::Add) {
        let end = routes.virtual_hosts.len();
        applied.record_if(list::insert(&mut routes.virtual_hosts, end, patch), patch);
    }
    // As in istiod by name, even if another virtual host has taken it meanwhile.
    routes.virtual_hosts.retain(|host| !removed.contains(&host.name));
}

/// `false`: it is removed.
fn patch_host(patches: &[&Patch], host: &mut VirtualHost, applied: &mut Applied) -> bool {
    for patch in patches {
        if !matches_host(patch, host) {
            continue;
        }
        match patch.operation {
            Operation::Remove => {
                applied.record(patch);
                return false;
            }
            Operation::Merge => applied.record_if(value::merge(host, patch), patch),
            Operation::Replace => {
                if let Some(other) = value::message(patch) {
                    *host = other;
                    applied.record(patch);
                }
            }
            _ => {}
        }
    }
    true
}

/// Removals and merges first: inserted routes are not patched again.
fn patch_routes(patches: &[&Patch], host: &mut VirtualHost, applied: &mut Applied) {
    let here: Vec<_> = patches.iter().filter(|patch| matches_host(patch, host)).collect();
    if here.is_empty() {
        return;
    }
    host.routes.retain_mut(|route| {
        for patch in &here {
            match patch.operation {
                _ if !http_route_match(patch).is_none_or(|wanted| matches_route(wanted, route)) => {}
                Operation::Remove => {
                    applied.record(patch);
                    return false;
                }
                Operation::Merge => applied.record_if(value::merge(route, patch), patch),
                _ => {}
            }
        }
        true
    });
    for patch in here {
        let wanted = http_route_match(patch);
        let found = wanted.and_then(|wanted| host.routes.iter().position(|route| matches_route(wanted, route)));
        let place = match (patch.operation, wanted, found) {
            (Operation::Add, ..) | (Operation::InsertAfter, None, _) => host.routes.len(),
            (Operation::InsertBefore | Operation::InsertFirst, None, _) | (Operation::InsertFirst, _, Some(_)) => 0,
            (Operation::InsertBefore, _, Some(found)) => found,
            (Operation::InsertAfter, _, Some(found)) => found + 1,
            _ => continue,
        };
        applied.record_if(list::insert(&mut host.routes, place, patch), patch);
    }
}

fn route_match(patch: &Patch) -> Option<&RouteConfigurationMatch> {
    match patch.object() {
        Some(MatchedObject::RouteConfiguration(wanted)) => Some(wanted),
        _ => None,
    }
}

fn virtual_host_match(patch: &Patch) -> Option<&VirtualHostMatch> {
    route_match(patch)?.vhost.as_ref()
}

fn http_route_match(patch: &Patch) -> Option<&RouteMatch> {
    virtual_host_match(patch)?.route.as_ref()
}

fn matches(patch: &Patch, placement: &Placement, name: &str) -> bool {
    let Some(wanted) = route_match(patch) else { return true };
    if !wanted.name.is_empty() && wanted.name != name {
        return false;
    }
    if placement.is_gateway() {
        return matches_gateway(wanted, placement, name);
    }
    wanted.port_number == 0 || port(name) == Some(wanted.port_number)
}

/// The port of a sidecar's route: its name, or that of the inbound cluster behind it.
fn port(name: &str) -> Option<u32> {
    match name.parse() {
        Ok(ClusterName::Inbound { port }) => Some(port.into()),
        _ => name.parse().ok(),
    }
}

/// Ports are those that Gateways declare, whatever port the gateway proxy listens on.
fn matches_gateway(wanted: &RouteConfigurationMatch, placement: &Placement, name: &str) -> bool {
    let own = GatewayRoute::parse(name);
    let declared = || {
        let routes = placement.gateway().routes.iter();
        let mut same = routes.filter(|(other, _)| GatewayRoute::parse(other).port == own.port).peekable();
        let known = same.peek().is_some();
        let asked = same.flat_map(|(_, servers)| servers).any(|one| u32::from(one.port.number) == wanted.port_number);
        asked || (!known && own.port == wanted.port_number)
    };
    (wanted.port_name.is_empty() || wanted.port_name == own.port_name)
        && (wanted.gateway.is_empty() || wanted.gateway == own.gateway)
        && (wanted.port_number == 0 || declared())
}

/// `http.8080`, or `https.443.name.gateway.namespace`.
#[derive(Debug, Default, PartialEq, Eq)]
struct GatewayRoute {
    port: u32,
    port_name: String,
    /// `namespace/name`.
    gateway: String,
}

impl GatewayRoute {
    fn parse(name: &str) -> Self {
        if let Some(port) = name.strip_prefix("http.") {
            return Self { port: port.parse().unwrap_or_default(), ..Self::default() };
        }
        let parts: Vec<_> = name.split('.').collect();
        let ["https", port, port_name, gateway, namespace] = parts[..] else { return Self::default() };
        Self {
            port: port.parse().unwrap_or_default(),
            port_name: port_name.into(),
            gateway: format!("{namespace}/{gateway}"),
        }
    }
}

fn matches_host(patch: &Patch, host: &VirtualHost) -> bool {
    let Some(wanted) = virtual_host_match(patch) else { return true };
    (wanted.name.is_empty() || wanted.name == host.name)
        && (wanted.domain_name.is_empty() || host.domains.contains(&wanted.domain_name))
}

fn matches_route(wanted: &RouteMatch, route: &Route) -> bool {
    let name = wanted.name.is_empty() || wanted.name == route.name;
    name && match (&route.action, wanted.action) {
        (_, RouteAction::Any) => true,
        (Some(Action::Route(_)), wanted) => wanted == RouteAction::Route,
        (Some(Action::Redirect(_)), wanted) => wanted == RouteAction::Redirect,
        (Some(Action::DirectResponse(_)), wanted) => wanted == RouteAction::DirectResponse,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_gateway_route_names() {
        let secure = GatewayRoute { port: 443, port_name: "https".into(), gateway: "istio-system/web".into() };
        assert_eq!(GatewayRoute::parse("https.443.https.web.istio-system"), secure);
        assert_eq!(GatewayRoute::parse("http.8080"), GatewayRoute { port: 8080, ..GatewayRoute::default() });
        for other in ["", "80", "https.443.a.b", "https.443.a.b.c.d", "http."] {
            assert_eq!(GatewayRoute::parse(other), GatewayRoute::default(), "{other}");
        }
        assert_eq!(port("inbound|8080||"), Some(8080));
        assert_eq!((port("9090"), port("http_proxy"), port("a.b:80")), (Some(9090), None, None));
    }
}
