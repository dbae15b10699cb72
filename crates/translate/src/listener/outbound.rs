//! Outbound listeners: one per address and port, with the filter chains of all services that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use config::diagnostic::ObjectId;
use model::{Capture, EgressListener, Mesh, PatchId, PatchSet, Placement, Port, Protocol, Registry, Service};
use wire::envoy::config::core::v3::TrafficDirection;
use wire::envoy::config::listener::v3::{AdditionalAddress, Filter, FilterChain, FilterChainMatch, Listener};

use super::outbound_chain::{self, Chain, ChainContent};
use super::reserved::ListenerRequest;
use super::template::{ListenerTemplate, TemplateValues};
use super::template_instance::TemplateInstance;
use super::{OutboundListeners, balance, gateway, inspector, tcp_route};
use crate::address;
use crate::cluster::resolution;
use crate::filter::{Direction, tcp_proxy};
use crate::hcm;
use crate::names::{BLACK_HOLE, listener_name};
use crate::patch;
use crate::proto::{boolean, duration, seconds, uint32};
use crate::route::{self, HTTP_PROXY};
use crate::telemetry::encoded_tracing::EncodedTracing;
use crate::telemetry::stats;
use crate::translated::Translated;

pub(super) fn listeners(mesh: &Mesh, placement: &Placement) -> OutboundListeners {
    let mut table = ListenerTable { mesh, placement, entries: BTreeMap::new() };
    for egress in &placement.scope.egress {
        table.add_egress(egress);
    }
    table.add_http_proxy();
    let entries = table.entries.into_values();
    let (http, rest): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.routes().next().is_some());
    let routes = http.iter().flat_map(|entry| entry.routes().map(str::to_owned)).collect();
    let rest = rest.iter().map(|entry| entry.listener(mesh, placement)).collect();
    let patches = placement.patches.outbound.clone();
    OutboundListeners { http: HttpListeners { entries: http, routes, patches, ..HttpListeners::default() }, rest }
}

/// Drafts of outbound HTTP listeners, which the workloads of a namespace share. The workload's name is added per workload.
#[derive(Debug, Default)]
pub struct HttpListeners {
    entries: Vec<ListenerDraft>,
    /// Of a gateway, which has no other listeners.
    of_gateways: Vec<gateway::ListenerDraft>,
    /// The route configurations that they refer to.
    pub routes: BTreeSet<String>,
    patches: PatchSet,
    /// Built from the listeners of the first workload, one per draft that patches do not remove.
    templates: OnceLock<Vec<DraftTemplate>>,
}

#[derive(Debug)]
struct DraftTemplate {
    /// The position of the draft.
    draft: usize,
    name: String,
    listener: ListenerTemplate,
    patched: BTreeSet<PatchId>,
}

impl HttpListeners {
    pub(super) fn of_gateway(
        of_gateways: Vec<gateway::ListenerDraft>,
        routes: BTreeSet<String>,
        patches: PatchSet,
    ) -> Self {
        Self { of_gateways, routes, patches, ..Self::default() }
    }

    /// The listeners of one workload.
    pub fn listeners(&self, mesh: &Mesh, placement: &Placement) -> Vec<Translated<Listener>> {
        let of_gateways = self.of_gateways.iter().map(|entry| entry.listener(mesh, placement));
        let all = self.entries.iter().map(|entry| entry.listener(mesh, placement)).chain(of_gateways);
        all.filter_map(|made| patch::patch_listener(&self.patches, made)).collect()
    }

    /// The encoded listeners of one workload, by name, from templates. `None`: templates do not apply; a gateway's listeners contain its
    /// policies, and patches may change the fields that name the workload.
    pub fn instantiate(
        &self,
        mesh: &Mesh,
        placement: &Placement,
        tracing: &EncodedTracing,
    ) -> Option<Vec<(String, Translated<TemplateInstance>)>> {
        if !self.of_gateways.is_empty() || !patch::keep_connection_managers(&self.patches) {
            return None;
        }
        let templates = self.templates.get_or_init(|| self.make_templates(mesh, placement));
        let values = TemplateValues::new(tracing, std::iter::empty());
        let mut diffs = Vec::new();
        let each = templates.iter().map(|template| {
            let instance = template.listener.instantiate(&values, &mut diffs);
            let made = Translated::new(instance, self.entries[template.draft].made_from(placement));
            (template.name.clone(), Translated { patched: template.patched.clone(), ..made })
        });
        Some(each.collect())
    }

