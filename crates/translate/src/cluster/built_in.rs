//! Clusters that every proxy has: the black hole and passthrough.

use model::{Mesh, Placement};
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType, LbPolicy},
};

use super::{protocol, settings};
use crate::names::{BLACK_HOLE, INBOUND_PASSTHROUGH, PASSTHROUGH, stat_name};
use crate::proto::duration;

/// Static and empty: connections fail at once.
pub(super) fn black_hole(mesh: &Mesh) -> Cluster {
    Cluster {
        name: BLACK_HOLE.into(),
        alt_stat_name: stat_name(BLACK_HOLE),
        connect_timeout: Some(duration(&mesh.config.connect_timeout)),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        ..Cluster::default()
    }
}

pub(super) fn passthrough(mesh: &Mesh, placement: &Placement) -> Cluster {
    Cluster { filters: settings::peer_filters(placement), ..original(mesh, placement, PASSTHROUGH) }
}

pub(super) fn inbound_passthrough(mesh: &Mesh, placement: &Placement) -> Cluster {
    Cluster {
        // As in istiod the statistics name is that of the outbound one.
        alt_stat_name: stat_name(PASSTHROUGH),
        upstream_bind_config: Some(settings::inbound_sources(placement)),
        ..original(mesh, placement, INBOUND_PASSTHROUGH)
    }
}

fn original(mesh: &Mesh, placement: &Placement, name: &str) -> Cluster {
    Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into())),
        lb_policy: LbPolicy::ClusterProvided.into(),
        typed_extension_protocol_options: protocol::passthrough(placement),
        ..settings::base(mesh, name.to_owned())
    }
}
