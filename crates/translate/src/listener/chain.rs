//! Inbound filter chains of one port: their matches by mutual TLS mode and protocol.

use std::cell::LazyCell;

use model::{Mesh, MtlsMode, Placement, Protocol};
use wire::envoy::config::core::v3::Metadata;
use wire::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

use crate::filter::{self, Direction, tcp_proxy};
use crate::names::{INBOUND_PASSTHROUGH, listener_name};
use crate::proto::uint32;
use crate::route::inbound as route;
use crate::stat_pattern::{self, PatternValues};
use crate::telemetry::stats;
use crate::{hcm, tls};

pub(super) const ISTIO: [&str; 5] = ["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];
const ISTIO_HTTP: [&str; 3] = ["istio-http/1.0", "istio-http/1.1", "istio-h2"];
const ISTIO_TCP: [&str; 2] = ["istio-peer-exchange", "istio"];
pub(super) const PLAIN_HTTP: [&str; 2] = ["http/1.1", "h2c"];

/// What an inbound port serves.
pub(super) enum Target<'a> {
    /// A port that a service or a Sidecar declares.
    Declared { bind: &'a str, cluster: String, named: &'a PatternValues, metadata: Option<Metadata> },
    /// Undeclared ports. Of a single port only if a PeerAuthentication names it.
    Passthrough,
}

/// The filter chains of a workload port; port 0 means all ports.
pub(super) fn chains(
    mesh: &Mesh,
    placement: &Placement,
    port: u16,
    protocol: Protocol,
    mode: MtlsMode,
    target: &Target<'_>,
) -> Vec<FilterChain> {
    // Shared by all matches of the same protocol.
    let http = LazyCell::new(|| http_filters(mesh, placement, port, protocol, target));
    let tcp = LazyCell::new(|| tcp_filters(mesh, placement, protocol, target));
    matches(protocol, mode)
        .iter()
        .map(|matched| {
            let (filters, is_http) = match matched.serves {
                Serves::Http => (http.clone(), true),
                Serves::Tcp => (tcp.clone(), false),
            };
            FilterChain {
                name: target.chain_name(port, is_http),
                filter_chain_match: Some(FilterChainMatch {
                    destination_port: (port > 0).then(|| uint32(port.into())),
                    transport_protocol: matched.transport.to_owned(),
                    application_protocols: matched.protocols.iter().map(|&name| name.to_owned()).collect(),
                    ..FilterChainMatch::default()
                }),
                filters,
                transport_socket: matched.terminates.then(|| tls::downstream(mesh, placement, is_http)),
                metadata: target.metadata(),
                ..FilterChain::default()
            }
        })
        .collect()
}

impl Target<'_> {
    fn cluster(&self) -> &str {
        match self {
            Self::Declared { cluster, .. } => cluster,
            Self::Passthrough => INBOUND_PASSTHROUGH,
        }
    }

    fn metadata(&self) -> Option<Metadata> {
        match self {
            Self::Declared { metadata, .. } => metadata.clone(),
            Self::Passthrough => None,
        }
    }

    fn chain_name(&self, port: u16, http: bool) -> String {
        match self {
            Self::Declared { bind, .. } => listener_name(bind, port),
            Self::Passthrough if http => "virtualInbound-catchall-http".into(),
            Self::Passthrough => "virtualInbound".into(),
        }
    }

    fn stat_prefix(&self, port: u16) -> String {
        match self {
            Self::Declared { bind, .. } => format!("inbound_{}", listener_name(bind, port)),
            Self::Passthrough => INBOUND_PASSTHROUGH.into(),
        }
    }

    /// The service in traces and statistics.
    fn pattern_values(&self) -> PatternValues {
        match self {
            Self::Declared { named, .. } => (*named).clone(),
            Self::Passthrough => PatternValues { port_name: "virtualInbound".into(), ..PatternValues::default() },
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Serves {
    Http,
    Tcp,
}

/// One filter chain match.
#[derive(Debug, Clone, Copy)]
struct ChainMatch {
    serves: Serves,
    transport: &'static str,
    protocols: &'static [&'static str],
    /// Mutual TLS is terminated; otherwise the connection is passed on as it is.
    terminates: bool,
}

const fn chain_match(
    serves: Serves,
    transport: &'static str,
    protocols: &'static [&'static str],
    terminates: bool,
) -> ChainMatch {
    ChainMatch { serves, transport, protocols, terminates }
}

