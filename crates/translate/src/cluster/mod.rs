//! Clusters (CDS): one per imported service port and subset, one per inbound port, and the built-in ones. Endpoints are in `endpoint`.

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

use crate::names::{BLACK_HOLE, ClusterName, INBOUND_PASSTHROUGH, PASSTHROUGH};
use crate::patch::{self, ClusterPatches};
use crate::translated::Translated;

/// The clusters of one imported service.
pub fn service_clusters(mesh: &Mesh, placement: &Placement, service: &Service) -> Vec<Translated<Cluster>> {
    let served = service.ports.iter().filter(|port| port.protocol != Protocol::Udp && !service.is_alias());
    // Dynamic DNS needs a protocol that carries the host name.
    let served = served.filter(|port| !service.is_dynamic() || port.protocol.names_its_host());
    served.flat_map(|port| outbound::clusters(mesh, placement, service, port)).collect()
}

/// The clusters of one imported service for gateways with SNI passthrough (AUTO_PASSTHROUGH).
pub fn sni_clusters(mesh: &Mesh, placement: &Placement, service: &Service) -> Vec<Translated<Cluster>> {
    if service.external || service.is_alias() || !placement.gateway().auto_passthrough {
        return Vec::new();
    }
    let served = service.ports.iter().filter(|port| port.protocol != Protocol::Udp);
    served.flat_map(|port| outbound::sni_clusters(mesh, placement, service, port)).collect()
}

/// The outbound clusters that depend on no service: built-in ones, and those that patches add.
pub fn built_in_clusters(mesh: &Mesh, placement: &Placement) -> Vec<Translated<Cluster>> {
    let mut own = vec![Translated::built_in(built_in::black_hole(mesh))];
    if !placement.is_gateway() {
        own.push(Translated::built_in(built_in::passthrough(mesh, placement)));
    }
    let patches = ClusterPatches::outbound(&placement.patches.outbound);
    let mut out: Vec<_> = own.into_iter().filter_map(|made| patches.patch(made)).collect();
    out.extend(patch::new_clusters(&placement.patches.outbound, |name| {
        is_known(placement, name) && !patches.remove(name)
    }));
    out
}

/// The inbound clusters.
pub fn inbound_clusters(mesh: &Mesh, placement: &Placement) -> Vec<Translated<Cluster>> {
    let mut out = own_clusters(mesh, placement);
    out.extend(inbound_passthrough(mesh, placement));
    out
}

/// The inbound clusters of declared ports.
pub fn own_clusters(mesh: &Mesh, placement: &Placement) -> Vec<Translated<Cluster>> {
    if placement.is_gateway() { Vec::new() } else { inbound::clusters(mesh, placement) }
}

/// The inbound cluster of all undeclared ports.
pub fn inbound_passthrough(mesh: &Mesh, placement: &Placement) -> Option<Translated<Cluster>> {
    let made = (!placement.is_gateway()).then(|| Translated::built_in(built_in::inbound_passthrough(mesh, placement)));
    ClusterPatches::inbound(&placement.patches, &[]).patch(made?)
}

/// A cluster of this name exists already.
fn is_known(placement: &Placement, name: &str) -> bool {
    let (port, subset, host) = match name.parse() {
        Ok(ClusterName::Outbound { port, subset, host } | ClusterName::Sni { port, subset, host }) => {
            (port, subset, host)
        }
        Ok(ClusterName::Inbound { .. }) => return true,
        Err(_) => return [BLACK_HOLE, PASSTHROUGH, INBOUND_PASSTHROUGH].contains(&name),
    };
    let has_subset = || {
        let rule = placement.destination_rule(&host);
        rule.is_some_and(|rule| rule.subsets.iter().any(|known| known.name == subset))
    };
    let service = placement.scope.service(&host);
    service.is_some_and(|service| service.port(port).is_some()) && (subset.is_empty() || has_subset())
}
