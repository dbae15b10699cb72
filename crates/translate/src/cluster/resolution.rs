//! Service discovery of a cluster, by the resolution of its service.

use model::{ConnectStrategy, Mesh, Placement, Port, Resolution, Service, TargetPort};
use wire::any;
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{
        ClusterDiscoveryType, CustomClusterType, DiscoveryType, DnsLookupFamily, EdsClusterConfig, LbConfig, LbPolicy,
        OriginalDstLbConfig,
    },
};
use wire::envoy::config::core::v3::TypedExtensionConfig;
use wire::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use wire::envoy::extensions::clusters::dynamic_forward_proxy::v3::{
    ClusterConfig, cluster_config::ClusterImplementationSpecifier,
};
use wire::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use wire::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use wire::google::protobuf::Duration;

use crate::listener::source;
use crate::proto::{duration, uint32};

/// Spreads the DNS queries of proxies.
const DNS_JITTER: Duration = Duration { seconds: 0, nanos: 100_000_000 };

/// Original destination: the address that the application connected to. Not for gateways, which choose themselves.
pub(super) fn is_original(placement: &Placement, service: &Service) -> bool {
    service.is_headless() && !placement.is_gateway()
}

pub(super) fn to_original(cluster: &mut Cluster) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
    cluster.lb_policy = LbPolicy::ClusterProvided.into();
}

pub(super) fn use_eds(cluster: &mut Cluster) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    cluster.eds_cluster_config =
        Some(EdsClusterConfig { eds_config: Some(source::ads()), service_name: cluster.name.clone() });
}

/// NONE with a target port: the original address with another port.
pub(super) fn override_port(cluster: &mut Cluster, service: &Service, port: &Port) {
    if let TargetPort::Number(target) = port.target
        && !service.is_kubernetes()
        && service.is_headless()
    {
        cluster.lb_config = Some(LbConfig::OriginalDstLbConfig(OriginalDstLbConfig {
            upstream_port_override: Some(uint32(target.into())),
            ..OriginalDstLbConfig::default()
        }));
    }
}

/// DNS: host names, embedded in the cluster.
pub(super) fn to_names(
    cluster: &mut Cluster,
    mesh: &Mesh,
    placement: &Placement,
    service: &Service,
    endpoints: Vec<LocalityLbEndpoints>,
) {
    let each = service.resolution == Resolution::Dns && service.connect_strategy == ConnectStrategy::Default;
    let kind = if each { DiscoveryType::StrictDns } else { DiscoveryType::LogicalDns };
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(kind.into()));
    use_dns(cluster, mesh, placement, service);
    cluster.load_assignment = Some(ClusterLoadAssignment {
        cluster_name: cluster.name.clone(),
        endpoints,
        ..ClusterLoadAssignment::default()
    });
}

#[allow(deprecated)] // DNS settings of the cluster: istiod sends them there.
pub(super) fn use_dns(cluster: &mut Cluster, mesh: &Mesh, placement: &Placement, service: &Service) {
    cluster.dns_lookup_family = match service.connect_strategy {
        ConnectStrategy::Default => lookup_family(placement),
        ConnectStrategy::Race => DnsLookupFamily::All,
    }
    .into();
    cluster.dns_refresh_rate = Some(duration(&mesh.config.dns_refresh_rate));
    cluster.dns_jitter = Some(DNS_JITTER);
    cluster.respect_dns_ttl = true;
    cluster.typed_dns_resolver_config = Some(TypedExtensionConfig {
        name: "envoy.network.dns_resolver.cares".into(),
        typed_config: Some(any::pack(&CaresDnsResolverConfig {
            udp_max_queries: Some(uint32(100)),
            ..CaresDnsResolverConfig::default()
        })),
    });
}

fn lookup_family(placement: &Placement) -> DnsLookupFamily {
    // As in istiod a dual-stack proxy queries its first family only.
    if placement.has_ipv4() { DnsLookupFamily::V4Only } else { DnsLookupFamily::V6Only }
}

/// Dynamic DNS: the host that the request names.
pub(super) fn to_dynamic_dns(cluster: &mut Cluster, service: &Service) {
    let config = ClusterConfig {
        cluster_implementation_specifier: Some(ClusterImplementationSpecifier::DnsCacheConfig(dns_cache(service))),
        ..ClusterConfig::default()
    };
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
        name: "envoy.clusters.dynamic_forward_proxy".into(),
        typed_config: Some(any::pack(&config)),
    }));
    cluster.lb_policy = LbPolicy::ClusterProvided.into();
}

/// Envoy rejects host names without verification unless this is set.
pub(super) fn allow_unverified_names(cluster: &mut Cluster, service: &Service) {
    let config = ClusterConfig {
        cluster_implementation_specifier: Some(ClusterImplementationSpecifier::DnsCacheConfig(dns_cache(service))),
        allow_insecure_cluster_options: true,
        ..ClusterConfig::default()
    };
    if let Some(ClusterDiscoveryType::ClusterType(kind)) = &mut cluster.cluster_discovery_type {
        kind.typed_config = Some(any::pack(&config));
    }
}

/// Listener and cluster share the DNS cache of this name.
pub(crate) fn dns_cache(service: &Service) -> DnsCacheConfig {
    DnsCacheConfig {
        name: format!("{}_dfp_dns_cache", service.host),
        dns_lookup_family: DnsLookupFamily::V4Only.into(),
        ..DnsCacheConfig::default()
    }
}
