//! Which filter chain of a listener has a connection. Each field narrows the chains to the most specific ones, in Envoy's order, and there is
//! no way back from a field to the one before it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use wire::envoy::config::core::v3::CidrRange;
use wire::envoy::config::listener::v3::filter_chain_match::ConnectionSourceType;
use wire::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};

use crate::address_match;
use crate::request::{Connection, Security};

const TLS_INSPECTOR: &str = "envoy.filters.listener.tls_inspector";
const HTTP_INSPECTOR: &str = "envoy.filters.listener.http_inspector";

pub(crate) struct ChosenChain<'a> {
    /// `None`: the connection is closed.
    pub(crate) chain: Option<&'a FilterChain>,
    pub(crate) is_default: bool,
    /// Unknown addresses that chains ask for.
    pub(crate) depends_on: BTreeSet<String>,
}

/// What the listener filters detect.
struct Detected<'a> {
    server_name: Option<String>,
    transport: &'static str,
    applications: Vec<String>,
    connection: &'a Connection,
}

pub(crate) fn choose<'a>(listener: &'a Listener, connection: &Connection) -> ChosenChain<'a> {
    let has = |name: &str| listener.listener_filters.iter().any(|filter| filter.name == name);
    let (transport, server_name, applications) = match &connection.security {
        Security::Tls { server_name, alpn, .. } if has(TLS_INSPECTOR) => ("tls", server_name.clone(), alpn.clone()),
        Security::Plaintext if connection.is_http && has(HTTP_INSPECTOR) => {
            ("raw_buffer", None, vec!["http/1.1".to_owned()])
        }
        _ => ("raw_buffer", None, Vec::new()),
    };
    let detected =
        Detected { server_name: server_name.map(|it| it.to_lowercase()), transport, applications, connection };
    let mut depends_on = BTreeSet::new();
    for (address, what) in
        [(connection.destination, "the destination address"), (connection.source, "the source address")]
    {
        let asked = |wanted: &FilterChainMatch| match what {
            "the destination address" => !wanted.prefix_ranges.is_empty(),
            _ => !wanted.source_prefix_ranges.is_empty() || !wanted.direct_source_prefix_ranges.is_empty(),
        };
        if address.is_none() && listener.filter_chains.iter().filter_map(|it| it.filter_chain_match.as_ref()).any(asked)
        {
            depends_on.insert(what.to_owned());
        }
    }
    let mut chains: Vec<&FilterChain> = listener.filter_chains.iter().collect();
    for rank in [
        port,
        destination,
        server_name_rank,
        transport_rank,
        application,
        direct_source,
        source_type,
        source,
        source_port,
    ] {
        chains = most_specific(chains, |wanted| rank(wanted, &detected));
    }
    match chains.first() {
        Some(chain) => ChosenChain { chain: Some(chain), is_default: false, depends_on },
        None => ChosenChain { chain: listener.default_filter_chain.as_ref(), is_default: true, depends_on },
    }
}

/// Those of the highest rank; without a rank a chain does not match.
fn most_specific(chains: Vec<&FilterChain>, rank: impl Fn(&FilterChainMatch) -> Option<usize>) -> Vec<&FilterChain> {
    let empty = FilterChainMatch::default();
    let ranked: Vec<(&FilterChain, usize)> = chains
        .into_iter()
        .filter_map(|chain| Some((chain, rank(chain.filter_chain_match.as_ref().unwrap_or(&empty))?)))
        .collect();
    let best = ranked.iter().map(|(_, rank)| *rank).max();
    ranked.into_iter().filter(|(_, rank)| Some(*rank) == best).map(|(chain, _)| chain).collect()
}

/// 0 where a chain asks for nothing.
fn exact(asks: bool, holds: bool) -> Option<usize> {
    match (asks, holds) {
        (false, _) => Some(0),
        (true, true) => Some(1),
        (true, false) => None,
    }
}

fn port(wanted: &FilterChainMatch, detected: &Detected<'_>) -> Option<usize> {
    let port = wanted.destination_port.as_ref().map(|it| it.value);
    exact(port.is_some(), port == Some(u32::from(detected.connection.port)))
}

fn destination(wanted: &FilterChainMatch, detected: &Detected<'_>) -> Option<usize> {
    longest(&wanted.prefix_ranges, detected.connection.destination)
}

fn direct_source(wanted: &FilterChainMatch, detected: &Detected<'_>) -> Option<usize> {
    longest(&wanted.direct_source_prefix_ranges, detected.connection.source)
}

fn source(wanted: &FilterChainMatch, detected: &Detected<'_>) -> Option<usize> {
    longest(&wanted.source_prefix_ranges, detected.connection.source)
}

/// One more than the length of the longest range that has the address.
fn longest(ranges: &[CidrRange], address: Option<IpAddr>) -> Option<usize> {
    if ranges.is_empty() {
        return Some(0);
    }
    let networks = ranges.iter().filter_map(address_match::network);
    networks.filter(|it| address.is_some_and(|ip| it.contains(&ip))).map(|it| usize::from(it.prefix_len()) + 1).max()
}

