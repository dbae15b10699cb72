//! Clusters: one per imported service port and subset, one per inbound port, and the built-in ones. Their endpoints are elsewhere.

mod built_in;
mod connection_pool;
mod inbound;
mod load_balancer;
mod outbound;
mod outlier;
mod policy;
mod protocol;
pub(crate) mod resolution;
mod settings;
mod tls_mode;

use model::{Mesh, Placement, Protocol, Service};
use wire::envoy::config::cluster::v3::Cluster;

use crate::made::Made;

/// The clusters of one imported service.
pub fn service_clusters(mesh: &Mesh, placement: &Placement, service: &Service) -> Vec<Made<Cluster>> {
    let served = service.ports.iter().filter(|port| port.protocol != Protocol::Udp && !service.is_alias());
    // Names that applications choose themselves: what Envoy can read them from.
    let served = served.filter(|port| !service.is_dynamic() || port.protocol.names_its_host());
    served.flat_map(|port| outbound::clusters(mesh, placement, service, port)).collect()
}

/// The clusters of one imported service behind a router that lets the mesh's mutual TLS through.
pub fn sni_clusters(mesh: &Mesh, placement: &Placement, service: &Service) -> Vec<Made<Cluster>> {
    if service.external || !placement.gateway().auto_passthrough {
        return Vec::new();
    }
    let served = service.ports.iter().filter(|port| port.protocol != Protocol::Udp);
    served.flat_map(|port| outbound::sni_clusters(mesh, placement, service, port)).collect()
}

/// The clusters that do not depend on services.
pub fn built_in_clusters(mesh: &Mesh, placement: &Placement) -> Vec<Made<Cluster>> {
    let mut out = vec![Made::built_in(built_in::black_hole(mesh))];
    if !placement.is_router() {
        out.push(Made::built_in(built_in::passthrough(mesh, placement)));
        out.push(Made::built_in(built_in::inbound_passthrough(mesh, placement)));
    }
    out
}

/// The clusters towards the proxy's own application.
pub fn inbound_clusters(mesh: &Mesh, placement: &Placement) -> Vec<Made<Cluster>> {
    if placement.is_router() { Vec::new() } else { inbound::clusters(mesh, placement) }
}
