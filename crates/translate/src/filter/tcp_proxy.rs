//! Bytes to a cluster, and what stands before them for protocols that Envoy understands.

use model::{Placement, Protocol};
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::extensions::filters::network::mongo_proxy::v3::MongoProxy;
use wire::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier};

use super::network_filter;
use crate::hcm;

const NAME: &str = "envoy.filters.network.tcp_proxy";

/// The end of a TCP chain.
pub(crate) fn to_cluster(placement: &Placement, cluster: &str) -> Filter {
    let proxy = TcpProxy { idle_timeout: hcm::idle_timeout(placement), ..plain(cluster) };
    network_filter(NAME, &proxy)
}

/// To a black hole: nothing stays idle there.
pub(crate) fn to_nowhere(cluster: &str) -> Filter {
    network_filter(NAME, &plain(cluster))
}

/// A chain of a declared protocol: statistics for those that have them, then the bytes.
/// `stat`: the mesh's own name for statistics; `None`: the cluster's.
pub(crate) fn of_protocol(
    placement: &Placement,
    protocol: Protocol,
    cluster: &str,
    stat: Option<String>,
) -> Vec<Filter> {
    let stat = stat.unwrap_or_else(|| cluster.to_owned());
    let mut filters = Vec::new();
    if protocol == Protocol::Mongo {
        let mongo = MongoProxy { stat_prefix: stat.clone(), ..MongoProxy::default() };
        filters.push(network_filter("envoy.filters.network.mongo_proxy", &mongo));
    }
    let proxy = TcpProxy { stat_prefix: stat, idle_timeout: hcm::idle_timeout(placement), ..plain(cluster) };
    filters.push(network_filter(NAME, &proxy));
    filters
}

fn plain(cluster: &str) -> TcpProxy {
    TcpProxy {
        stat_prefix: cluster.to_owned(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..TcpProxy::default()
    }
}
