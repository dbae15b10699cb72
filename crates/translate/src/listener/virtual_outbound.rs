//! The virtualOutbound listener, to which iptables redirects all outbound traffic. It hands connections over by original destination.

use model::{Interception, Mesh, Placement};
use wire::envoy::config::core::v3::TrafficDirection;
use wire::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};

use super::outbound;
use crate::address;
use crate::filter::{Direction, tcp_proxy};
use crate::names::BLACK_HOLE;
use crate::proto::{boolean, uint32};
use crate::telemetry::{access_log, stats};

pub(super) fn listener(mesh: &Mesh, placement: &Placement) -> Listener {
    let port = mesh.outbound_port();
    let loops = FilterChain {
        name: "virtualOutbound-blackhole".into(),
        // Traffic to the listener's own port would loop.
        filter_chain_match: Some(FilterChainMatch {
            destination_port: Some(uint32(port.into())),
            ..FilterChainMatch::default()
        }),
        filters: {
            let mut filters = stats::network(placement, Direction::Outbound);
            filters.push(tcp_proxy::to_nowhere(BLACK_HOLE));
            filters
        },
        ..FilterChain::default()
    };
    let rest = FilterChain {
        name: "virtualOutbound-catchall-tcp".into(),
        filters: outbound::fallthrough(mesh, placement),
        ..FilterChain::default()
    };
    Listener {
        name: "virtualOutbound".into(),
        address: Some(address::socket(placement.wildcard(), port)),
        transparent: (placement.proxy.metadata.interception == Interception::Tproxy).then(|| boolean(true)),
        use_original_dst: Some(boolean(true)),
        filter_chains: vec![loops, rest],
        traffic_direction: TrafficDirection::Outbound.into(),
        access_log: access_log::logs(mesh, placement, Direction::Outbound, access_log::LogScope::Listener),
        max_connections_to_accept_per_socket_event: Some(uint32(1)),
        ..Listener::default()
    }
}
