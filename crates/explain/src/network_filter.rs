//! The network filters of a chain: RBAC, then the HTTP connection manager or the TCP proxy.

use wire::any;
use wire::envoy::config::listener::v3::filter::ConfigType;
use wire::envoy::config::listener::v3::{Filter, FilterChain};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::envoy::extensions::filters::network::rbac::v3::Rbac;
use wire::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use wire::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use wire::google::protobuf::Any;

use crate::explanation::{Course, HopStep, RequestOutcome};
use crate::rbac;
use crate::request::Facts;
use crate::resources::ProxyResources;

/// What ends a chain.
pub(crate) enum Terminal {
    Http(Box<HttpConnectionManager>),
    /// Clusters with their share of 100 connections.
    Tcp(Vec<(f64, String)>),
}

/// `None`: all connections have ended.
pub(crate) fn pass(
    course: &mut Course,
    proxy: &ProxyResources,
    chain: &FilterChain,
    facts: &Facts<'_>,
) -> Option<Terminal> {
    for filter in &chain.filters {
        let Some(config) = config(proxy, filter) else { continue };
        if let Some(manager) = any::unpack::<HttpConnectionManager>(config) {
            return Some(Terminal::Http(Box::new(manager)));
        }
        if let Some(tcp) = any::unpack::<TcpProxy>(config) {
            return Some(Terminal::Tcp(clusters(&tcp)));
        }
        if let Some(Rbac { rules: Some(rules), .. }) = any::unpack::<Rbac>(config) {
            let decision = rbac::decide(&rules, facts);
            let verb = if decision.denied == crate::truth::Truth::No { "allowed" } else { "not allowed" };
            course.step(
                HopStep::new("authorization", &filter.name)
                    .because(format!("{verb}: {}", decision.by))
                    .of(rbac::objects(&rules)),
            );
            if course.end_if(decision.denied, RequestOutcome::Closed { reason: decision.by }).is_break() {
                return None;
            }
        }
    }
    course.end(RequestOutcome::Closed { reason: format!("the filter chain {} leads nowhere", chain.name) });
    None
}

fn clusters(tcp: &TcpProxy) -> Vec<(f64, String)> {
    match &tcp.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => vec![(100.0, name.clone())],
        Some(ClusterSpecifier::WeightedClusters(weighted)) => {
            let total: u32 = weighted.clusters.iter().map(|it| it.weight).sum();
            let percent = |weight: u32| 100.0 * f64::from(weight) / f64::from(total.max(1));
            weighted.clusters.iter().map(|it| (percent(it.weight), it.name.clone())).collect()
        }
        None => Vec::new(),
    }
}

fn config<'a>(proxy: &'a ProxyResources, filter: &'a Filter) -> Option<&'a Any> {
    match &filter.config_type {
        Some(ConfigType::ConfigDiscovery(_)) => proxy.extensions.get(&filter.name),
        _ => typed_config(filter),
    }
}

pub(crate) fn typed_config(filter: &Filter) -> Option<&Any> {
    match &filter.config_type {
        Some(ConfigType::TypedConfig(config)) => Some(config),
        _ => None,
    }
}
