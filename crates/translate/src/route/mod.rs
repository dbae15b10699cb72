//! Route configurations of outbound listeners: a virtual host for each service of the port, and one for the rest.

mod domains;
pub(crate) mod inbound;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use model::{Mesh, OutboundPolicy, Placement, Port, Protocol, Service};
use wire::any;
use wire::envoy::config::route::v3::{
    Decorator, DirectResponseAction, RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
    retry_policy::{RetryHostPredicate, retry_host_predicate},
    route,
    route_action::ClusterSpecifier,
    route_match::PathSpecifier,
};
use wire::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;

use crate::made::Made;
use crate::names::{ClusterName, PASSTHROUGH};
use crate::proto::{boolean, seconds, uint32};

/// Answers longer than this are refused by Envoy.
const LARGEST_DIRECT_RESPONSE: u32 = 1 << 20;

const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes";

/// `None`: no listener of this proxy can name such a route.
pub fn route(mesh: &Mesh, placement: &Placement, name: &str) -> Option<Made<RouteConfiguration>> {
    match name.rsplit_once(':') {
        Some((host, port)) => detected_route(placement, name, host, port.parse().ok()?),
        None => Some(port_route(mesh, placement, name, name.parse().ok()?)),
    }
}

/// For a name that nothing stands behind: the listener must not wait for it.
pub fn empty_route(name: &str) -> RouteConfiguration {
    RouteConfiguration { name: name.to_owned(), ..RouteConfiguration::default() }
}

/// All HTTP services of a port, told apart by host.
fn port_route(mesh: &Mesh, placement: &Placement, name: &str, port: u16) -> Made<RouteConfiguration> {
    let services = services_of(placement, port);
    let aliases = domains::aliases(mesh, placement);
    let mut made_from: BTreeSet<_> = services.iter().map(|(service, _)| service.made_from.clone()).collect();
    let mut taken = BTreeSet::new();
    let mut hosts = BTreeMap::new();
    for (service, port) in services {
        let others = aliases.get(&service.host).map(Vec::as_slice).unwrap_or_default();
        made_from.extend(others.iter().map(|alias| alias.made_from.clone()));
        let mut domains = domains::of_service(placement, service, others);
        // A domain stands in one virtual host only, or Envoy refuses the whole configuration.
        domains.retain(|domain| taken.insert(domain.clone()));
        let host = virtual_host(service, port, domains);
        hosts.insert(host.name.clone(), host);
    }
    let virtual_hosts = hosts.into_values().chain([catch_all(placement)]).collect();
    Made::new(configuration(name, virtual_hosts), made_from)
}

/// The one service behind an address whose bytes turned out to be HTTP.
fn detected_route(placement: &Placement, name: &str, host: &str, port: u16) -> Option<Made<RouteConfiguration>> {
    let service = placement.scope.service(&Host::new(host))?;
    let found = service.port(port).filter(|port| port.protocol.is_http() || port.protocol == Protocol::Auto)?;
    let hosts = vec![virtual_host(service, found, vec!["*".into()])];
    Some(Made::new(configuration(name, hosts), [service.made_from.clone()]))
}

/// From the egress listener that has this port, else from the one that has all.
fn services_of(placement: &Placement, port: u16) -> Vec<(&Arc<Service>, &Port)> {
    let egress = &placement.scope.egress;
    let own = egress.iter().find(|listener| listener.port.as_ref().is_some_and(|listen| listen.number == port));
    let listener = own.or_else(|| egress.iter().find(|listener| listener.port.is_none()));
    let services = listener.map(|listener| listener.services.as_slice()).unwrap_or_default();
    services
        .iter()
        .filter(|service| !service.is_alias())
        .filter_map(|service| Some((service, service.port(port)?)))
        .filter(|(_, port)| port.protocol.is_http() || port.protocol == Protocol::Auto)
        .collect()
}

fn configuration(name: &str, virtual_hosts: Vec<VirtualHost>) -> RouteConfiguration {
    RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts,
        validate_clusters: Some(boolean(false)),
        max_direct_response_body_size_bytes: Some(uint32(LARGEST_DIRECT_RESPONSE)),
        ignore_port_in_host_matching: true,
        ..RouteConfiguration::default()
    }
}

fn virtual_host(service: &Service, port: &Port, domains: Vec<String>) -> VirtualHost {
    let cluster = ClusterName::outbound(port.number, &service.host).to_string();
    let name = format!("{}:{}", service.host, port.number);
    let route = Route {
        name: "default".into(),
        r#match: Some(everything()),
        decorator: Some(Decorator { operation: format!("{name}/*"), ..Decorator::default() }),
        action: Some(route::Action::Route(RouteAction { retry_policy: Some(default_retry()), ..to_cluster(cluster) })),
        ..Route::default()
    };
    VirtualHost { name, domains, routes: vec![route], include_request_attempt_count: true, ..VirtualHost::default() }
}

/// Hosts that nobody declared.
fn catch_all(placement: &Placement) -> VirtualHost {
    let (name, action) = match placement.scope.outbound {
        OutboundPolicy::AllowAny => ("allow_any", route::Action::Route(to_cluster(PASSTHROUGH.into()))),
        OutboundPolicy::RegistryOnly => (
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
        include_request_attempt_count: true,
        ..VirtualHost::default()
    }
}

fn everything() -> RouteMatch {
    RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".into())), ..RouteMatch::default() }
}

/// Without a time limit: applications have their own.
#[allow(deprecated)] // max_grpc_timeout: istiod sends it.
fn to_cluster(cluster: String) -> RouteAction {
    RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        timeout: Some(seconds(0)),
        max_grpc_timeout: Some(seconds(0)),
        ..RouteAction::default()
    }
}

/// Twice, on another host, only where the request cannot have been seen.
fn default_retry() -> RetryPolicy {
    RetryPolicy {
        retry_on: RETRY_ON.into(),
        num_retries: Some(uint32(2)),
        host_selection_retry_max_attempts: 5,
        retry_host_predicate: vec![RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".into(),
            config_type: Some(retry_host_predicate::ConfigType::TypedConfig(any::pack(&PreviousHostsPredicate {}))),
        }],
        ..RetryPolicy::default()
    }
}
