//! A filter chain of an outbound listener in the making: what it takes, and how chains of several services share a listener.

use std::collections::BTreeSet;

use model::{Mesh, Placement, Protocol};
use wire::envoy::config::core::v3::{CidrRange, Metadata};
use wire::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};
use wire::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;

use super::chain::PLAIN_HTTP;
use crate::filter::{self, Direction};
use crate::hcm;
use crate::proto::{seconds, uint32};

/// istiod's PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT default.
pub(super) const HANDSHAKE_LIMIT: i64 = 15;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chain {
    /// Names that the client asks for; empty, or with a star among them: any.
    pub(super) server_names: Vec<String>,
    /// Addresses that the client asks for, `10.0.0.0/8` or a single one; empty: any.
    pub(super) ranges: Vec<String>,
    pub(super) serves: Serves,
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Serves {
    Http {
        route: String,
        protocol: Protocol,
        /// Only connections that look like HTTP.
        detected: bool,
        /// A request may name its host as a proxy's clients do.
        proxies: bool,
        /// Hosts are resolved as requests name them, and kept here.
        cache: Option<Box<DnsCacheConfig>>,
    },
    Bytes(Vec<Filter>),
}

impl Chain {
    pub(super) fn bytes(filters: Vec<Filter>) -> Self {
        Self { server_names: Vec::new(), ranges: Vec::new(), serves: Serves::Bytes(filters), metadata: None }
    }

    pub(super) fn http(route: String, protocol: Protocol, detected: bool) -> Self {
        let serves = Serves::Http { route, protocol, detected, proxies: false, cache: None };
        Self { server_names: Vec::new(), ranges: Vec::new(), serves, metadata: None }
    }

    /// Of HTTP, on the way to whichever host a request names.
    pub(super) fn http_by_name(route: String, protocol: Protocol, detected: bool, cache: DnsCacheConfig) -> Self {
        let serves = Serves::Http { route, protocol, detected, proxies: false, cache: Some(Box::new(cache)) };
        Self { serves, ..Self::bytes(Vec::new()) }
    }

    pub(super) fn route(&self) -> Option<&str> {
        match &self.serves {
            Serves::Http { route, .. } => Some(route),
            Serves::Bytes(_) => None,
        }
    }

    pub(super) fn is_detected(&self) -> bool {
        matches!(self.serves, Serves::Http { detected: true, .. })
    }

    pub(super) fn asks_server_name(&self) -> bool {
        !self.server_names.is_empty()
    }

    /// Whatever no other chain takes.
    fn takes_everything(&self) -> bool {
        let any_name = self.server_names.is_empty() || self.server_names.iter().any(|name| name == "*");
        any_name && self.ranges.is_empty() && !self.is_detected()
    }

    /// Envoy refuses two chains that take the same.
    fn takes_the_same(&self, other: &Self) -> bool {
        let names = |chain: &Self| {
            let mut names: Vec<_> = chain.server_names.iter().filter(|name| *name != "*").cloned().collect();
            names.sort();
            names.dedup();
            names
        };
        self.differs_in_names_only(other) && names(self) == names(other)
    }

    fn differs_in_names_only(&self, other: &Self) -> bool {
        let ranges = |chain: &Self| chain.ranges.iter().filter_map(|text| masked(text)).collect::<BTreeSet<_>>();
        self.is_detected() == other.is_detected() && ranges(self) == ranges(other)
    }

    pub(super) fn filter_chain(&self, mesh: &Mesh, placement: &Placement, at: hcm::At<'_>) -> FilterChain {
        let filters = match &self.serves {
            Serves::Bytes(filters) => filters.clone(),
            Serves::Http { route, protocol, proxies, cache, .. } => {
                let mut filters = filter::network_plugins(placement, Direction::Outbound, at.port);
                let at = hcm::At { proxies: *proxies, cache: cache.as_deref(), ..at };
                filters.push(hcm::outbound(mesh, placement, at, route, *protocol));
                filters
            }
        };
        FilterChain {
            filter_chain_match: (!self.takes_everything()).then(|| self.filter_chain_match()),
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

/// Chains that take what an earlier one takes are left out.
pub(super) fn merge(held: &mut Vec<Chain>, more: Vec<Chain>) {
    for mut chain in more {
        if chain.asks_server_name() && !chain.server_names.iter().any(|name| name == "*") {
            let same: Vec<_> = held.iter().filter(|other| other.differs_in_names_only(&chain)).cloned().collect();
            chain.server_names.retain(|name| !same.iter().any(|other| other.server_names.contains(name)));
            if chain.server_names.is_empty() {
                continue;
            }
        }
        if !held.iter().any(|other| other.takes_the_same(&chain)) {
            held.push(chain);
        }
    }
}

/// The chains of a listener and the one for the rest. `rest`: for what no chain takes.
pub(super) fn split(
    chains: &[Chain],
    make: impl Fn(&Chain) -> FilterChain,
    rest: impl Fn() -> FilterChain,
) -> (Vec<FilterChain>, Option<FilterChain>) {
    let last = chains.iter().rfind(|chain| chain.takes_everything());
    let others: Vec<_> = chains.iter().filter(|chain| !chain.takes_everything()).map(&make).collect();
    match last.map(make) {
        Some(only) if others.is_empty() => (vec![only], None),
        Some(last) => (others, Some(last)),
        None => (others, Some(rest())),
    }
}

/// `None`: no address, or the one that stands for any.
fn range(text: &str) -> Option<CidrRange> {
    let (address, length) = parsed(text)?;
    let any = address.is_unspecified() && address.is_ipv4();
    (!any).then(|| CidrRange { address_prefix: address.to_string(), prefix_len: Some(uint32(length.into())) })
}

fn masked(text: &str) -> Option<(std::net::IpAddr, u8)> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let (address, length) = parsed(text)?;
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

fn parsed(text: &str) -> Option<(std::net::IpAddr, u8)> {
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
        Chain { server_names: own(names), ranges: own(ranges), ..Chain::bytes(Vec::new()) }
    }

    #[test]
    fn what_an_earlier_chain_takes_is_left_out() {
        let mut held = vec![chain(&["a", "b"], &["10.1.0.0/8"])];
        merge(
            &mut held,
            vec![chain(&["b", "a", "*"], &["10.2.0.0/8"]), chain(&["a"], &[]), chain(&[], &[]), chain(&[], &[])],
        );
        assert_eq!(held.len(), 3);
    }

    #[test]
    fn ranges_of_users_are_read_with_care() {
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
        assert_eq!(masked("10.9.9.9/0"), Some(("0.0.0.0".parse().expect("an address"), 0)));
    }
}
