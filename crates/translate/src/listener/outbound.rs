//! Outbound listeners: one per address and port, made of the chains of all services that claim it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use config::note::ObjectId;
use model::{Capture, EgressListener, Mesh, Placement, Port, Protocol, Registry, Service};
use wire::envoy::config::core::v3::TrafficDirection;
use wire::envoy::config::listener::v3::{AdditionalAddress, Filter, FilterChain, FilterChainMatch, Listener};

use super::cast::Cast;
use super::mould::{Filling, Mould};
use super::outbound_chain::{self, Chain, Serves};
use super::reserved::Wanted;
use super::{OutboundListeners, balance, bytes_route, gateway, inspector};
use crate::address;
use crate::cluster::resolution;
use crate::filter::{Direction, tcp_proxy};
use crate::hcm;
use crate::made::Made;
use crate::names::{BLACK_HOLE, listener_name};
use crate::patch;
use crate::proto::{boolean, duration, seconds, uint32};
use crate::route::{self, HTTP_PROXY};
use crate::telemetry::spans::Spans;
use crate::telemetry::stats;

pub(super) fn listeners(mesh: &Mesh, placement: &Placement) -> OutboundListeners {
    let mut table = Table { mesh, placement, entries: BTreeMap::new() };
    for egress in &placement.scope.egress {
        table.add_egress(egress);
    }
    table.add_http_proxy();
    let entries = table.entries.into_values();
    let (http, rest): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.routes().next().is_some());
    let routes = http.iter().flat_map(|entry| entry.routes().map(str::to_owned)).collect();
    let rest = rest.iter().map(|entry| entry.listener(mesh, placement)).collect();
    OutboundListeners { http: HttpListeners { entries: http, routes, ..HttpListeners::default() }, rest }
}

/// Listeners of HTTP without what names the workload: the workloads of a namespace share them.
#[derive(Debug, Default)]
pub struct HttpListeners {
    entries: Vec<Entry>,
    /// Those of a router, which has no others.
    of_gateways: Vec<gateway::Entry>,
    /// The routes that they ask for.
    pub routes: BTreeSet<String>,
    /// Of each entry, once a workload has asked for them.
    moulds: OnceLock<Vec<Mould>>,
}

impl HttpListeners {
    pub(super) fn of_router(of_gateways: Vec<gateway::Entry>, routes: BTreeSet<String>) -> Self {
        Self { of_gateways, routes, ..Self::default() }
    }

    /// As one workload gets them.
    pub fn listeners(&self, mesh: &Mesh, placement: &Placement) -> Vec<Made<Listener>> {
        let of_gateways = self.of_gateways.iter().map(|entry| entry.listener(mesh, placement));
        let all = self.entries.iter().map(|entry| entry.listener(mesh, placement)).chain(of_gateways);
        all.filter_map(|made| patch::patched_listener(&placement.patches.outbound, made)).collect()
    }

    /// The same by name, encoded. `None`: they are made one by one; those of a router hold its policies too, and patches change anything.
    pub fn cast(&self, mesh: &Mesh, placement: &Placement, spans: &Spans) -> Option<Vec<(String, Made<Cast>)>> {
        if !self.of_gateways.is_empty() || placement.patches.outbound.has(patch::OF_LISTENERS) {
            return None;
        }
        let made = |entry: &Entry| Mould::new(&entry.listener(mesh, placement).value, &[]);
        let moulds = self.moulds.get_or_init(|| self.entries.iter().map(made).collect());
        let filling = Filling::new(spans, std::iter::empty());
        let mut known = Vec::new();
        let each = self.entries.iter().zip(moulds).map(|(entry, mould)| {
            let cast = mould.cast(&filling, &mut known);
            (listener_name(&entry.bind, entry.port), Made::new(cast, entry.made_from(placement)))
        });
        Some(each.collect())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let own = self.entries.iter().map(|entry| listener_name(&entry.bind, entry.port));
        own.chain(self.of_gateways.iter().map(|entry| entry.name.clone()))
    }

    /// They make the same listeners, whichever objects they are from.
    pub fn makes_the_same(&self, other: &Self) -> bool {
        let same = |(one, two): (&gateway::Entry, &gateway::Entry)| one.makes_the_same(two);
        self.of_gateways.len() == other.of_gateways.len()
            && self.of_gateways.iter().zip(&other.of_gateways).all(same)
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(one, two)| one.makes_the_same(two))
    }
}

