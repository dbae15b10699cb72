//! Drafts of outbound filter chains: their matches, and how chains of several services share a listener.

use std::collections::BTreeSet;

use model::{Mesh, Placement, Protocol};
use wire::envoy::config::core::v3::{CidrRange, Metadata};
use wire::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};
use wire::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;

use super::chain::PLAIN_HTTP;
use crate::filter::{self, Direction, sni_forward};
use crate::hcm;
use crate::proto::{seconds, uint32};

/// istiod's PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT default.
pub(super) const HANDSHAKE_LIMIT: i64 = 15;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chain {
    /// SNI to match; empty, or containing `*`: any.
    pub(super) server_names: Vec<String>,
    /// Destination addresses to match, `10.0.0.0/8` or a single one; empty: any.
    pub(super) ranges: Vec<String>,
    pub(super) content: ChainContent,
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChainContent {
    Http {
        route: String,
        protocol: Protocol,
        /// Only connections that protocol detection found to be HTTP.
        detected: bool,
        /// HTTP forward proxy: a request may name any host.
        proxies: bool,
        /// The DNS cache, if hosts are resolved per request.
        cache: Option<Box<DnsCacheConfig>>,
    },
    Tcp(Vec<Filter>),
}

impl Chain {
    pub(super) fn tcp(filters: Vec<Filter>) -> Self {
        Self { server_names: Vec::new(), ranges: Vec::new(), content: ChainContent::Tcp(filters), metadata: None }
    }

    pub(super) fn http(route: String, protocol: Protocol, detected: bool) -> Self {
        let content = ChainContent::Http { route, protocol, detected, proxies: false, cache: None };
        Self { server_names: Vec::new(), ranges: Vec::new(), content, metadata: None }
    }

    /// HTTP to the host that a request names (dynamic DNS).
    pub(super) fn http_by_name(route: String, protocol: Protocol, detected: bool, cache: DnsCacheConfig) -> Self {
        let content = ChainContent::Http { route, protocol, detected, proxies: false, cache: Some(Box::new(cache)) };
        Self { content, ..Self::tcp(Vec::new()) }
    }

    pub(super) fn route(&self) -> Option<&str> {
        match &self.content {
            ChainContent::Http { route, .. } => Some(route),
            ChainContent::Tcp(_) => None,
        }
    }

    pub(super) fn is_detected(&self) -> bool {
        matches!(self.content, ChainContent::Http { detected: true, .. })
    }

    fn matches_sni(&self) -> bool {
        !self.server_names.is_empty()
    }

    /// The SNI chooses the chain, or the destination within it.
    pub(super) fn reads_sni(&self) -> bool {
        let forwards = |filters: &[Filter]| filters.iter().any(|filter| filter.name == sni_forward::NAME);
        self.matches_sni() || matches!(&self.content, ChainContent::Tcp(filters) if forwards(filters))
    }

    /// Matches everything.
    fn matches_everything(&self) -> bool {
        let any_name = self.server_names.is_empty() || self.server_names.iter().any(|name| name == "*");
        any_name && self.ranges.is_empty() && !self.is_detected()
    }

    /// Equal matches: Envoy rejects a listener with two such chains.
    fn has_equal_match(&self, other: &Self) -> bool {
        let names = |chain: &Self| {
            let mut names: Vec<_> = chain.server_names.iter().filter(|name| *name != "*").cloned().collect();
            names.sort();
            names.dedup();
            names
        };
        self.differs_in_names_only(other) && names(self) == names(other)
    }

    fn differs_in_names_only(&self, other: &Self) -> bool {
        let ranges = |chain: &Self| chain.ranges.iter().filter_map(|text| mask_range(text)).collect::<BTreeSet<_>>();
        self.is_detected() == other.is_detected() && ranges(self) == ranges(other)
    }

    pub(super) fn filter_chain(&self, mesh: &Mesh, placement: &Placement, at: hcm::At<'_>) -> FilterChain {
        let filters = match &self.content {
            ChainContent::Tcp(filters) => filters.clone(),
            ChainContent::Http { route, protocol, proxies, cache, .. } => {
                let mut filters = filter::network_plugins(placement, Direction::Outbound, at.port);
                let at = hcm::At { proxies: *proxies, cache: cache.as_deref(), ..at };
                filters.push(hcm::outbound(mesh, placement, at, route, *protocol));
                filters
            }
        };
        FilterChain {
            filter_chain_match: (!self.matches_everything()).then(|| self.filter_chain_match()),
            filters,
            metadata: self.metadata.clone(),
            transport_socket_connect_timeout: Some(seconds(HANDSHAKE_LIMIT)),
            ..FilterChain::default()
        }
    }

    fn filter_chain_match(&self) -> FilterChainMatch {
        let mut matched = FilterChainMatch::default();
        if self.is_detected() {
            matched.transport_protocol = "raw_buffer".into();
            matched.application_protocols = PLAIN_HTTP.map(str::to_owned).to_vec();
        }
        if !self.server_names.iter().any(|name| name == "*") {
            matched.server_names = self.server_names.clone();
            matched.server_names.sort();
            matched.server_names.dedup();
        }
        let mut ranges = self.ranges.clone();
        ranges.sort();
        matched.prefix_ranges = ranges.iter().filter_map(|text| range(text)).collect();
        matched
    }
}

/// Leaves out chains whose match equals that of an earlier one.
pub(super) fn merge(chains: &mut Vec<Chain>, more: Vec<Chain>) {
    for mut chain in more {
        if chain.matches_sni() && !chain.server_names.iter().any(|name| name == "*") {
            let same: Vec<_> = chains.iter().filter(|other| other.differs_in_names_only(&chain)).cloned().collect();
            chain.server_names.retain(|name| !same.iter().any(|other| other.server_names.contains(name)));
            if chain.server_names.is_empty() {
                continue;
            }
        }
        if !chains.iter().any(|other| other.has_equal_match(&chain)) {
            chains.push(chain);
        }
    }
}

/// The filter chains of a listener and its default chain. `rest`: builds the default chain if no chain matches everything.
pub(super) fn split(
    chains: &[Chain],
    make: impl Fn(&Chain) -> FilterChain,
    rest: impl Fn() -> FilterChain,
) -> (Vec<FilterChain>, Option<FilterChain>) {
    let last = chains.iter().rfind(|chain| chain.matches_everything());
    let others: Vec<_> = chains.iter().filter(|chain| !chain.matches_everything()).map(&make).collect();
    match last.map(make) {
        Some(only) if others.is_empty() => (vec![only], None),
        Some(last) => (others, Some(last)),
        None => (others, Some(rest())),
    }
}

/// `None`: not an address, or the wildcard.
fn range(text: &str) -> Option<CidrRange> {
    let (address, length) = parse_range(text)?;
    let any = address.is_unspecified() && address.is_ipv4();
    (!any).then(|| CidrRange { address_prefix: address.to_string(), prefix_len: Some(uint32(length.into())) })
}

fn mask_range(text: &str) -> Option<(std::net::IpAddr, u8)> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let (address, length) = parse_range(text)?;
    let masked = match address {
        IpAddr::V4(address) if address.is_unspecified() => return None,
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    };
    Some((masked, length))
}