    fn make_templates(&self, mesh: &Mesh, placement: &Placement) -> Vec<DraftTemplate> {
        let made = |(draft, entry): (usize, &ListenerDraft)| {
            let Translated { value, patched, .. } =
                patch::patch_listener(&self.patches, entry.listener(mesh, placement))?;
            let listener = ListenerTemplate::new(&value, &[]);
            Some(DraftTemplate { draft, name: value.name, listener, patched })
        };
        self.entries.iter().enumerate().filter_map(made).collect()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let own = self.entries.iter().map(|entry| listener_name(&entry.bind, entry.port));
        own.chain(self.of_gateways.iter().map(|entry| entry.name.clone()))
    }

    /// Both produce the same listeners; provenance may differ.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let same = |(one, two): (&gateway::ListenerDraft, &gateway::ListenerDraft)| one.is_equivalent(two);
        self.patches.agrees(&other.patches, patch::LISTENER_PATCH_KINDS)
            && self.of_gateways.len() == other.of_gateways.len()
            && self.of_gateways.iter().zip(&other.of_gateways).all(same)
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(one, two)| one.is_equivalent(two))
    }
}

/// Filters for unknown destinations: passthrough or black hole.
pub(super) fn fallthrough(mesh: &Mesh, placement: &Placement) -> Vec<Filter> {
    let cluster = route::unknown_cluster(placement);
    let mut filters = stats::network(placement, Direction::Outbound);
    filters.push(tcp_proxy::to_cluster(mesh, placement, cluster.as_deref().unwrap_or(BLACK_HOLE)));
    filters
}

struct ListenerTable<'a> {
    mesh: &'a Mesh,
    placement: &'a Placement,
    entries: BTreeMap<(String, u16), ListenerDraft>,
}

/// A listener under construction.
#[derive(Debug)]
struct ListenerDraft {
    bind: String,
    /// The address of the second family of a dual-stack proxy.
    additional: Option<String>,
    port: u16,
    /// It binds the port, instead of receiving connections from the virtual listener.
    bound: bool,
    chains: Vec<Chain>,
    serves: Kind,
    /// An egress listener of a Sidecar created it: later ones add nothing.
    is_sidecar_egress: bool,
    made_from: BTreeSet<ObjectId>,
}

/// What a listener serves, for conflicts between services on one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    /// The protocol matters: some cannot share a port.
    Tcp(Protocol),
    /// Protocol detection: HTTP or TCP.
    Detected,
}

/// The address of the listener for a service port.
#[derive(Clone)]
struct ListenAddress {
    address: String,
    additional: Option<String>,
    ranges: Vec<String>,
}

impl ListenAddress {
    fn at(address: &impl ToString) -> Self {
        Self { address: address.to_string(), additional: None, ranges: Vec::new() }
    }

    /// `second` is used by dual-stack proxies only.
    fn dual_stack(placement: &Placement, address: &str, second: &str) -> Self {
        let both = placement.has_ipv4() && placement.has_ipv6();
        Self { additional: both.then(|| second.to_owned()), ..Self::at(&address) }
    }

    fn wildcard(placement: &Placement) -> Self {
        Self::dual_stack(placement, placement.wildcard(), "::")
    }

    fn loopback(placement: &Placement) -> Self {
        Self::dual_stack(placement, placement.loopback(), "::1")
    }
}

