//! Outbound listeners: one per address and port, made of the chains of all services that claim it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::note::ObjectId;
use model::{Capture, EgressListener, Mesh, OutboundPolicy, Placement, Port, Protocol, Registry, Service};
use wire::envoy::config::core::v3::TrafficDirection;
use wire::envoy::config::listener::v3::{AdditionalAddress, Filter, FilterChain, FilterChainMatch, Listener};

use super::chain::PLAIN_HTTP;
use super::{OutboundListeners, balance, inspector};
use crate::address;
use crate::filter::tcp_proxy;
use crate::hcm;
use crate::made::Made;
use crate::names::{BLACK_HOLE, ClusterName, PASSTHROUGH, listener_name};
use crate::proto::{boolean, duration, seconds, uint32};
use crate::stat_pattern::{self, Named};

/// istiod's PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT default.
const HANDSHAKE_LIMIT: i64 = 15;

pub(super) fn listeners(mesh: &Mesh, placement: &Placement) -> OutboundListeners {
    let mut table = Table { mesh, placement, entries: BTreeMap::new() };
    for egress in &placement.scope.egress {
        table.add_egress(egress);
    }
    let routes = table.entries.values().filter_map(|entry| Some(entry.http.as_ref()?.route.clone())).collect();
    let (http, rest): (Vec<_>, Vec<_>) = table.entries.into_values().partition(|entry| entry.http.is_some());
    let made = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.listener(mesh, placement)).collect();
    OutboundListeners { http: made(http), rest: made(rest), routes }
}

/// Traffic for nobody that we know: on to where it was going, or nowhere.
pub(super) fn fallthrough(placement: &Placement) -> Filter {
    match placement.scope.outbound {
        OutboundPolicy::AllowAny => tcp_proxy::to_cluster(placement, PASSTHROUGH),
        OutboundPolicy::RegistryOnly => tcp_proxy::to_cluster(placement, BLACK_HOLE),
    }
}

struct Table<'a> {
    mesh: &'a Mesh,
    placement: &'a Placement,
    entries: BTreeMap<(String, u16), Entry>,
}

/// A listener in the making.
struct Entry {
    bind: String,
    port: u16,
    /// A real port, not one that only the virtual listener hands over to.
    bound: bool,
    http: Option<HttpChain>,
    tcp: Option<Vec<Filter>>,
    /// An egress listener of a Sidecar made it: later ones add nothing.
    locked: bool,
    made_from: BTreeSet<ObjectId>,
}

struct HttpChain {
    route: String,
    protocol: Protocol,
    /// Only connections that look like HTTP; others take the TCP chain or fall through.
    detected: bool,
}

impl Table<'_> {
    fn add_egress(&mut self, egress: &EgressListener) {
        let bound = self.placement.binds_ports() || egress.capture == Capture::None;
        let bind = egress.bind.clone().or_else(|| bound.then(|| self.placement.loopback().to_owned()));
        match &egress.port {
            Some(listen) => {
                for service in &egress.services {
                    let port = Port {
                        name: listen.name.clone(),
                        number: listen.number,
                        protocol: listen.protocol,
                        target: model::TargetPort::Number(listen.number),
                    };
                    self.add(service, &port, bind.as_deref(), bound);
                }
            }
            None => {
                self.entries.values_mut().for_each(|entry| entry.locked = true);
                for service in &egress.services {
                    for port in &service.ports {
                        self.add_service_port(service, port, bind.as_deref(), bound);
                    }
                }
            }
        }
    }

    /// Headless bytes get a listener for each endpoint: there is no address of the service to listen on.
    fn add_service_port(&mut self, service: &Arc<Service>, port: &Port, bind: Option<&str>, bound: bool) {
        let by_endpoint = bind.is_none()
            && service.is_headless()
            && service.addresses.is_empty()
            && (port.protocol.is_tcp() || port.protocol == Protocol::Auto);
        if !by_endpoint {
            return self.add(service, port, bind, bound);
        }
        let Registry::Kubernetes = service.registry;
        let own = self.placement.own_address();
        for endpoint in self.mesh.endpoints(service).port(&port.name) {
            // What the application sends to itself never passes here.
            if endpoint.address != own {
                self.add(service, port, Some(&endpoint.address.to_string()), bound);
            }
        }
    }

    fn add(&mut self, service: &Arc<Service>, port: &Port, bind: Option<&str>, bound: bool) {
        if service.is_alias() || port.protocol == Protocol::Udp || self.is_reserved(port.number) {
            return;
        }
        let wildcard = self.placement.wildcard();
        let address = match bind {
            Some(given) => given.to_owned(),
            None if port.protocol.is_http() => wildcard.to_owned(),
            None => self.service_address(service),
        };
        let http = self.http_chain(service, port, &address);
        let tcp = (!port.protocol.is_http()).then(|| self.tcp_chain(service, port));
        let entry = self.entries.entry((address.clone(), port.number)).or_insert_with(|| Entry {
            bind: address,
            port: port.number,
            bound,
            http: None,
            tcp: None,
            locked: false,
            made_from: BTreeSet::new(),
        });
        if entry.locked {
            return;
        }
        entry.merge(http, tcp);
        entry.made_from.insert(service.made_from.clone());
    }

    /// Ports that the agent's own listeners hold.
    fn is_reserved(&self, port: u16) -> bool {
        let own = [self.mesh.outbound_port(), self.mesh.inbound_port()];
        (!self.placement.binds_ports() && own.contains(&port))
            || self.placement.proxy.metadata.reserved_ports.contains(&port)
    }

    fn service_address(&self, service: &Service) -> String {
        let placement = self.placement;
        let usable =
            |address: &&std::net::IpAddr| if address.is_ipv4() { placement.has_ipv4() } else { placement.has_ipv6() };
        service.addresses.iter().find(usable).map_or_else(|| placement.wildcard().to_owned(), ToString::to_string)
    }

    fn http_chain(&self, service: &Service, port: &Port, address: &str) -> Option<HttpChain> {
        match port.protocol {
            Protocol::Auto => Some(HttpChain {
                route: format!("{}:{}", service.host, port.number),
                protocol: port.protocol,
                detected: true,
            }),
            protocol if protocol.is_http() => Some(HttpChain {
                route: port.number.to_string(),
                protocol,
                detected: address == self.placement.wildcard(),
            }),
            _ => None,
        }
    }

    fn tcp_chain(&self, service: &Service, port: &Port) -> Vec<Filter> {
        let cluster = ClusterName::outbound(port.number, &service.host).to_string();
        // istiod forgets the port's name here; pinned by parity case mesh-stat-names.
        let named = Named { port_name: String::new(), ..Named::port(service, port, Some(0)) };
        let stat = stat_pattern::filled(&self.mesh.config.outbound_cluster_stat_name, &named);
        tcp_proxy::of_protocol(self.placement, port.protocol, &cluster, stat)
    }
}

