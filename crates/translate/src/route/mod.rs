//! Route configurations (RDS) of outbound listeners: a virtual host for each service of the port, and a catch-all; and those of gateways.

mod changed_routes;
mod client;
mod cors;
pub(crate) mod domains;
mod fault;
mod gateway;
mod hash;
mod header;
mod http_action;
mod http_match;
pub(crate) mod inbound;
mod mirror;
mod redirect;
mod retry;
mod virtual_host;
mod virtual_service;

use config::host::Host;
use model::{EgressListener, Mesh, OutboundPolicy, Placement, Port, Protocol};
use wire::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route,
    route_action::ClusterSpecifier, route_match::PathSpecifier,
};

pub use self::changed_routes::changed_routes;
use self::client::Client;
pub use self::hash::affects_routes;
pub use self::virtual_host::DEFAULT_HTTP_PORT;
use crate::headers;
use crate::names::{ClusterName, PASSTHROUGH};
use crate::patch;
use crate::proto::{boolean, seconds, uint32};
use crate::translated::Translated;

/// Envoy rejects longer direct responses.
const MAX_DIRECT_RESPONSE: u32 = 1 << 20;

/// The route configuration of the HTTP forward proxy listener.
pub(crate) const HTTP_PROXY: &str = "http_proxy";

/// `None`: no listener of this proxy refers to such a route configuration.
pub fn route(mesh: &Mesh, placement: &Placement, name: &str) -> Option<Translated<RouteConfiguration>> {
    route_before_patches(mesh, placement, name).map(|made| patch::patch_configuration(placement, made))
}

fn route_before_patches(mesh: &Mesh, placement: &Placement, name: &str) -> Option<Translated<RouteConfiguration>> {
    if placement.is_gateway() {
        return Some(gateway::configuration(mesh, placement, name));
    }
    if name == HTTP_PROXY || name.starts_with("unix://") {
        return shared_route(mesh, placement, name, 0);
    }
    match name.rsplit_once(':') {
        Some((host, port)) => Some(detected_route(mesh, placement, name, host, port.parse().ok()?)),
        None => shared_route(mesh, placement, name, name.parse().ok()?),
    }
}

/// For an unknown name: the listener must not keep warming.
pub fn empty_route(name: &str) -> RouteConfiguration {
    RouteConfiguration { name: name.to_owned(), ..RouteConfiguration::default() }
}

/// The route configuration has services of any port, so each of them may change it. So have those of gateways, whose ports are unrelated to
/// the services'.
pub fn serves_all_ports(placement: &Placement, name: &str) -> bool {
    let proxies = |listener: &EgressListener| {
        let port = listener.port.as_ref().filter(|port| port.protocol == Protocol::HttpProxy);
        port.is_some_and(|port| port.number.to_string() == name)
    };
    let any = placement.is_gateway() || name == HTTP_PROXY || name.starts_with("unix://");
    any || placement.scope.egress.iter().any(proxies)
}

/// All HTTP services of a port, or of all ports (0), by host.
fn shared_route(mesh: &Mesh, placement: &Placement, name: &str, port: u16) -> Option<Translated<RouteConfiguration>> {
    let Some(egress) = egress_of(placement, name, port) else {
        // The mesh config or the proxy enables this listener, whatever a Sidecar imports.
        let made = || Translated::new(configuration(name, vec![catch_all(placement)]), placement.scope.sidecar_id());
        return (name == HTTP_PROXY).then(made);
    };
    let client = shared_client(mesh, placement, egress, port);
    let mut hosts = virtual_host::of_listener(&client, egress);
    // A VirtualService for host `*` replaces the catch-all.
    if !hosts.iter().any(|host| host.domains.iter().any(|domain| domain == "*")) {
        hosts.push(catch_all(placement));
    }
    Some(Translated::new(configuration(name, hosts), client.made_from()))
}

fn shared_client<'a>(mesh: &'a Mesh, placement: &'a Placement, egress: &'a EgressListener, port: u16) -> Client<'a> {
    let proxies = egress.port.as_ref().is_some_and(|listen| listen.protocol == Protocol::HttpProxy);
    Client::new(mesh, placement, if proxies { 0 } else { port }, &egress.services)
}

/// The one service behind an address with protocol detection.
fn detected_route(
    mesh: &Mesh,
    placement: &Placement,
    name: &str,
    host: &str,
    port: u16,
) -> Translated<RouteConfiguration> {
    // Routes come from the egress listener of the port, even if another listener refers to them: then there are none.
    let none = || Translated::new(configuration(name, Vec::new()), placement.scope.sidecar_id());
    let Some(egress) = egress_of(placement, name, port) else { return none() };
    let client = Client::new(mesh, placement, port, &egress.services);
    let Some(&service) = client.services.get(&Host::new(host)) else { return none() };
    let served = |port: &&Port| port.protocol.is_http() || port.protocol == Protocol::Auto;
    let Some(found) = service.port(port).filter(served) else { return none() };
    let hosts = vec![virtual_host::of_service(&client, egress, service, found)];
    Translated::new(configuration(name, hosts), client.made_from())
}

/// The egress listener with this port or socket, else the one for all ports.
fn egress_of<'a>(placement: &'a Placement, name: &str, port: u16) -> Option<&'a EgressListener> {
    placement.scope.egress.iter().find(|listener| match &listener.port {
        None => true,
        Some(listen) if listen.number == 0 => port == 0 && listener.bind.as_deref() == Some(name),
        Some(listen) => listen.number == port,
    })
}

fn configuration(name: &str, virtual_hosts: Vec<VirtualHost>) -> RouteConfiguration {
    RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts,
        validate_clusters: Some(boolean(false)),
        max_direct_response_body_size_bytes: Some(uint32(MAX_DIRECT_RESPONSE)),
        ignore_port_in_host_matching: true,
        ..RouteConfiguration::default()
    }
}

/// The cluster for unknown destinations; `None`: the black hole.
pub(crate) fn unknown_cluster(placement: &Placement) -> Option<String> {
    match &placement.scope.outbound {
        OutboundPolicy::AllowAny => Some(PASSTHROUGH.into()),
        OutboundPolicy::Through { host, subset, port } => {
            Some(ClusterName::Outbound { port: *port, subset: subset.clone(), host: host.clone() }.text())
        }
        OutboundPolicy::RegistryOnly => None,
    }
}

/// The virtual host for unknown hosts.
fn catch_all(placement: &Placement) -> VirtualHost {
    let (name, action) = match unknown_cluster(placement) {
        Some(cluster) => {
            let append_x_forwarded_host = headers::appends_host(placement);
            ("allow_any", route::Action::Route(RouteAction { append_x_forwarded_host, ..to_cluster(cluster) }))
        }
        None => (
            "block_all",
            route::Action::DirectResponse(DirectResponseAction { status: 502, body: None, ..Default::default() }),
        ),
    };
    VirtualHost {
        name: name.into(),
        domains: vec!["*".into()],
        routes: vec![Route {
            name: name.into(),
            r#match: Some(everything()),
            action: Some(action),
            ..Route::default()
        }],
        include_request_attempt_count: headers::counts_attempts(placement),
        ..VirtualHost::default()
    }
}

fn everything() -> RouteMatch {
    RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".into())), ..RouteMatch::default() }
}

/// Without a timeout: applications have their own.
#[allow(deprecated)] // max_grpc_timeout: istiod sends it.
fn to_cluster(cluster: String) -> RouteAction {
    RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        timeout: Some(seconds(0)),
        max_grpc_timeout: Some(seconds(0)),
        ..RouteAction::default()
    }
}
