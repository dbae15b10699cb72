//! Bytes to a cluster, and what stands before them for protocols that Envoy understands.

use model::{Placement, Protocol};
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::extensions::filters::network::mongo_proxy::v3::MongoProxy;
use wire::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier};

use super::network_filter;
use crate::hcm;

/// The end of a TCP chain.
pub(crate) fn to_cluster(placement: &Placement, cluster: &str) -> Filter {
    let proxy = TcpProxy { idle_timeout: hcm::idle_timeout(placement), ..plain(cluster) };
    network_filter("envoy.filters.network.tcp_proxy", &proxy)
}

/// To a black hole: nothing stays idle there.
pub(crate) fn to_nowhere(cluster: &str) -> Filter {
    network_filter("envoy.filters.network.tcp_proxy", &plain(cluster))
}

/// A chain of a declared protocol: statistics for those that have them, then the bytes.
pub(crate) fn of_protocol(placement: &Placement, protocol: Protocol, cluster: &str) -> Vec<Filter> {
    let mut filters = Vec::new();
    if protocol == Protocol::Mongo {
        let mongo = MongoProxy { stat_prefix: cluster.to_owned(), ..MongoProxy::default() };
        filters.push(network_filter("envoy.filters.network.mongo_proxy", &mongo));
    }
    filters.push(to_cluster(placement, cluster));
    filters
}

fn plain(cluster: &str) -> TcpProxy {
    TcpProxy {
        stat_prefix: cluster.to_owned(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..TcpProxy::default()
    }
}