/// Traffic for nobody that we know: on to where it was going, or nowhere.
pub(super) fn fallthrough(mesh: &Mesh, placement: &Placement) -> Vec<Filter> {
    let cluster = route::unknown_cluster(placement);
    let mut filters = stats::network(placement, Direction::Outbound);
    filters.push(tcp_proxy::to_cluster(mesh, placement, cluster.as_deref().unwrap_or(BLACK_HOLE)));
    filters
}

struct Table<'a> {
    mesh: &'a Mesh,
    placement: &'a Placement,
    entries: BTreeMap<(String, u16), Entry>,
}

/// A listener in the making.
#[derive(Debug)]
struct Entry {
    bind: String,
    /// The same of the proxy's second family.
    also: Option<String>,
    port: u16,
    /// A real port, not one that only the virtual listener hands over to.
    bound: bool,
    chains: Vec<Chain>,
    serves: Kind,
    /// An egress listener of a Sidecar made it: later ones add nothing.
    locked: bool,
    made_from: BTreeSet<ObjectId>,
}

/// What a listener is taken for when another service claims its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    /// The protocol matters: some share no port with others.
    Bytes(Protocol),
    /// HTTP is told from other bytes.
    Detected,
}

/// Where a service port is listened on.
#[derive(Clone)]
struct Place {
    address: String,
    also: Option<String>,
    ranges: Vec<String>,
}

impl Place {
    fn at(address: &impl ToString) -> Self {
        Self { address: address.to_string(), also: None, ranges: Vec::new() }
    }

    /// Of a pair of one meaning, the second is for proxies that have addresses of both families.
    fn of_both(placement: &Placement, address: &str, second: &str) -> Self {
        let both = placement.has_ipv4() && placement.has_ipv6();
        Self { also: both.then(|| second.to_owned()), ..Self::at(&address) }
    }

    fn anywhere(placement: &Placement) -> Self {
        Self::of_both(placement, placement.wildcard(), "::")
    }

    fn loopback(placement: &Placement) -> Self {
        Self::of_both(placement, placement.loopback(), "::1")
    }
}