fn server_name_rank(wanted: &FilterChainMatch, detected: &Detected<'_>) -> Option<usize> {
    if wanted.server_names.is_empty() {
        return Some(0);
    }
    let name = detected.server_name.as_deref().unwrap_or_default();
    let rank = |pattern: &String| {
        let pattern = pattern.to_lowercase();
        match pattern.strip_prefix('*') {
            Some(end) => (name.len() > end.len() && name.ends_with(end)).then_some(end.len()),
            None => (name == pattern).then_some(usize::MAX),
        }
    };
    wanted.server_names.iter().filter_map(rank).max()
}

fn transport_rank(wanted: &FilterChainMatch, detected: &Detected<'_>) -> Option<usize> {
    exact(!wanted.transport_protocol.is_empty(), wanted.transport_protocol == detected.transport)
}

/// The protocol that the client names first counts most.
fn application(wanted: &FilterChainMatch, detected: &Detected<'_>) -> Option<usize> {
    if wanted.application_protocols.is_empty() {
        return Some(0);
    }
    let offered = detected.applications.len();
    let found = detected.applications.iter().position(|it| wanted.application_protocols.contains(it));
    found.map(|at| offered - at)
}

fn source_type(wanted: &FilterChainMatch, detected: &Detected<'_>) -> Option<usize> {
    let Connection { source, destination, .. } = detected.connection;
    let is_local = source.is_some_and(|ip| ip.is_loopback() || Some(ip) == *destination);
    match ConnectionSourceType::try_from(wanted.source_type) {
        Ok(ConnectionSourceType::SameIpOrLoopback) => exact(true, is_local),
        Ok(ConnectionSourceType::External) => exact(true, !is_local),
        _ => Some(0),
    }
}

/// The port of the client is never known.
fn source_port(wanted: &FilterChainMatch, _: &Detected<'_>) -> Option<usize> {
    exact(!wanted.source_ports.is_empty(), false)
}

/// The condition of a chain, in a few words.
pub(crate) fn describe(chain: &FilterChain) -> String {
    let empty = FilterChainMatch::default();
    let wanted = chain.filter_chain_match.as_ref().unwrap_or(&empty);
    let mut parts = Vec::new();
    parts.extend(wanted.destination_port.as_ref().map(|it| format!("port {}", it.value)));
    if !wanted.prefix_ranges.is_empty() {
        let ranges: Vec<String> =
            wanted.prefix_ranges.iter().filter_map(|it| Some(address_match::network(it)?.to_string())).collect();
        parts.push(format!("address {}", ranges.join(", ")));
    }
    if !wanted.server_names.is_empty() {
        parts.push(format!("SNI {}", wanted.server_names.join(", ")));
    }
    if !wanted.transport_protocol.is_empty() {
        parts.push(format!("transport {}", wanted.transport_protocol));
    }
    if !wanted.application_protocols.is_empty() {
        parts.push(format!("ALPN {}", wanted.application_protocols.join(", ")));
    }
    if parts.is_empty() { "it matches every connection".to_owned() } else { format!("it matches {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use wire::envoy::config::listener::v3::ListenerFilter;
    use wire::google::protobuf::UInt32Value;

    use super::*;
    use crate::request::PeerCertificate;

    fn chain(name: &str, wanted: FilterChainMatch) -> FilterChain {
        FilterChain { name: name.to_owned(), filter_chain_match: Some(wanted), ..Default::default() }
    }

    fn listener() -> Listener {
        let tls = |alpn: &[&str]| FilterChainMatch {
            transport_protocol: "tls".into(),
            application_protocols: alpn.iter().map(|it| (*it).to_owned()).collect(),
            ..Default::default()
        };
        let port = |port| FilterChainMatch { destination_port: Some(UInt32Value { value: port }), ..tls(&["istio"]) };
        let filter = |name: &str| ListenerFilter { name: name.to_owned(), ..Default::default() };
        Listener {
            filter_chains: vec![
                chain("any-tls", tls(&[])),
                chain("http", tls(&["istio-http/1.1"])),
                chain("80", port(80)),
                chain("plain", FilterChainMatch { transport_protocol: "raw_buffer".into(), ..Default::default() }),
            ],
            listener_filters: vec![filter(TLS_INSPECTOR), filter(HTTP_INSPECTOR)],
            ..Default::default()
        }
    }

    fn check(port: u16, alpn: Option<&[&str]>, want: Option<&str>) {
        let security = match alpn {
            None => Security::Plaintext,
            Some(alpn) => Security::Tls {
                server_name: None,
                alpn: alpn.iter().map(|it| (*it).to_owned()).collect(),
                certificate: PeerCertificate::None,
            },
        };
        let connection = Connection { source: None, destination: None, port, security, is_http: true };
        let listener = listener();
        assert_eq!(choose(&listener, &connection).chain.map(|it| it.name.as_str()), want);
    }

    #[test]
    fn the_first_field_decides_and_is_not_taken_back() {
        check(90, Some(&["istio-http/1.1", "istio"]), Some("http"));
        check(90, Some(&["h2"]), Some("any-tls"));
        check(90, None, Some("plain"));
        check(80, Some(&["istio"]), Some("80"));
        // Only one chain asks for port 80, and it is not for plaintext.
        check(80, None, None);
    }
}
