//! Inbound filter chains of one port: which connections each takes, by mutual TLS mode and protocol.

use std::cell::LazyCell;

use model::{Mesh, MtlsMode, Placement, Protocol};
use wire::envoy::config::core::v3::Metadata;
use wire::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

use crate::filter::{self, Direction, tcp_proxy};
use crate::names::{INBOUND_PASSTHROUGH, listener_name};
use crate::proto::uint32;
use crate::route::inbound as route;
use crate::stat_pattern::{self, Named};
use crate::telemetry::stats;
use crate::{hcm, tls};

pub(super) const ISTIO: [&str; 5] = ["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];
const ISTIO_HTTP: [&str; 3] = ["istio-http/1.0", "istio-http/1.1", "istio-h2"];
const ISTIO_TCP: [&str; 2] = ["istio-peer-exchange", "istio"];
pub(super) const PLAIN_HTTP: [&str; 2] = ["http/1.1", "h2c"];

/// What an inbound port leads to.
pub(super) enum Target<'a> {
    /// A port that a service or a Sidecar declares.
    Declared { bind: &'a str, cluster: String, named: &'a Named, metadata: Option<Metadata> },
    /// Whatever nobody declared. On one port only where a policy names that port.
    Passthrough,
}

/// The chains of a workload port; port 0 means all ports.
pub(super) fn chains(
    mesh: &Mesh,
    placement: &Placement,
    port: u16,
    protocol: Protocol,
    mode: MtlsMode,
    target: &Target<'_>,
) -> Vec<FilterChain> {
    // The same for each case that serves them.
    let of_http = LazyCell::new(|| http_filters(mesh, placement, port, protocol, target));
    let of_bytes = LazyCell::new(|| tcp_filters(mesh, placement, protocol, target));
    matches(protocol, mode)
        .iter()
        .map(|case| {
            let (filters, http) = match case.serves {
                Serves::Http => (of_http.clone(), true),
                Serves::Tcp => (of_bytes.clone(), false),
            };
            FilterChain {
                name: target.chain_name(port, http),
                filter_chain_match: Some(FilterChainMatch {
                    destination_port: (port > 0).then(|| uint32(port.into())),
                    transport_protocol: case.transport.to_owned(),
                    application_protocols: case.protocols.iter().map(|&name| name.to_owned()).collect(),
                    ..FilterChainMatch::default()
                }),
                filters,
                transport_socket: case.terminates.then(|| tls::downstream(mesh, placement, http)),
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
    fn named(&self) -> Named {
        match self {
            Self::Declared { named, .. } => (*named).clone(),
            Self::Passthrough => Named { port_name: "virtualInbound".into(), ..Named::default() },
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Serves {
    Http,
    Tcp,
}

/// One kind of connection.
#[derive(Debug, Clone, Copy)]
struct Case {
    serves: Serves,
    transport: &'static str,
    protocols: &'static [&'static str],
    /// Mutual TLS ends here; otherwise bytes pass as they are.
    terminates: bool,
}

const fn case(serves: Serves, transport: &'static str, protocols: &'static [&'static str], terminates: bool) -> Case {
    Case { serves, transport, protocols, terminates }
}

/// The matrix of istiod: first match wins nothing here, Envoy takes the most specific; the order is istiod's for comparison.
fn matches(protocol: Protocol, mode: MtlsMode) -> &'static [Case] {
    use MtlsMode::{Disable, Permissive, Strict};
    use Serves::{Http, Tcp};
    match (kind(protocol), mode) {
        (Kind::Http, Strict) => const { &[case(Http, "tls", &[], true)] },
        (Kind::Http, Permissive) => const { &[case(Http, "tls", &ISTIO, true), case(Http, "raw_buffer", &[], false)] },
        (Kind::Http, Disable) => const { &[case(Http, "raw_buffer", &[], false)] },
        (Kind::Tcp, Strict) => const { &[case(Tcp, "tls", &[], true)] },
        (Kind::Tcp, Permissive) => {
            const { &[case(Tcp, "tls", &ISTIO, true), case(Tcp, "tls", &[], false), case(Tcp, "raw_buffer", &[], false)] }
        }
        (Kind::Tcp, Disable) => const { &[case(Tcp, "raw_buffer", &[], false)] },
        (Kind::Auto, Strict) => const { &[case(Http, "tls", &ISTIO_HTTP, true), case(Tcp, "tls", &[], true)] },
        (Kind::Auto, Permissive) => {
            const {
                &[
                    case(Http, "tls", &ISTIO_HTTP, true),
                    case(Http, "raw_buffer", &PLAIN_HTTP, false),
                    case(Tcp, "tls", &ISTIO_TCP, true),
                    case(Tcp, "raw_buffer", &[], false),
                    case(Tcp, "tls", &[], false),
                ]
            }
        }
        (Kind::Auto, Disable) => {
            const { &[case(Http, "raw_buffer", &PLAIN_HTTP, false), case(Tcp, "raw_buffer", &[], false)] }
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
        // A UDP port is served as bytes too: so does istiod, pinned by parity case services-inbound-protocols.
        _ => Kind::Tcp,
    }
}

fn http_filters(mesh: &Mesh, placement: &Placement, port: u16, protocol: Protocol, target: &Target<'_>) -> Vec<Filter> {
    let routes = route::configuration(target.cluster(), &target.named(), protocol);
    let mut filters = filter::inbound_network(placement);
    filters.extend(filter::network_plugins(placement, Direction::Inbound, port));
    let at = hcm::At { name: &target.stat_prefix(port), port, proxies: false, cache: None };
    filters.push(hcm::inbound(mesh, placement, at, routes, protocol));
    filters
}

fn tcp_filters(mesh: &Mesh, placement: &Placement, protocol: Protocol, target: &Target<'_>) -> Vec<Filter> {
    let mut filters = filter::inbound_network(placement);
    let named = target.named();
    // By the service's port, where HTTP goes by the workload's: as in istiod.
    filters.extend(filter::network_policies(placement, Direction::Inbound, named.port));
    let stat = stat_pattern::filled(&mesh.config.inbound_cluster_stat_name, || named);
    filters.extend(stats::network(placement, Direction::Inbound));
    filters.extend(tcp_proxy::of_protocol(mesh, placement, protocol, target.cluster(), stat));
    filters
}
