//! Endpoints, the predecessor of EndpointSlices. Each subset is converted into an EndpointSlice.

use std::net::IpAddr;

use serde::Deserialize;

use super::endpoint_slice::{AddressType, EndpointSlice, SliceEndpoint, SlicePort, Target};
use crate::address::IpText;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Endpoints {
    subsets: Vec<Subset>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Subset {
    addresses: Vec<Address>,
    not_ready_addresses: Vec<Address>,
    ports: Box<[SlicePort]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    ip: IpText,
    target_ref: Option<Target>,
}

impl Endpoints {
    /// At least one slice, to distinguish an Endpoints without addresses from one that does not exist.
    pub(crate) fn slices(self, service: &str) -> Vec<EndpointSlice> {
        let subsets = if self.subsets.is_empty() { vec![Subset::default()] } else { self.subsets };
        subsets.into_iter().map(|subset| slice(service, subset)).collect()
    }
}

fn slice(service: &str, subset: Subset) -> EndpointSlice {
    let first = subset.addresses.iter().chain(&subset.not_ready_addresses).next();
    let address_type = match first {
        Some(Address { ip: IpText(IpAddr::V6(_)), .. }) => AddressType::IPv6,
        _ => AddressType::IPv4,
    };
    let ready = subset.addresses.into_iter().map(|address| endpoint(address, true));
    let not_ready = subset.not_ready_addresses.into_iter().map(|address| endpoint(address, false));
    EndpointSlice {
        service: service.into(),
        address_type,
        ports: subset.ports,
        endpoints: ready.chain(not_ready).collect(),
    }
}

fn endpoint(address: Address, ready: bool) -> SliceEndpoint {
    SliceEndpoint {
        addresses: [address.ip.0].into(),
        ready,
        serving: ready,
        terminating: false,
        target: address.target_ref,
    }
}
