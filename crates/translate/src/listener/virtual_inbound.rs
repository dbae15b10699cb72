//! The virtualInbound listener, to which iptables redirects all inbound traffic: filter chains for each declared port, and for the rest.

use config::diagnostic::ObjectId;
use model::{Interception, Mesh, Placement, Protocol};
use wire::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};

use super::chain::{self, Target};
use super::inbound::{self, DeclaredPort};
use super::inspector;
use crate::filter::{self, Direction, tcp_proxy};
use crate::names::BLACK_HOLE;
use crate::proto::{boolean, uint32};
use crate::telemetry::stats;
use crate::translated::Translated;

pub(super) const NAME: &str = "virtualInbound";

pub(super) fn listener(mesh: &Mesh, placement: &Placement) -> Translated<Listener> {
    let port = mesh.inbound_port();
    let mut chains = vec![black_hole(placement, port)];
    chains.extend(passthrough(mesh, placement));
    let declared: Vec<_> = inbound::declared_ports(mesh, placement).filter(|declared| !declared.bound).collect();
    chains.extend(declared.iter().flat_map(|declared| declared.chains(mesh, placement)));
    let transparent = placement.proxy.metadata.interception == Interception::Tproxy;
    let mut filters = vec![inspector::original_destination()];
    if transparent {
        filters.push(inspector::original_source());
    }
    filters.extend(inspector::inspectors(&chains));
    let listener = Listener {
        transparent: transparent.then(|| boolean(true)),
        listener_filters: filters,
        ..inbound::listener(mesh, placement, NAME.into(), placement.wildcard(), port, chains)
    };
    Translated::new(listener, made_from(placement, declared))
}

pub(super) fn made_from(placement: &Placement, declared: Vec<DeclaredPort>) -> Vec<ObjectId> {
    let mut made_from = [&placement.policies.made_from[..], &placement.telemetry.made_from].concat();
    made_from.extend_from_slice(&placement.mutual_tls_from);
    made_from.extend(placement.plugins.made_from());
    made_from.extend(declared.into_iter().flat_map(|declared| declared.made_from));
    made_from
}

/// Traffic to the listener's own port would loop.
fn black_hole(placement: &Placement, port: u16) -> FilterChain {
    let mut filters = filter::inbound_network(placement);
    filters.extend(stats::network(placement, Direction::Inbound));
    filters.push(tcp_proxy::to_nowhere(BLACK_HOLE));
    FilterChain {
        name: "virtualInbound-blackhole".into(),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: Some(uint32(port.into())),
            ..FilterChainMatch::default()
        }),
        filters,
        ..FilterChain::default()
    }
}

/// Undeclared ports: one set of filter chains for all, and one for each port that a PeerAuthentication names.
fn passthrough(mesh: &Mesh, placement: &Placement) -> Vec<FilterChain> {
    let declared: Vec<u16> = inbound::declared_ports(mesh, placement).map(|declared| declared.number).collect();
    let named =
        placement.modes.ports.iter().map(|(&port, &mode)| (port, mode)).filter(|(port, _)| !declared.contains(port));
    std::iter::once((0, placement.modes.rest))
        .chain(named)
        .flat_map(|(port, mode)| chain::chains(mesh, placement, port, Protocol::Auto, mode, &Target::Passthrough))
        .collect()
}
