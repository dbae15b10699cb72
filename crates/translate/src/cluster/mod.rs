//! Clusters: one per imported service port, one per inbound port, and the built-in ones. Their endpoints are elsewhere.

mod built_in;
mod inbound;
mod outbound;
mod protocol;
mod settings;

use model::{Mesh, Placement, Protocol};
use wire::envoy::config::cluster::v3::Cluster;

use crate::made::Made;

/// All clusters of a proxy.
pub fn clusters(mesh: &Mesh, placement: &Placement) -> Vec<Made<Cluster>> {
    let mut out = Vec::new();
    for service in placement.scope.services.iter().filter(|service| !service.is_alias()) {
        for port in service.ports.iter().filter(|port| port.protocol != Protocol::Udp) {
            out.push(outbound::cluster(mesh, placement, service, port));
        }
    }
    out.push(Made::built_in(built_in::black_hole(mesh)));
    if !placement.is_router() {
        out.push(Made::built_in(built_in::passthrough(mesh, placement)));
        out.extend(inbound::clusters(mesh, placement));
        out.push(Made::built_in(built_in::inbound_passthrough(mesh, placement)));
    }
    out
}
