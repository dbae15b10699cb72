//! Gateway listeners: one per address and port of the merged Gateways.

use std::collections::{BTreeMap, BTreeSet};

use config::diagnostic::ObjectId;
use model::{GatewayPort, GatewayServer, Mesh, Placement, Protocol, ServerMode};
use wire::envoy::config::core::v3::{TrafficDirection, TransportSocket};
use wire::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch, Listener};

use super::gateway_tcp::{self, ClaimedNames};
use super::outbound::HttpListeners;
use super::outbound_chain::HANDSHAKE_LIMIT;
use super::{OutboundListeners, balance, gateway_tls, inspector};
use crate::address;
use crate::filter::{self, Direction};
use crate::hcm;
use crate::names::{listener_name, stat_name};
use crate::proto::{seconds, uint32};
use crate::telemetry::access_log;
use crate::translated::Translated;

/// Ports below are privileged.
const FIRST_FREE_PORT: u16 = 1024;

pub(super) fn listeners(mesh: &Mesh, placement: &Placement) -> OutboundListeners {
    let mut table = ListenerTable { mesh, placement, entries: BTreeMap::new(), claimed: ClaimedNames::default() };
    let privileged = !placement.proxy.metadata.unprivileged;
    let usable = placement.gateway().ports.iter().filter(|port| privileged || port.number >= FIRST_FREE_PORT);
    usable.for_each(|port| table.add(port));
    // Servers without routes have no filter chain, and Envoy rejects a listener without one.
    let entries = table.entries.into_values().filter(|entry| !entry.chains.is_empty());
    let (http, rest): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.routes().next().is_some());
    let routes = http.iter().flat_map(|entry| entry.routes().map(str::to_owned)).collect();
    let rest = rest.iter().map(|entry| entry.listener(mesh, placement)).collect();
    OutboundListeners { http: HttpListeners::of_gateway(http, routes, placement.patches.outbound.clone()), rest }
}

struct ListenerTable<'a> {
    mesh: &'a Mesh,
    placement: &'a Placement,
    entries: BTreeMap<String, ListenerDraft>,
    claimed: ClaimedNames,
}

/// A listener under construction.
#[derive(Debug)]
pub(super) struct ListenerDraft {
    pub(super) name: String,
    bind: String,
    port: u16,
    chains: Vec<Chain>,
    made_from: BTreeSet<ObjectId>,
}

/// A filter chain and its match.
#[derive(Debug, PartialEq)]
pub(super) struct Chain {
    /// SNI to match; empty, or containing `*`: any.
    pub(super) server_names: Vec<String>,
    pub(super) application_protocols: &'static [&'static str],
    /// `None`: TLS is not terminated.
    pub(super) tls: Option<TransportSocket>,
    pub(super) content: Content,
}

#[derive(Debug, PartialEq)]
pub(super) enum Content {
    Tcp(Vec<Filter>),
    /// `stat`: the whole statistics prefix.
    Http {
        stat: String,
        route: String,
        protocol: Protocol,
    },
}

impl ListenerTable<'_> {
    fn add(&mut self, port: &GatewayPort) {
        let bind = port.bind.clone().unwrap_or_else(|| self.placement.wildcard().to_owned());
        let name = listener_name(&bind, port.number);
        let mut made_from: BTreeSet<_> = port.servers.iter().map(|server| server.made_from.clone()).collect();
        let chains = match port.servers.first() {
            // All HTTP servers of a port share a chain; routes match by host.
            Some(first) if first.mode() == ServerMode::Http => vec![Self::http(port, first, &name)],
            _ => port.servers.iter().flat_map(|server| self.chains(port, server, &name, &mut made_from)).collect(),
        };
        let entry = self.entries.entry(name.clone()).or_insert_with(|| ListenerDraft {
            name,
            bind,
            port: port.number,
            chains: Vec::new(),
            made_from: BTreeSet::new(),
        });
        entry.chains.extend(chains);
        entry.made_from.extend(made_from);
    }

    fn http(port: &GatewayPort, first: &GatewayServer, listener: &str) -> Chain {
        let route = first.route_name(port.number).unwrap_or_default();
        let stat = stat_name(&format!("outbound_{listener}"));
        Chain::new(Content::Http { stat, route, protocol: port.protocol })
    }

    fn chains(
        &mut self,
        port: &GatewayPort,
        server: &GatewayServer,
        listener: &str,
        made_from: &mut BTreeSet<ObjectId>,
    ) -> Vec<Chain> {
        if server.mode() == ServerMode::Https {
            return vec![self.https(port, server, listener)];
        }
        let tcp = gateway_tcp::Target { mesh: self.mesh, placement: self.placement, server };
        let filters = |made_from: &mut _| tcp.by_port(made_from);
        match server.mode() {
            ServerMode::Passthrough => tcp.by_name(port.number, &mut self.claimed, made_from),
            ServerMode::AutoPassthrough => tcp.by_service(made_from),
            ServerMode::TlsTerminated => filters(made_from)
                .map(|filters| Chain { server_names: names(server), tls: self.tls(server), ..Chain::tcp(filters) })
                .into_iter()
                .collect(),
            _ => filters(made_from).map(Chain::tcp).into_iter().collect(),
        }
    }

    fn https(&self, port: &GatewayPort, server: &GatewayServer, listener: &str) -> Chain {
        let route = server.route_name(port.number).unwrap_or_default();
        let stat = Some(server.name.clone()).filter(|name| !name.is_empty());
        let stat = stat.unwrap_or_else(|| stat_name(&format!("outbound_{listener}")));
        let content = Content::Http { stat, route, protocol: port.protocol };
        Chain { server_names: names(server), tls: self.tls(server), ..Chain::new(content) }
    }

    fn tls(&self, server: &GatewayServer) -> Option<TransportSocket> {
        server.tls.as_ref().map(|tls| gateway_tls::socket(self.mesh, self.placement, server, tls))
    }
}

