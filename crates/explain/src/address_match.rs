//! Envoy's address ranges.

use std::net::IpAddr;

use ipnet::IpNet;
use wire::envoy::config::core::v3::CidrRange;

use crate::truth::Truth;

/// `what` names the address, for answers that depend on it.
pub(crate) fn contains(range: &CidrRange, address: Option<IpAddr>, what: &str) -> Truth {
    match (network(range), address) {
        (Some(network), _) if network.prefix_len() == 0 && address.is_none() => Truth::Yes,
        (Some(network), Some(address)) => network.contains(&address).into(),
        (Some(_), None) => Truth::unknown(what),
        (None, _) => Truth::No,
    }
}

pub(crate) fn network(range: &CidrRange) -> Option<IpNet> {
    let length = range.prefix_len.as_ref().map_or(0, |it| it.value);
    IpNet::new(range.address_prefix.parse().ok()?, u8::try_from(length).ok()?).ok()
}
