//! Listener filters: inspectors of the first bytes, disabled for ports that do not need them.

use std::collections::BTreeMap;

use wire::any::{self, Packable};
use wire::envoy::config::listener::v3::{
    FilterChain, ListenerFilter, ListenerFilterChainMatchPredicate as Predicate, listener_filter,
    listener_filter_chain_match_predicate::{MatchSet, Rule},
};
use wire::envoy::extensions::filters::listener::http_inspector::v3::HttpInspector;
use wire::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use wire::envoy::extensions::filters::listener::original_src::v3::OriginalSrc;
use wire::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol;
use wire::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use wire::envoy::r#type::v3::Int32Range;

use super::chain::PLAIN_HTTP;
use crate::proto::uint32;

/// The packet mark of TPROXY; the agent's iptables rules match it.
const MARK: u32 = 1337;

pub(super) fn original_destination() -> ListenerFilter {
    filter("envoy.filters.listener.original_dst", &OriginalDst {}, None)
}

pub(super) fn original_source() -> ListenerFilter {
    filter("envoy.filters.listener.original_src", &OriginalSrc { mark: MARK, ..OriginalSrc::default() }, None)
}

/// For gateways behind a load balancer that sends the PROXY protocol.
pub(super) fn proxy_protocol() -> ListenerFilter {
    filter("envoy.filters.listener.proxy_protocol", &ProxyProtocol::default(), None)
}

/// For outbound listeners with protocol detection.
pub(super) fn http() -> ListenerFilter {
    filter("envoy.filters.listener.http_inspector", &HttpInspector::default(), None)
}

/// For outbound listeners that match SNI.
pub(super) fn tls() -> ListenerFilter {
    filter("envoy.filters.listener.tls_inspector", &tls_config(), None)
}

/// The inspectors that the chains of an inbound listener need, each disabled for ports that do not need it.
pub(super) fn inspectors(chains: &[FilterChain]) -> Vec<ListenerFilter> {
    let mut needs: BTreeMap<u16, Needs> = BTreeMap::new();
    for chain in chains {
        let (port, wanted) = needs_of(chain);
        let entry = needs.entry(port).or_default();
        entry.tls |= wanted.tls;
        entry.http |= wanted.http;
    }
    let mut filters = Vec::new();
    if needs.values().any(|needs| needs.tls) {
        filters.push(tls_inspector(&needs));
    }
    // After TLS: a connection that is TLS is not inspected for HTTP.
    if needs.values().any(|needs| needs.http) {
        let off: Vec<u16> = needs.iter().filter(|(_, needs)| !needs.http).map(|(&port, _)| port).collect();
        filters.push(filter("envoy.filters.listener.http_inspector", &HttpInspector::default(), on_ports(&off)));
    }
    filters
}

#[derive(Debug, Default, Clone, Copy)]
struct Needs {
    tls: bool,
    http: bool,
}

fn needs_of(chain: &FilterChain) -> (u16, Needs) {
    let matched = chain.filter_chain_match.as_ref();
    let port = matched.and_then(|m| m.destination_port).map_or(0, |port| u16::try_from(port.value).unwrap_or(0));
    let needs = Needs {
        tls: matched.is_some_and(|m| m.transport_protocol == "tls"),
        http: matched.is_some_and(|m| m.application_protocols.iter().any(|name| PLAIN_HTTP.contains(&name.as_str()))),
    };
    (port, needs)
}

/// Disabled on the ports that do not need it; if undeclared ports do not need it, enabled only on the ports that do.
fn tls_inspector(needs: &BTreeMap<u16, Needs>) -> ListenerFilter {
    let everywhere = needs.get(&0).is_some_and(|needs| needs.tls);
    let ports: Vec<u16> =
        needs.iter().filter(|&(&port, needs)| port != 0 && needs.tls != everywhere).map(|(&port, _)| port).collect();
    let disabled = match (everywhere, on_ports(&ports)) {
        (true, off) => off,
        (false, on) => on.map(|rule| Predicate { rule: Some(Rule::NotMatch(Box::new(rule))) }),
    };
    filter("envoy.filters.listener.tls_inspector", &tls_config(), disabled)
}

fn tls_config() -> TlsInspector {
    TlsInspector { initial_read_buffer_size: Some(uint32(512)), ..TlsInspector::default() }
}

fn on_ports(ports: &[u16]) -> Option<Predicate> {
    let mut rules: Vec<_> = ports
        .iter()
        .map(|&port| Rule::DestinationPortRange(Int32Range { start: port.into(), end: i32::from(port) + 1 }))
        .map(|rule| Predicate { rule: Some(rule) })
        .collect();
    match rules.len() {
        0 => None,
        1 => rules.pop(),
        _ => Some(Predicate { rule: Some(Rule::OrMatch(MatchSet { rules })) }),
    }
}

fn filter<M: Packable>(name: &str, config: &M, disabled: Option<Predicate>) -> ListenerFilter {
    ListenerFilter {
        name: name.to_owned(),
        filter_disabled: disabled,
        config_type: Some(listener_filter::ConfigType::TypedConfig(any::pack(config))),
    }
}