impl Table<'_> {
    fn add_egress(&mut self, egress: &EgressListener) {
        let socket = egress.bind.as_deref().is_some_and(|bind| bind.starts_with("unix://"));
        let bound = self.placement.binds_ports() || egress.capture == Capture::None || socket;
        let bind = egress.bind.as_ref().map(Place::at).or_else(|| bound.then(|| Place::loopback(self.placement)));
        let refused = |port: u16, protocol| {
            let bind = bind.as_ref().map(|place| place.address.as_str());
            Wanted { bind, port, protocol, bound }.is_refused_beside_virtual(self.mesh, self.placement)
        };
        match &egress.port {
            Some(listen) if refused(listen.number, listen.protocol) => {}
            Some(listen) => {
                for service in &egress.services {
                    let port = Port {
                        name: listen.name.clone(),
                        number: listen.number,
                        protocol: listen.protocol,
                        target: model::TargetPort::Same,
                    };
                    self.add(egress, service, &port, bind.as_ref(), bound);
                }
            }
            None => {
                self.entries.values_mut().for_each(|entry| entry.locked = true);
                let open = |port: &&Port| !refused(port.number, port.protocol);
                for service in &egress.services {
                    for port in service.ports.iter().filter(open) {
                        self.add_service_port(egress, service, port, bind.as_ref(), bound);
                    }
                }
            }
        }
    }

    /// Headless bytes get a listener for each endpoint: there is no address of the service to listen on.
    fn add_service_port(
        &mut self,
        egress: &EgressListener,
        service: &Arc<Service>,
        port: &Port,
        bind: Option<&Place>,
        bound: bool,
    ) {
        let by_endpoint = bind.is_none()
            && service.is_headless()
            && self.placement.listening_addresses(service).is_empty()
            && service.ranges.is_empty()
            && (port.protocol.is_tcp() || port.protocol == Protocol::Auto);
        if !by_endpoint {
            return self.add(egress, service, port, bind, bound);
        }
        let endpoints = self.mesh.endpoints_at(service, port.number);
        // Nobody will ever be behind an entry that neither lists nor selects anybody.
        let open = service.registry == Registry::External && endpoints.is_empty() && service.selector.is_empty();
        if open {
            return self.add(egress, service, port, bind, bound);
        }
        let own = self.placement.own_address();
        for address in endpoints.iter().filter_map(|endpoint| endpoint.address.ip()) {
            // What the application sends to itself never passes here.
            if address != own {
                self.add(egress, service, port, Some(&Place::at(&address)), bound);
            }
        }
    }

    fn add(&mut self, egress: &EgressListener, service: &Arc<Service>, port: &Port, bind: Option<&Place>, bound: bool) {
        if service.is_alias() || port.protocol == Protocol::Udp {
            return;
        }
        for place in self.places(service, port, bind) {
            self.add_at(egress, service, port, place, bound);
        }
    }

    fn add_at(&mut self, egress: &EgressListener, service: &Arc<Service>, port: &Port, place: Place, bound: bool) {
        let key = (place.address.clone(), port.number);
        let held = self.entries.get(&key);
        // The listener for clients of a proxy is that of the last service, as in istiod: it says whose hosts are resolved.
        let proxies = port.protocol == Protocol::HttpProxy;
        if held.is_some_and(|entry| entry.locked || !(proxies || entry.accepts(port.protocol))) {
            return;
        }
        let replaces =
            proxies || (held.is_some_and(|entry| entry.serves == Kind::Http) && port.protocol == Protocol::Auto);
        let (kind, chains, mut made_from) = self.chains(egress, service, port, &place);
        made_from.insert(service.made_from.clone());
        if replaces {
            self.entries.remove(&key);
        }
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            bind: place.address,
            also: place.also,
            port: port.number,
            bound,
            chains: Vec::new(),
            serves: kind,
            locked: false,
            made_from: BTreeSet::new(),
        });
        entry.made_from.extend(made_from);
        if entry.is_told_from_other_bytes_with(kind) {
            entry.serves = Kind::Detected;
        }
        outbound_chain::merge(&mut entry.chains, chains);
    }

    /// Whole ranges are told apart by chains, on a listener for any address.
    fn places(&self, service: &Service, port: &Port, bind: Option<&Place>) -> Vec<Place> {
        let anywhere = Place::anywhere(self.placement);
        match bind {
            Some(given) => return vec![given.clone()],
            None if port.protocol.is_http() => return vec![anywhere],
            None => {}
        }
        let own = self.placement.listening_addresses(service);
        // Each address of an entry has a listener, but only the first of a Service and of those that were allocated.
        let each = own == service.addresses && !service.is_kubernetes();
        let count = if each { own.len() } else { 1 };
        let single = own.iter().take(count).map(Place::at);
        let wide = service.ranges.iter().map(|range| Place { ranges: vec![range.to_string()], ..anywhere.clone() });
        let mut places: Vec<_> = single.chain(wide).collect();
        if places.is_empty() {
            places.push(anywhere);
        }
        places
    }

    fn chains(
        &self,
        egress: &EgressListener,
        service: &Arc<Service>,
        port: &Port,
        place: &Place,
    ) -> (Kind, Vec<Chain>, BTreeSet<ObjectId>) {
        let anywhere = place.address == self.placement.wildcard();
        if port.protocol.is_http() {
            let route = if port.number == 0 { place.address.clone() } else { port.number.to_string() };
            let detected = anywhere && port.protocol != Protocol::HttpProxy;
            let kind = if detected { Kind::Detected } else { Kind::Http };
            return (kind, vec![http_chain(service, route, port.protocol, detected)], BTreeSet::new());
        }
        let unaddressed = self.placement.listening_addresses(service).is_empty();
        let by_name = service.is_dynamic()
            || (anywhere && (unaddressed || !place.ranges.is_empty()))
            // On an address that a Sidecar chose, ranges tell nothing.
            || (unaddressed && !service.ranges.is_empty());
        let ranges = place.ranges.clone();
        let target = bytes_route::Target { mesh: self.mesh, placement: self.placement, service, port, ranges, by_name };
        let (mut chains, made_from) = bytes_route::chains(&target, &egress.virtual_services);
        if port.protocol != Protocol::Auto {
            return (Kind::Bytes(port.protocol), chains, made_from);
        }
        let route = if anywhere { port.number.to_string() } else { format!("{}:{}", service.host, port.number) };
        chains.push(http_chain(service, route, port.protocol, true));
        (Kind::Detected, chains, made_from)
    }

    /// For applications that are told of a proxy: any service of any port.
    fn add_http_proxy(&mut self) {
        let own = self.placement.proxy.metadata.http_proxy_port;
        let port = own.or_else(|| u16::try_from(self.mesh.config.proxy_http_port).ok()).filter(|port| *port != 0);
        let Some(port) = port else { return };
        let place = Place::loopback(self.placement);
        let serves = Serves::Http {
            route: HTTP_PROXY.into(),
            protocol: Protocol::HttpProxy,
            detected: false,
            proxies: true,
            cache: None,
        };
        let chain = Chain { serves, ..Chain::bytes(Vec::new()) };
        self.entries.insert(
            (place.address.clone(), port),
            Entry {
                bind: place.address,
                also: place.also,
                port,
                bound: true,
                chains: vec![chain],
                serves: Kind::Http,
                locked: true,
                made_from: BTreeSet::new(),
            },
        );
    }
}

