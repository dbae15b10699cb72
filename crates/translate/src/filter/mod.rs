//! HTTP and network filters, one file each, and their order.

pub(crate) mod alpn;
mod ext_authz;
mod jwt;
pub(crate) mod metadata_exchange;
pub(crate) mod plugin;
mod rbac;
pub(crate) mod sni_forward;
pub(crate) mod tcp_proxy;

use std::sync::LazyLock;

use config::kinds::wasm_plugin::PluginPhase;
use model::{Authorization, Extension, Placement, Protocol};
use wire::any::{self, Packable};
use wire::envoy::config::listener::v3::{Filter, filter};
use wire::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use wire::envoy::extensions::filters::http::{cors, dynamic_forward_proxy, fault, grpc_stats, grpc_web, router};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{HttpFilter, http_filter};
use wire::google::protobuf::Any;

use crate::headers;
use crate::telemetry::stats;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Inbound,
    Outbound,
}

// In every HTTP chain: encoded once.
static FAULT: LazyLock<HttpFilter> =
    LazyLock::new(|| http_filter("envoy.filters.http.fault", any::pack(&fault::v3::HttpFault::default())));
static CORS: LazyLock<HttpFilter> =
    LazyLock::new(|| http_filter("envoy.filters.http.cors", any::pack(&cors::v3::Cors {})));
static GRPC_STATS: LazyLock<HttpFilter> = LazyLock::new(|| {
    use grpc_stats::v3::{FilterConfig, filter_config::PerMethodStatSpecifier};
    let config = FilterConfig {
        emit_filter_state: true,
        per_method_stat_specifier: Some(PerMethodStatSpecifier::StatsForAllMethods(crate::proto::boolean(false))),
        ..FilterConfig::default()
    };
    http_filter("envoy.filters.http.grpc_stats", any::pack(&config))
});

/// The HTTP filters of a chain, in order: peer metadata before policies, policies before faults, the router last. `port`: of the listener,
/// which is the workload's for inbound chains.
pub(crate) fn http(placement: &Placement, direction: Direction, protocol: Protocol, port: u16) -> Vec<HttpFilter> {
    let mut filters = Vec::new();
    if !placement.proxy.lacks(Extension::PeerMetadata) {
        filters.push(http_filter("istio.metadata_exchange", metadata_exchange::http(placement, direction)));
    }
    // Only at inbound and gateway chains: a sidecar does not authorize outbound requests.
    let guards = direction == Direction::Inbound || placement.is_gateway();
    if guards {
        filters.extend(rbac::custom_http(placement));
    }
    filters.extend(plugin::http(placement, direction, port, PluginPhase::Authn));
    if guards {
        filters.extend(jwt::filter(placement));
    }
    filters.extend(plugin::http(placement, direction, port, PluginPhase::Authz));
    if guards {
        filters.extend(rbac::local_http(placement));
    }
    filters.extend(plugin::http(placement, direction, port, PluginPhase::Stats));
    filters.extend(plugin::http(placement, direction, port, PluginPhase::UnspecifiedPhase));
    if protocol == Protocol::GrpcWeb {
        filters.push(http_filter("envoy.filters.http.grpc_web", any::pack(&grpc_web::v3::GrpcWeb {})));
    }
    filters.push(GRPC_STATS.clone());
    if direction == Direction::Outbound && !placement.proxy.lacks(Extension::Alpn) {
        filters.push(http_filter("istio.alpn", alpn::config()));
    }
    filters.extend([FAULT.clone(), CORS.clone()]);
    filters.extend(stats::configs(placement, direction).into_iter().map(|config| http_filter(stats::NAME, config)));
    let router =
        router::v3::Router { suppress_envoy_headers: headers::hides_envoy(placement), ..router::v3::Router::default() };
    filters.push(http_filter("envoy.filters.http.router", any::pack(&router)));
    filters
}

/// As in istiod the HTTP forward proxy listener sends peer metadata to every server, whatever the settings say.
pub(crate) fn exchange_with_any_peer(placement: &Placement, filters: &mut [HttpFilter]) {
    if !placement.proxy.lacks(Extension::PeerMetadata)
        && let Some(first) = filters.first_mut()
    {
        *first = http_filter("istio.metadata_exchange", metadata_exchange::to_any_peer());
    }
}

/// Resolves the host that a request names, right before the router filter.
pub(crate) fn resolve_by_name(filters: &mut Vec<HttpFilter>, cache: &DnsCacheConfig) {
    use dynamic_forward_proxy::v3::{FilterConfig, filter_config::ImplementationSpecifier};
    let config = FilterConfig {
        implementation_specifier: Some(ImplementationSpecifier::DnsCacheConfig(cache.clone())),
        ..FilterConfig::default()
    };
    let filter = http_filter("envoy.filters.http.dynamic_forward_proxy", any::pack(&config));
    filters.insert(filters.len().saturating_sub(1), filter);
}

/// The network filters before the last one of an inbound chain.
pub(crate) fn inbound_network(placement: &Placement) -> Vec<Filter> {
    if placement.proxy.lacks(Extension::MetadataExchange) {
        return Vec::new();
    }
    let (name, config) = metadata_exchange::network();
    vec![Filter { name, config_type: Some(filter::ConfigType::TypedConfig(config)) }]
}

/// The workload's authorization and network plugins of a TCP chain, before the TCP proxy.
pub(crate) fn network_policies(placement: &Placement, direction: Direction, port: u16) -> Vec<Filter> {
    network_authorization(placement, &placement.policies.authorization, direction, port)
}

/// The same with other policies than the workload's.
pub(crate) fn network_authorization(
    placement: &Placement,
    authorization: &Authorization,
    direction: Direction,
    port: u16,
) -> Vec<Filter> {
    let mut filters = rbac::custom_network(authorization);
    filters.extend(plugin::network(placement, direction, port, &[PluginPhase::Authn, PluginPhase::Authz]));
    filters.extend(rbac::local_network(authorization));
    filters.extend(plugin::network(placement, direction, port, &[PluginPhase::Stats, PluginPhase::UnspecifiedPhase]));
    filters
}

/// Network plugins of a chain without authorization.
pub(crate) fn network_plugins(placement: &Placement, direction: Direction, port: u16) -> Vec<Filter> {
    use PluginPhase::{Authn, Authz, Stats, UnspecifiedPhase};
    plugin::network(placement, direction, port, &[Authn, Authz, Stats, UnspecifiedPhase])
}

pub(crate) fn network_filter<M: Packable>(name: &str, config: &M) -> Filter {
    Filter { name: name.to_owned(), config_type: Some(filter::ConfigType::TypedConfig(any::pack(config))) }
}

fn http_filter(name: &str, config: Any) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(config)),
        ..HttpFilter::default()
    }
}