impl ListenerTable<'_> {
    fn add_egress(&mut self, egress: &EgressListener) {
        let socket = egress.bind.as_deref().is_some_and(|bind| bind.starts_with("unix://"));
        let bound = self.placement.binds_ports() || egress.capture == Capture::None || socket;
        let bind = egress
            .bind
            .as_ref()
            .map(ListenAddress::at)
            .or_else(|| bound.then(|| ListenAddress::loopback(self.placement)));
        let is_reserved = |port: u16, protocol| {
            let bind = bind.as_ref().map(|address| address.address.as_str());
            ListenerRequest { bind, port, protocol, bound }.is_reserved_beside_virtual(self.mesh, self.placement)
        };
        match &egress.port {
            Some(listen) if is_reserved(listen.number, listen.protocol) => {}
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
                self.entries.values_mut().for_each(|entry| entry.is_sidecar_egress = true);
                let open = |port: &&Port| !is_reserved(port.number, port.protocol);
                for service in &egress.services {
                    for port in service.ports.iter().filter(open) {
                        self.add_service_port(egress, service, port, bind.as_ref(), bound);
                    }
                }
            }
        }
    }

    /// TCP ports of headless services have a listener per endpoint: there is no virtual address.
    fn add_service_port(
        &mut self,
        egress: &EgressListener,
        service: &Arc<Service>,
        port: &Port,
        bind: Option<&ListenAddress>,
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
        // An entry without endpoints and selector never has endpoints.
        let open =
            service.registry == Registry::External && endpoints.is_empty() && service.selector_labels().is_empty();
        if open {
            return self.add(egress, service, port, bind, bound);
        }
        let own = self.placement.own_address();
        for address in endpoints.iter().filter_map(|endpoint| endpoint.address.ip()) {
            // Traffic of the application to itself is not redirected.
            if address != own {
                self.add(egress, service, port, Some(&ListenAddress::at(&address)), bound);
            }
        }
    }

    fn add(
        &mut self,
        egress: &EgressListener,
        service: &Arc<Service>,
        port: &Port,
        bind: Option<&ListenAddress>,
        bound: bool,
    ) {
        if service.is_alias() || port.protocol == Protocol::Udp {
            return;
        }
        for address in self.listen_addresses(service, port, bind) {
            self.add_at(egress, service, port, address, bound);
        }
    }

    fn add_at(
        &mut self,
        egress: &EgressListener,
        service: &Arc<Service>,
        port: &Port,
        address: ListenAddress,
        bound: bool,
    ) {
        let key = (address.address.clone(), port.number);
        let current = self.entries.get(&key);
        // As in istiod the HTTP proxy listener is that of the last service: its hosts are resolved.
        let proxies = port.protocol == Protocol::HttpProxy;
        if current.is_some_and(|entry| entry.is_sidecar_egress || !(proxies || entry.accepts(port.protocol))) {
            return;
        }
        let replaces =
            proxies || (current.is_some_and(|entry| entry.serves == Kind::Http) && port.protocol == Protocol::Auto);
        let (kind, chains, mut made_from) = self.chains(egress, service, port, &address);
        made_from.insert(service.made_from.clone());
        if replaces {
            self.entries.remove(&key);
        }
        let entry = self.entries.entry(key).or_insert_with(|| ListenerDraft {
            bind: address.address,
            additional: address.additional,
            port: port.number,
            bound,
            chains: Vec::new(),
            serves: kind,
            is_sidecar_egress: false,
            made_from: BTreeSet::new(),
        });
        entry.made_from.extend(made_from);
        if entry.needs_detection_beside(kind) {
            entry.serves = Kind::Detected;
        }
        outbound_chain::merge(&mut entry.chains, chains);
    }

    /// CIDR ranges are matched by filter chains, on the wildcard address.
    fn listen_addresses(&self, service: &Service, port: &Port, bind: Option<&ListenAddress>) -> Vec<ListenAddress> {
        let wildcard = ListenAddress::wildcard(self.placement);
        match bind {
            Some(given) => return vec![given.clone()],
            None if port.protocol.is_http() => return vec![wildcard],
            None => {}
        }
        let own = self.placement.listening_addresses(service);
        // Each address of a ServiceEntry has a listener, but only the first of a Service and of allocated addresses.
        let each = own == service.addresses && !service.is_kubernetes();
        let count = if each { own.len() } else { 1 };
        let single = own.iter().take(count).map(ListenAddress::at);
        let wide =
            service.ranges.iter().map(|range| ListenAddress { ranges: vec![range.to_string()], ..wildcard.clone() });
        let mut listen_addresses: Vec<_> = single.chain(wide).collect();
        if listen_addresses.is_empty() {
            listen_addresses.push(wildcard);
        }
        listen_addresses
    }

    fn chains(
        &self,
        egress: &EgressListener,
        service: &Arc<Service>,
        port: &Port,
        address: &ListenAddress,
    ) -> (Kind, Vec<Chain>, BTreeSet<ObjectId>) {
        let wildcard = address.address == self.placement.wildcard();
        if port.protocol.is_http() {
            let route = if port.number == 0 { address.address.clone() } else { port.number.to_string() };
            let detected = wildcard && port.protocol != Protocol::HttpProxy;
            let kind = if detected { Kind::Detected } else { Kind::Http };
            return (kind, vec![http_chain(service, route, port.protocol, detected)], BTreeSet::new());
        }
        let unaddressed = self.placement.listening_addresses(service).is_empty();
        let by_name = service.is_dynamic()
            || (wildcard && (unaddressed || !address.ranges.is_empty()))
            // On a bind address of a Sidecar, ranges are not matched.
            || (unaddressed && !service.ranges.is_empty());
        let ranges = address.ranges.clone();
        let target = tcp_route::Target { mesh: self.mesh, placement: self.placement, service, port, ranges, by_name };
        let (mut chains, made_from) = tcp_route::chains(&target, &egress.virtual_services);
        if port.protocol != Protocol::Auto {
            return (Kind::Tcp(port.protocol), chains, made_from);
        }
        let route = if wildcard { port.number.to_string() } else { format!("{}:{}", service.host, port.number) };
        chains.push(http_chain(service, route, port.protocol, true));
        (Kind::Detected, chains, made_from)
    }

    /// The HTTP forward proxy listener: any service on any port.
    fn add_http_proxy(&mut self) {
        let own = self.placement.proxy.metadata.http_proxy_port;
        let port = own.or_else(|| u16::try_from(self.mesh.config.proxy_http_port).ok()).filter(|port| *port != 0);
        let Some(port) = port else { return };
        let address = ListenAddress::loopback(self.placement);
        let content = ChainContent::Http {
            route: HTTP_PROXY.into(),
            protocol: Protocol::HttpProxy,
            detected: false,
            proxies: true,
            cache: None,
        };
        let chain = Chain { content, ..Chain::tcp(Vec::new()) };
        self.entries.insert(
            (address.address.clone(), port),
            ListenerDraft {
                bind: address.address,
                additional: address.additional,
                port,
                bound: true,
                chains: vec![chain],
                serves: Kind::Http,
                is_sidecar_egress: true,
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

impl ListenerDraft {
    /// Whether another service may share this address and port.
    fn accepts(&self, protocol: Protocol) -> bool {
        // Server-first protocols: detection would wait for the client forever.
        let alone = |protocol: Protocol| matches!(protocol, Protocol::Mongo | Protocol::Mysql);
        let shares = match self.serves {
            Kind::Tcp(current) if alone(current) || alone(protocol) => current == protocol,
            _ => !alone(protocol),
        };
        // All HTTP services share one filter chain.
        let same = match self.serves {
            Kind::Http => protocol.is_http(),
            Kind::Detected => protocol.is_http() || protocol == Protocol::Auto,
            Kind::Tcp(_) => false,
        };
        shares && !same
    }

    fn needs_detection_beside(&self, kind: Kind) -> bool {
        !matches!((self.serves, kind), (Kind::Tcp(_), Kind::Tcp(_)) | (Kind::Http, Kind::Http))
    }

    fn routes(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().filter_map(Chain::route)
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        (&self.bind, &self.additional, self.port, self.bound, &self.chains)
            == (&other.bind, &other.additional, other.port, other.bound, &other.chains)
    }

    fn listener(&self, mesh: &Mesh, placement: &Placement) -> Translated<Listener> {
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
        if self.chains.iter().any(Chain::reads_sni) {
            listener_filters.push(inspector::tls());
        }
        if detects {
            listener_filters.push(inspector::http());
        }
        let listener = Listener {
            address: Some(address::bind(&self.bind, self.port)),
            additional_addresses: self
                .additional
                .iter()
                .map(|additional| additional_address(additional, self.port))
                .collect(),
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
        Translated::new(listener, self.made_from(placement))
    }

    fn made_from<'a>(&'a self, placement: &'a Placement) -> impl Iterator<Item = ObjectId> + 'a {
        let observed = placement.telemetry.made_from.iter();
        self.made_from.iter().chain(observed).cloned().chain(placement.plugins.made_from())
    }
}

fn additional_address(ip: &str, port: u16) -> AdditionalAddress {
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
