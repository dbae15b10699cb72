//! Multi-network endpoints: endpoints of another network are replaced by its gateways, which carry their weight.

use std::collections::BTreeMap;

use model::{Endpoint, EndpointAddress, NetworkGateway};

use super::EndpointSelection;
use crate::locality::{Member, Target};

/// Directly reachable endpoints first. Weights are scaled so that the shares of gateways are integers.
pub(super) fn members<'a>(selection: EndpointSelection<'a>, endpoints: &[&'a Endpoint]) -> Vec<Member<'a>> {
    let all = selection.network_gateways();
    let scale = all.scale();
    let mut members = Vec::new();
    let mut network_gateways: BTreeMap<(String, Option<u16>), Member<'a>> = BTreeMap::new();
    for &endpoint in endpoints {
        let gateways = all.for_network(&endpoint.network, &selection.mesh.env.cluster_id);
        // A client without a network uses the gateway if there is one.
        let without_network = selection.placement.proxy.metadata.network.is_empty() && !endpoint.network.is_empty();
        let near = !without_network && selection.placement.is_in_network(&endpoint.network);
        if near || gateways.is_empty() {
            if endpoint.address != EndpointAddress::Unknown {
                members.push(Member::direct(endpoint, scale));
            }
            continue;
        }
        let can_reach = |gateway: &&NetworkGateway| gateway.address.ip().is_some_and(|ip| selection.can_reach(ip));
        let usable: Vec<_> = gateways.into_iter().filter(can_reach).collect();
        // The gateway routes by SNI, so the endpoint must accept mutual TLS.
        if usable.is_empty() || !selection.accepts_mtls(endpoint) {
            continue;
        }
        let count = u32::try_from(usable.len()).unwrap_or(u32::MAX);
        let share = endpoint.weight.saturating_mul(scale) / count;
        for gateway in usable {
            let order = (gateway.address.to_string(), gateway.port);
            let member =
                network_gateways.entry(order).or_insert(Member { target: Target::Gateway(gateway), weight: 0 });
            member.weight = member.weight.saturating_add(share);
        }
    }
    let network_gateways =
        network_gateways.into_values().map(|member| Member { weight: member.weight.max(1), ..member });
    members.extend(network_gateways);
    members
}