impl ListenerDraft {
    fn routes(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().filter_map(|chain| match &chain.content {
            Content::Http { route, .. } => Some(route.as_str()),
            Content::Tcp(_) => None,
        })
    }

    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        (&self.name, &self.chains) == (&other.name, &other.chains)
    }

    pub(super) fn listener(&self, mesh: &Mesh, placement: &Placement) -> Translated<Listener> {
        let mut listener_filters = Vec::new();
        if placement.settings.topology.proxy_protocol {
            listener_filters.push(inspector::proxy_protocol());
        }
        if self.chains.iter().any(Chain::matches_sni) {
            listener_filters.push(inspector::tls());
        }
        let filter_chains = self.filter_chains(mesh, placement);
        let listener = Listener {
            name: self.name.clone(),
            address: Some(address::bind(&self.bind, self.port)),
            filter_chains,
            listener_filters,
            traffic_direction: TrafficDirection::Outbound.into(),
            access_log: access_log::logs(mesh, placement, Direction::Outbound, access_log::LogScope::Listener),
            max_connections_to_accept_per_socket_event: Some(uint32(1)),
            connection_balance_config: balance::exact(placement.proxy.metadata.exact_balance_outbound),
            ..Listener::default()
        };
        let observed = placement.telemetry.made_from.iter();
        let made_from = self.made_from.iter().chain(observed).cloned();
        Translated::new(listener, made_from.chain(placement.plugins.made_from()))
    }

    fn filter_chains(&self, mesh: &Mesh, placement: &Placement) -> Vec<FilterChain> {
        // As in istiod only the first HTTP chain gets network plugins, pinned by parity case extend-gateway-bytes-plugin.
        let mut plugins = filter::network_plugins(placement, Direction::Outbound, self.port);
        let chain = |chain: &Chain| {
            let before = if chain.is_http() { std::mem::take(&mut plugins) } else { Vec::new() };
            chain.filter_chain(mesh, placement, self.port, before)
        };
        self.chains.iter().map(chain).collect()
    }
}

impl Chain {
    fn new(content: Content) -> Self {
        Self { server_names: Vec::new(), application_protocols: &[], tls: None, content }
    }

    pub(super) fn tcp(filters: Vec<Filter>) -> Self {
        Self::new(Content::Tcp(filters))
    }

    fn matches_sni(&self) -> bool {
        !self.server_names.is_empty() || self.tls.is_some()
    }

    fn is_http(&self) -> bool {
        matches!(self.content, Content::Http { .. })
    }

    fn filter_chain(&self, mesh: &Mesh, placement: &Placement, port: u16, before: Vec<Filter>) -> FilterChain {
        let mut server_names = self.server_names.clone();
        if server_names.iter().any(|name| name == "*") {
            server_names.clear();
        }
        server_names.sort();
        let any = server_names.is_empty() && self.application_protocols.is_empty();
        let matched = FilterChainMatch {
            server_names,
            application_protocols: self.application_protocols.iter().map(|&name| name.to_owned()).collect(),
            ..FilterChainMatch::default()
        };
        FilterChain {
            filter_chain_match: (!any).then_some(matched),
            filters: match &self.content {
                Content::Tcp(filters) => filters.clone(),
                Content::Http { stat, route, protocol } => {
                    let mut filters = before;
                    let at = hcm::At { name: stat, port, proxies: false, cache: None };
                    filters.push(hcm::gateway(mesh, placement, at, route, *protocol));
                    filters
                }
            },
            transport_socket: self.tls.clone(),
            transport_socket_connect_timeout: Some(seconds(HANDSHAKE_LIMIT)),
            ..FilterChain::default()
        }
    }
}

/// The hosts of a server without their namespaces, each once.
fn names(server: &GatewayServer) -> Vec<String> {
    let names: BTreeSet<_> = server.hosts.iter().map(|host| host.host.to_string()).collect();
    names.into_iter().collect()
}
