//! Which listener of a proxy accepts a connection.

use std::net::IpAddr;

use wire::any;
use wire::envoy::config::core::v3::TrafficDirection;
use wire::envoy::config::core::v3::address::Address;
use wire::envoy::config::core::v3::socket_address::PortSpecifier;
use wire::envoy::config::listener::v3::{FilterChain, Listener};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use wire::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use wire::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;

use crate::network_filter::typed_config;
use crate::resources::ProxyResources;

const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";

/// Where its own application connects to, with the reason.
pub(crate) fn outbound(proxy: &ProxyResources, to: Option<IpAddr>, port: u16) -> Option<(&Listener, String)> {
    let is_outbound = |listener: &&Listener| listener.traffic_direction == TrafficDirection::Outbound as i32;
    let ours = || proxy.listeners.iter().filter(is_outbound);
    let Some(catch_all) = ours().find(|it| it.use_original_dst.as_ref().is_some_and(|it| it.value)) else {
        // Nothing is redirected: the application connects to where the proxy listens.
        let found = ours().find(|it| endpoint(it).is_some_and(|(_, own)| own == port));
        return found
            .map(|listener| (listener, format!("it listens on port {port}; nothing is redirected to this proxy")));
    };
    let at = |wanted: Option<IpAddr>| {
        ours().find(|it| {
            endpoint(it).is_some_and(|(ip, own)| {
                own == port && (ip == wanted || ip.is_some_and(|it| it.is_unspecified()) && wanted.is_none())
            })
        })
    };
    if let Some(listener) = to.and_then(|ip| at(Some(ip))) {
        return Some((
            listener,
            format!("it has the address {}:{port}", to.map(|ip| ip.to_string()).unwrap_or_default()),
        ));
    }
    if let Some(listener) = at(None) {
        return Some((listener, format!("it has port {port} of all addresses")));
    }
    Some((catch_all, format!("no listener has port {port} of this address")))
}

/// Where connections from other proxies and from outside arrive, with the reason.
pub(crate) fn inbound(proxy: &ProxyResources, to: Option<IpAddr>, port: u16) -> Option<(&Listener, String)> {
    let is_bound =
        |listener: &&Listener| listener.traffic_direction != TrafficDirection::Outbound as i32 || proxy.is_gateway();
    let bound = || proxy.listeners.iter().filter(is_bound).filter(|it| !takes_original_dst(it));
    let at = |wanted: Option<IpAddr>| {
        bound().find(|it| endpoint(it).is_some_and(|(ip, own)| own == port && (wanted.is_none() || ip == wanted)))
    };
    if let Some(listener) = to
        .and_then(|ip| at(Some(ip)))
        .or_else(|| {
            bound().find(|it| {
                endpoint(it).is_some_and(|(ip, own)| own == port && ip.is_some_and(|it| it.is_unspecified()))
            })
        })
        .or_else(|| to.is_none().then(|| at(None)).flatten())
    {
        return Some((listener, format!("it listens on port {port}")));
    }
    let redirected = proxy
        .listeners
        .iter()
        .find(|it| takes_original_dst(it) && it.traffic_direction == TrafficDirection::Inbound as i32);
    redirected.map(|listener| (listener, "connections to the workload are redirected to it".to_owned()))
}

fn takes_original_dst(listener: &Listener) -> bool {
    listener.use_original_dst.as_ref().is_some_and(|it| it.value)
        || listener.listener_filters.iter().any(|filter| filter.name == ORIGINAL_DST)
}

/// The ports that a proxy listens on.
pub(crate) fn ports(proxy: &ProxyResources) -> Vec<u16> {
    let mut ports: Vec<u16> = proxy.listeners.iter().filter_map(|it| Some(endpoint(it)?.1)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Address and port; the address of a listener on all addresses is unspecified.
pub(crate) fn endpoint(listener: &Listener) -> Option<(Option<IpAddr>, u16)> {
    match listener.address.as_ref()?.address.as_ref()? {
        Address::SocketAddress(socket) => match socket.port_specifier {
            Some(PortSpecifier::PortValue(port)) => Some((socket.address.parse().ok(), u16::try_from(port).ok()?)),
            _ => None,
        },
        _ => None,
    }
}

/// The address that a host of the mesh resolves to, as far as the resources show it: from the name table, from the listener of a single
/// address, or from the domains of a virtual host.
pub(crate) fn address_of(proxy: &ProxyResources, host: &str, port: u16) -> Option<IpAddr> {
    if let Ok(ip) = host.parse() {
        return Some(ip);
    }
    let hosts = full_names(proxy, host);
    let listed = hosts.iter().find_map(|host| proxy.names.get(host)?.first()?.parse().ok());
    let of_listener = || {
        let own = proxy.listeners.iter().filter(|it| {
            endpoint(it).is_some_and(|(ip, own)| own == port && ip.is_some_and(|ip| !ip.is_unspecified()))
        });
        own.filter(|it| {
            it.filter_chains.iter().chain(&it.default_filter_chain).any(|chain| leads_to(chain, &hosts, port))
        })
        .find_map(|it| endpoint(it)?.0)
    };
    let of_domains = || {
        let routes = proxy.routes.get(&port.to_string())?;
        let own = routes.virtual_hosts.iter().find(|it| it.domains.iter().any(|domain| hosts.contains(domain)))?;
        own.domains.iter().find_map(|domain| domain.parse().ok())
    };
    listed.or_else(of_listener).or_else(of_domains)
}

/// The host, and what a resolver of the workload's namespace makes of it.
fn full_names(proxy: &ProxyResources, host: &str) -> Vec<String> {
    let (namespace, domain) = (&proxy.proxy.namespace, &proxy.proxy.domain);
    vec![
        host.to_owned(),
        format!("{host}.{namespace}.svc.{domain}"),
        format!("{host}.svc.{domain}"),
        format!("{host}.{domain}"),
    ]
}

fn leads_to(chain: &FilterChain, hosts: &[String], port: u16) -> bool {
    chain.filters.iter().filter_map(typed_config).any(|config| {
        if let Some(proxy) = any::unpack::<TcpProxy>(config) {
            return matches!(proxy.cluster_specifier, Some(ClusterSpecifier::Cluster(name)) if hosts.iter().any(|host| name.ends_with(&format!("|{host}"))));
        }
        match any::unpack::<HttpConnectionManager>(config).and_then(|it| it.route_specifier) {
            Some(RouteSpecifier::Rds(rds)) => hosts.iter().any(|host| rds.route_config_name == format!("{host}:{port}")),
            _ => false,
        }
    })
}

impl ProxyResources {
    /// A gateway has no listener of its own application's connections.
    pub(crate) fn is_gateway(&self) -> bool {
        !self.listeners.iter().any(|it| it.traffic_direction == TrafficDirection::Inbound as i32)
    }
}