/// istiod's matrix. The order does not matter to Envoy, which takes the most specific match; it is istiod's for comparison.
fn matches(protocol: Protocol, mode: MtlsMode) -> &'static [ChainMatch] {
    use MtlsMode::{Disable, Permissive, Strict};
    use Serves::{Http, Tcp};
    match (kind(protocol), mode) {
        (Kind::Http, Strict) => const { &[chain_match(Http, "tls", &[], true)] },
        (Kind::Http, Permissive) => {
            const { &[chain_match(Http, "tls", &ISTIO, true), chain_match(Http, "raw_buffer", &[], false)] }
        }
        (Kind::Http, Disable) => const { &[chain_match(Http, "raw_buffer", &[], false)] },
        (Kind::Tcp, Strict) => const { &[chain_match(Tcp, "tls", &[], true)] },
        (Kind::Tcp, Permissive) => {
            const {
                &[
                    chain_match(Tcp, "tls", &ISTIO, true),
                    chain_match(Tcp, "tls", &[], false),
                    chain_match(Tcp, "raw_buffer", &[], false),
                ]
            }
        }
        (Kind::Tcp, Disable) => const { &[chain_match(Tcp, "raw_buffer", &[], false)] },
        (Kind::Auto, Strict) => {
            const { &[chain_match(Http, "tls", &ISTIO_HTTP, true), chain_match(Tcp, "tls", &[], true)] }
        }
        (Kind::Auto, Permissive) => {
            const {
                &[
                    chain_match(Http, "tls", &ISTIO_HTTP, true),
                    chain_match(Http, "raw_buffer", &PLAIN_HTTP, false),
                    chain_match(Tcp, "tls", &ISTIO_TCP, true),
                    chain_match(Tcp, "raw_buffer", &[], false),
                    chain_match(Tcp, "tls", &[], false),
                ]
            }
        }
        (Kind::Auto, Disable) => {
            const { &[chain_match(Http, "raw_buffer", &PLAIN_HTTP, false), chain_match(Tcp, "raw_buffer", &[], false)] }
        }
    }
}

enum Kind {
    Http,
    Tcp,
    Auto,
}

fn kind(protocol: Protocol) -> Kind {
    match protocol {
        Protocol::Auto => Kind::Auto,
        other if other.is_http() => Kind::Http,
        // A UDP port is served as TCP: so does istiod, pinned by parity case services-inbound-protocols.
        _ => Kind::Tcp,
    }
}

fn http_filters(mesh: &Mesh, placement: &Placement, port: u16, protocol: Protocol, target: &Target<'_>) -> Vec<Filter> {
    let routes = route::configuration(target.cluster(), &target.pattern_values(), protocol);
    let mut filters = filter::inbound_network(placement);
    filters.extend(filter::network_plugins(placement, Direction::Inbound, port));
    let at = hcm::At { name: &target.stat_prefix(port), port, proxies: false, cache: None };
    filters.push(hcm::inbound(mesh, placement, at, routes, protocol));
    filters
}

fn tcp_filters(mesh: &Mesh, placement: &Placement, protocol: Protocol, target: &Target<'_>) -> Vec<Filter> {
    let mut filters = filter::inbound_network(placement);
    let named = target.pattern_values();
    // By the service port, where HTTP uses the workload port: as in istiod.
    filters.extend(filter::network_policies(placement, Direction::Inbound, named.port));
    let stat = stat_pattern::expand(&mesh.config.inbound_cluster_stat_name, || named);
    filters.extend(stats::network(placement, Direction::Inbound));
    filters.extend(tcp_proxy::of_protocol(mesh, placement, protocol, target.cluster(), stat));
    filters
}
