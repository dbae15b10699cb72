//! Fields that every cluster has: timeouts, circuit breakers, keepalive, metadata, the metadata-exchange filter.

use std::collections::BTreeSet;

use model::{Extension, MergedDestinationRule, Mesh, Placement, Service};
use wire::envoy::config::cluster::v3::{CircuitBreakers, Cluster, Filter, circuit_breakers::Thresholds};
use wire::envoy::config::core::v3::{BindConfig, ExtraSourceAddress, Metadata};
use wire::google::protobuf::Value;

use super::connection_pool;
use crate::address;
use crate::filter::metadata_exchange;
use crate::names::stat_name;
use crate::proto::{duration, list, metadata, object, proto_struct, text, uint32};

/// Source addresses of forwarded inbound connections: the agent's iptables rules do not redirect them again.
const INBOUND_SOURCE: &str = "127.0.0.6";
const INBOUND_SOURCE_V6: &str = "::6";

/// A cluster with the mesh's defaults.
pub(super) fn base(mesh: &Mesh, name: String) -> Cluster {
    Cluster {
        alt_stat_name: stat_name(&name),
        name,
        connect_timeout: Some(duration(&mesh.config.connect_timeout)),
        circuit_breakers: Some(unlimited_circuit_breakers()),
        upstream_connection_options: connection_pool::keepalive([mesh.config.tcp_keepalive.as_ref(), None]),
        ..Cluster::default()
    }
}

/// Circuit breakers without limits: users set limits.
fn unlimited_circuit_breakers() -> CircuitBreakers {
    let none = Some(uint32(u32::MAX));
    CircuitBreakers {
        thresholds: vec![Thresholds {
            max_connections: none,
            max_pending_requests: none,
            max_requests: none,
            max_retries: none,
            ..Thresholds::default()
        }],
        ..CircuitBreakers::default()
    }
}

/// `services: [{host, name, namespace}]` for telemetry.
pub(super) fn service_metadata<'a>(services: impl Iterator<Item = &'a Service>) -> Metadata {
    let mut hosts = BTreeSet::new();
    let entries = services.filter(|service| hosts.insert(&service.host)).map(|service| {
        object([
            ("host", text(service.host.as_str())),
            ("name", text(&service.name)),
            ("namespace", text(&service.namespace)),
        ])
    });
    metadata("istio", proto_struct([("services", list(entries.collect()))]))
}

/// Adds fields to the `istio` metadata section, which telemetry and filters read.
pub(super) fn annotate<'a>(metadata: &mut Metadata, fields: impl IntoIterator<Item = (&'a str, Value)>) {
    let section = metadata.filter_metadata.entry("istio".to_owned()).or_default();
    section.fields.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
}

/// The path of the DestinationRule that configured a cluster.
pub(super) fn rule_path(rule: &MergedDestinationRule) -> Value {
    let id = rule.id();
    text(&format!("/apis/networking.istio.io/v1/namespaces/{}/destination-rule/{}", id.namespace, id.name))
}

/// The TCP metadata exchange, on upstream connections.
pub(super) fn peer_filters(placement: &Placement) -> Vec<Filter> {
    if placement.proxy.lacks(Extension::MetadataExchange) {
        return Vec::new();
    }
    let (name, config) = metadata_exchange::network();
    vec![Filter { name, typed_config: Some(config), ..Filter::default() }]
}

/// Only the proxy's first address family: an inbound port forwards to one address.
pub(super) fn inbound_source(placement: &Placement) -> BindConfig {
    BindConfig { extra_source_addresses: Vec::new(), ..inbound_sources(placement) }
}

/// Both families for a dual-stack proxy.
pub(super) fn inbound_sources(placement: &Placement) -> BindConfig {
    let (first, extra) = match (placement.has_ipv4(), placement.has_ipv6()) {
        (true, true) => (INBOUND_SOURCE, Some(INBOUND_SOURCE_V6)),
        (true, false) => (INBOUND_SOURCE, None),
        _ => (INBOUND_SOURCE_V6, None),
    };
    BindConfig {
        source_address: Some(address::socket_address(first, 0)),
        extra_source_addresses: extra
            .map(|host| ExtraSourceAddress {
                address: Some(address::socket_address(host, 0)),
                ..ExtraSourceAddress::default()
            })
            .into_iter()
            .collect(),
        ..BindConfig::default()
    }
}