fn http_chain(service: &Service, route: String, protocol: Protocol, detected: bool) -> Chain {
    if service.is_dynamic() {
        Chain::http_by_name(route, protocol, detected, resolution::dns_cache(service))
    } else {
        Chain::http(route, protocol, detected)
    }
}

impl Entry {
    /// Whether a further service may claim this address and port too.
    fn accepts(&self, protocol: Protocol) -> bool {
        // Their servers speak first: looking at what the client says would wait for ever.
        let alone = |protocol: Protocol| matches!(protocol, Protocol::Mongo | Protocol::Mysql);
        let shares = match self.serves {
            Kind::Bytes(held) if alone(held) || alone(protocol) => held == protocol,
            _ => !alone(protocol),
        };
        // All HTTP services share one chain.
        let same = match self.serves {
            Kind::Http => protocol.is_http(),
            Kind::Detected => protocol.is_http() || protocol == Protocol::Auto,
            Kind::Bytes(_) => false,
        };
        shares && !same
    }

    fn is_told_from_other_bytes_with(&self, kind: Kind) -> bool {
        !matches!((self.serves, kind), (Kind::Bytes(_), Kind::Bytes(_)) | (Kind::Http, Kind::Http))
    }

    fn routes(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().filter_map(Chain::route)
    }

    fn makes_the_same(&self, other: &Self) -> bool {
        (&self.bind, &self.also, self.port, self.bound, &self.chains)
            == (&other.bind, &other.also, other.port, other.bound, &other.chains)
    }

    fn listener(&self, mesh: &Mesh, placement: &Placement) -> Made<Listener> {
        let name = listener_name(&self.bind, self.port);
        let detects = self.chains.iter().any(Chain::is_detected);
        let (filter_chains, default_filter_chain) = outbound_chain::split(
            &self.chains,
            |chain| {
                chain.filter_chain(
                    mesh,
                    placement,
                    hcm::At { name: &name, port: self.port, proxies: false, cache: None },
                )
            },
            || passthrough_chain(mesh, placement),
        );
        let mut listener_filters = Vec::new();
        if self.chains.iter().any(Chain::asks_server_name) {
            listener_filters.push(inspector::tls());
        }
        if detects {
            listener_filters.push(inspector::http());
        }
        let listener = Listener {
            address: Some(address::bind(&self.bind, self.port)),
            additional_addresses: self.also.iter().map(|also| additional(also, self.port)).collect(),
            name,
            filter_chains,
            default_filter_chain,
            traffic_direction: TrafficDirection::Outbound.into(),
            continue_on_listener_filters_timeout: true,
            listener_filters,
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
        Made::new(listener, self.made_from(placement))
    }

    fn made_from<'a>(&'a self, placement: &'a Placement) -> impl Iterator<Item = ObjectId> + 'a {
        let observed = placement.telemetry.made_from.iter();
        self.made_from.iter().chain(observed).cloned().chain(placement.plugins.made_from())
    }
}

fn additional(ip: &str, port: u16) -> AdditionalAddress {
    AdditionalAddress { address: Some(address::socket(ip, port)), ..AdditionalAddress::default() }
}

fn passthrough_chain(mesh: &Mesh, placement: &Placement) -> FilterChain {
    FilterChain {
        name: "PassthroughFilterChain".into(),
        filter_chain_match: Some(FilterChainMatch::default()),
        filters: fallthrough(mesh, placement),
        ..FilterChain::default()
    }
}