fn parse_range(text: &str) -> Option<(std::net::IpAddr, u8)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: std::net::IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    Some((address, length.unwrap_or(most))).filter(|(_, length)| *length <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(names: &[&str], ranges: &[&str]) -> Chain {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Chain { server_names: own(names), ranges: own(ranges), ..Chain::tcp(Vec::new()) }
    }

    #[test]
    fn drops_chains_with_the_match_of_an_earlier_one() {
        let mut chains = vec![chain(&["a", "b"], &["10.1.0.0/8"])];
        merge(
            &mut chains,
            vec![chain(&["b", "a", "*"], &["10.2.0.0/8"]), chain(&["a"], &[]), chain(&[], &[]), chain(&[], &[])],
        );
        assert_eq!(chains.len(), 3);
    }

    #[test]
    fn a_server_name_belongs_to_the_first_tls_route_that_has_it() {
        let mut held = Vec::new();
        merge(&mut held, vec![chain(&["a", "b"], &[]), chain(&["b", "c"], &[]), chain(&["a"], &[])]);
        let names: Vec<_> = held.iter().map(|chain| chain.server_names.join(",")).collect();
        assert_eq!(names, ["a,b", "c"]);
    }

    #[test]
    fn parses_user_supplied_cidr_ranges() {
        for (text, want) in [
            ("10.0.0.0/8", true),
            ("10.0.0.1", true),
            ("10.0.0.0/33", false),
            ("x", false),
            ("0.0.0.0/0", false),
            ("::1/128", true),
            ("", false),
        ] {
            assert_eq!(range(text).is_some(), want, "{text}");
        }
        assert_eq!(mask_range("10.9.9.9/0"), Some(("0.0.0.0".parse().expect("an address"), 0)));
    }
}