impl Entry {
    /// HTTP services share a listener; the first service keeps a TCP chain; both on one port are told apart by the first bytes.
    fn merge(&mut self, http: Option<HttpChain>, tcp: Option<Vec<Filter>>) {
        if self.http.is_none() {
            self.http = http;
        }
        if self.tcp.is_none() {
            self.tcp = tcp;
        }
        if let (Some(http), Some(_)) = (&mut self.http, &self.tcp) {
            http.detected = true;
        }
    }

    fn listener(self, mesh: &Mesh, placement: &Placement) -> Made<Listener> {
        let name = listener_name(&self.bind, self.port);
        let detects = self.http.as_ref().is_some_and(|http| http.detected);
        let http = self.http.as_ref().map(|http| self.http_filter_chain(mesh, placement, &name, http));
        let tcp = self.tcp.clone().map(|filters| service_chain(filters, None));
        let (filter_chains, default_filter_chain) = match (http, tcp) {
            (Some(http), tcp) if detects => (vec![http], Some(tcp.unwrap_or_else(|| passthrough_chain(placement)))),
            (Some(only), _) | (None, Some(only)) => (vec![only], None),
            (None, None) => (Vec::new(), None),
        };
        let listener = Listener {
            address: Some(address::bind(&self.bind, self.port)),
            additional_addresses: self.other_family(placement),
            name,
            filter_chains,
            default_filter_chain,
            traffic_direction: TrafficDirection::Outbound.into(),
            continue_on_listener_filters_timeout: true,
            listener_filters: if detects { vec![inspector::http()] } else { Vec::new() },
            listener_filters_timeout: Some(if detects {
                duration(&mesh.config.protocol_detection_timeout)
            } else {
                seconds(0)
            }),
            bind_to_port: (!self.bound).then(|| boolean(false)),
            max_connections_to_accept_per_socket_event: self.bound.then(|| uint32(1)),
            connection_balance_config: balance::exact(placement.proxy.metadata.exact_balance_outbound),
            ..Listener::default()
        };
        Made::new(listener, self.made_from)
    }

    /// A listener on any address listens on any address of the proxy's second family too.
    fn other_family(&self, placement: &Placement) -> Vec<AdditionalAddress> {
        let other = (self.bind == "0.0.0.0" && placement.has_ipv6()).then(|| AdditionalAddress {
            address: Some(address::socket("::", self.port)),
            ..AdditionalAddress::default()
        });
        other.into_iter().collect()
    }

    fn http_filter_chain(&self, mesh: &Mesh, placement: &Placement, listener: &str, http: &HttpChain) -> FilterChain {
        let matched = http.detected.then(|| FilterChainMatch {
            transport_protocol: "raw_buffer".into(),
            application_protocols: PLAIN_HTTP.map(str::to_owned).to_vec(),
            ..FilterChainMatch::default()
        });
        service_chain(vec![hcm::outbound(mesh, placement, listener, &http.route, http.protocol)], matched)
    }
}

fn service_chain(filters: Vec<Filter>, matched: Option<FilterChainMatch>) -> FilterChain {
    FilterChain {
        filter_chain_match: matched,
        filters,
        transport_socket_connect_timeout: Some(seconds(HANDSHAKE_LIMIT)),
        ..FilterChain::default()
    }
}

fn passthrough_chain(placement: &Placement) -> FilterChain {
    FilterChain {
        name: "PassthroughFilterChain".into(),
        filter_chain_match: Some(FilterChainMatch::default()),
        filters: vec![fallthrough(placement)],
        ..FilterChain::default()
    }
}
