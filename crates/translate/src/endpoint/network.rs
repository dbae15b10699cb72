//! Endpoints of other networks: the gateways that lead there stand in their place, with their weight.

use std::collections::BTreeMap;

use model::{Address, Endpoint, NetworkGateway};

use super::Chosen;
use crate::locality::{Member, Via};

/// Endpoints that need no gateway first. All weights are scaled so that shares among gateways stay whole.
pub(super) fn members<'a>(chosen: Chosen<'a>, endpoints: &[&'a Endpoint]) -> Vec<Member<'a>> {
    let known = chosen.doors();
    let scale = known.scale();
    let mut members = Vec::new();
    let mut doors: BTreeMap<(String, Option<u16>), Member<'a>> = BTreeMap::new();
    for &endpoint in endpoints {
        let gateways = known.leading_to(&endpoint.network, &chosen.mesh.env.cluster_id);
        // A client that does not know its own network takes the gateway where there is one.
        let astray = chosen.placement.proxy.metadata.network.is_empty() && !endpoint.network.is_empty();
        let near = !astray && chosen.placement.is_in_network(&endpoint.network);
        if near || gateways.is_empty() {
            if endpoint.address != Address::Unknown {
                members.push(Member::itself(endpoint, scale));
            }
            continue;
        }
        let dials = |gateway: &&NetworkGateway| gateway.address.ip().is_some_and(|ip| chosen.dials(ip));
        let usable: Vec<_> = gateways.into_iter().filter(dials).collect();
        // The gateway reads where to go from the SNI, which only mutual TLS has.
        if usable.is_empty() || !chosen.takes_mtls(endpoint) {
            continue;
        }
        let count = u32::try_from(usable.len()).unwrap_or(u32::MAX);
        let share = endpoint.weight.saturating_mul(scale) / count;
        for gateway in usable {
            let order = (gateway.address.to_string(), gateway.port);
            let door = doors.entry(order).or_insert(Member { via: Via::Gateway(gateway), weight: 0 });
            door.weight = door.weight.saturating_add(share);
        }
    }
    let doors = doors.into_values().map(|door| Member { weight: door.weight.max(1), ..door });
    members.extend(doors);
    members
}
