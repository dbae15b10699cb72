//! The TCP proxy, and the MongoDB statistics filter before it.

use config::kinds::destination_rule::{
    ConsistentHash, HashKey, LbPolicy, LoadBalancerSettings, TrafficPolicy, TunnelSettings,
};
use model::{MergedDestinationRule, Mesh, Placement, Protocol};
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::extensions::filters::network::mongo_proxy::v3::MongoProxy;
use wire::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy,
    tcp_proxy::{ClusterSpecifier, TunnelingConfig},
};
use wire::envoy::r#type::v3::{
    HashPolicy,
    hash_policy::{self, PolicySpecifier},
};

use super::{Direction, network_filter};
use crate::hcm;
use crate::proto::duration;
use crate::telemetry::access_log;

const NAME: &str = "envoy.filters.network.tcp_proxy";

/// The last filter of an outbound TCP chain.
pub(crate) fn to_cluster(mesh: &Mesh, placement: &Placement, cluster: &str) -> Filter {
    let proxy = TcpProxy { idle_timeout: hcm::idle_timeout(placement), ..plain(cluster) };
    network_filter(NAME, &with_access_log(proxy, mesh, placement, Direction::Outbound))
}

/// To the black hole, without an idle timeout.
pub(crate) fn to_nowhere(cluster: &str) -> Filter {
    network_filter(NAME, &plain(cluster))
}

/// The filters of an inbound chain of a declared protocol.
/// `stat`: the statistics prefix of the mesh's pattern; `None`: the cluster name.
pub(crate) fn of_protocol(
    mesh: &Mesh,
    placement: &Placement,
    protocol: Protocol,
    cluster: &str,
    stat: Option<String>,
) -> Vec<Filter> {
    let stat_prefix = stat.unwrap_or_else(|| cluster.to_owned());
    let proxy = TcpProxy { stat_prefix, idle_timeout: hcm::idle_timeout(placement), ..plain(cluster) };
    with_statistics(protocol, &with_access_log(proxy, mesh, placement, Direction::Inbound))
}

/// The filters of a chain of a declared protocol to a service or subset, by its rule.
pub(crate) fn to_destination(
    mesh: &Mesh,
    placement: &Placement,
    protocol: Protocol,
    cluster: &str,
    stat: Option<String>,
    rule: Option<&MergedDestinationRule>,
    subset: &str,
) -> Vec<Filter> {
    let stat_prefix = stat.unwrap_or_else(|| cluster.to_owned());
    let proxy = apply_rule(TcpProxy { stat_prefix, ..plain(cluster) }, mesh, placement, rule, subset);
    with_statistics(protocol, &proxy)
}

/// To a service of the mesh by SNI. Tunnel settings of its rule are for its own clients, so they are ignored.
pub(crate) fn to_named_service(
    mesh: &Mesh,
    placement: &Placement,
    protocol: Protocol,
    cluster: &str,
    stat: Option<String>,
    rule: Option<&MergedDestinationRule>,
    subset: &str,
) -> Vec<Filter> {
    let stat_prefix = stat.unwrap_or_else(|| cluster.to_owned());
    let proxy = apply_rule(TcpProxy { stat_prefix, ..plain(cluster) }, mesh, placement, rule, subset);
    with_statistics(protocol, &TcpProxy { tunneling_config: None, ..proxy })
}

/// The statistics filter of the protocol, if there is one, then the TCP proxy.
pub(crate) fn with_statistics(protocol: Protocol, proxy: &TcpProxy) -> Vec<Filter> {
    let mut filters = Vec::new();
    if protocol == Protocol::Mongo {
        let mongo = MongoProxy { stat_prefix: proxy.stat_prefix.clone(), ..MongoProxy::default() };
        filters.push(network_filter("envoy.filters.network.mongo_proxy", &mongo));
    }
    filters.push(network_filter(NAME, proxy));
    filters
}

/// Applies a rule to the TCP proxy: idle timeout, hash policy, tunneling. `subset` empty: the whole service, or several destinations at
/// once.
pub(crate) fn apply_rule(
    proxy: TcpProxy,
    mesh: &Mesh,
    placement: &Placement,
    rule: Option<&MergedDestinationRule>,
    subset: &str,
) -> TcpProxy {
    let top = rule.and_then(|rule| rule.policy.as_deref());
    let own = rule.and_then(|rule| rule.subset(subset)).and_then(|subset| subset.traffic_policy.as_deref());
    let tcp = top.and_then(|policy| policy.connection_pool.as_ref()).and_then(|pool| pool.tcp.as_ref());
    let idle = tcp.and_then(|tcp| tcp.idle_timeout.as_ref()).map(duration);
    let balancer = |policy: Option<&TrafficPolicy>| policy.and_then(|policy| policy.load_balancer.clone());
    let sticky = balancer(own).or_else(|| balancer(top)).is_some_and(|balancer| by_source(&balancer));
    let tunnelled = if subset.is_empty() { top } else { own };
    let proxy = with_access_log(proxy, mesh, placement, Direction::Outbound);
    TcpProxy {
        idle_timeout: idle.or_else(|| hcm::idle_timeout(placement)),
        max_downstream_connection_duration: tcp.and_then(|tcp| tcp.max_connection_duration.as_ref()).map(duration),
        hash_policy: if sticky { vec![source_hash()] } else { Vec::new() },
        tunneling_config: tunnelled.and_then(|policy| policy.tunnel.as_ref()).map(tunneling_config),
        ..proxy
    }
}

fn with_access_log(proxy: TcpProxy, mesh: &Mesh, placement: &Placement, direction: Direction) -> TcpProxy {
    TcpProxy { access_log: access_log::logs(mesh, placement, direction, access_log::LogScope::Connections), ..proxy }
}

fn by_source(balancer: &LoadBalancerSettings) -> bool {
    matches!(
        &balancer.policy,
        Some(LbPolicy::ConsistentHash(ConsistentHash { key: Some(HashKey::SourceIp(true)), .. }))
    )
}

fn source_hash() -> HashPolicy {
    HashPolicy { policy_specifier: Some(PolicySpecifier::SourceIp(hash_policy::SourceIp {})) }
}

fn tunneling_config(tunnel: &TunnelSettings) -> TunnelingConfig {
    let host = &tunnel.target_host;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    TunnelingConfig {
        hostname: format!("{host}:{}", tunnel.target_port),
        use_post: tunnel.protocol == "POST",
        ..TunnelingConfig::default()
    }
}

fn plain(cluster: &str) -> TcpProxy {
    TcpProxy {
        stat_prefix: cluster.to_owned(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..TcpProxy::default()
    }
}
