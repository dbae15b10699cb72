//! Istio's stats filter, one for each metrics provider. Stock Envoy does not have it.

use model::{Extension, Placement, ProviderMetrics};
use wire::any;
use wire::envoy::config::listener::v3::{Filter, filter};
use wire::google::protobuf::Any;
use wire::stats::{MetricConfig, PluginConfig};

use super::side;
use crate::filter::Direction;
use crate::proto::duration;

pub(crate) const NAME: &str = "istio.stats";

/// The Prometheus names of the Telemetry API's metrics; custom metrics keep their names.
const PROMETHEUS: [(&str, &str); 10] = [
    ("GRPC_REQUEST_MESSAGES", "request_messages_total"),
    ("GRPC_RESPONSE_MESSAGES", "response_messages_total"),
    ("REQUEST_COUNT", "requests_total"),
    ("REQUEST_DURATION", "request_duration_milliseconds"),
    ("REQUEST_SIZE", "request_bytes"),
    ("RESPONSE_SIZE", "response_bytes"),
    ("TCP_CLOSED_CONNECTIONS", "tcp_connections_closed_total"),
    ("TCP_OPENED_CONNECTIONS", "tcp_connections_opened_total"),
    ("TCP_RECEIVED_BYTES", "tcp_received_bytes_total"),
    ("TCP_SENT_BYTES", "tcp_sent_bytes_total"),
];

/// For TCP chains.
pub(crate) fn network(placement: &Placement, direction: Direction) -> Vec<Filter> {
    let filter = |config| Filter { name: NAME.to_owned(), config_type: Some(filter::ConfigType::TypedConfig(config)) };
    configs(placement, direction).into_iter().map(filter).collect()
}

pub(crate) fn configs(placement: &Placement, direction: Direction) -> Vec<Any> {
    if placement.proxy.lacks(Extension::Stats) {
        return Vec::new();
    }
    let metrics = &side(placement, direction).metrics;
    metrics.iter().map(|metrics| any::pack(&config(placement, direction, metrics))).collect()
}

fn config(placement: &Placement, direction: Direction, metrics: &ProviderMetrics) -> PluginConfig {
    let overridden = metrics.overrides.iter().map(|(metric, change)| {
        let known = PROMETHEUS.iter().find(|(name, _)| name == metric);
        let values = change.tags.iter().filter_map(|(tag, value)| Some((tag.clone(), value.clone()?)));
        let removed = change.tags.iter().filter(|(_, value)| value.is_none());
        MetricConfig {
            name: known.map_or_else(|| metric.clone(), |(_, name)| (*name).to_owned()),
            dimensions: values.collect(),
            tags_to_remove: removed.map(|(tag, _)| tag.clone()).collect(),
            drop: change.dropped,
            ..MetricConfig::default()
        }
    });
    PluginConfig {
        // Servers and gateways do not trust the host header of unknown clients as a metric label.
        disable_host_header_fallback: direction == Direction::Inbound || placement.is_gateway(),
        tcp_reporting_duration: metrics.interval.as_ref().map(duration),
        metrics: overridden.collect(),
        ..PluginConfig::default()
    }
}
