//! Metrics that the proxy's stats filter counts: which ones, and overrides of their tags.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::duration::Duration;
use config::kinds::telemetry::{
    self as kube, IstioMetric, MetricMatch, MetricsOverrides, TagOperation, Telemetry, WorkloadMode,
};
use config::mesh::ProviderKind;

use super::{Providers, concerns, names};

/// The metrics of one provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProviderMetrics {
    pub provider: Arc<str>,
    /// The reporting interval of TCP metrics; `None`: the proxy's default.
    pub interval: Option<Duration>,
    /// By the metric's name in the API.
    pub overrides: BTreeMap<String, MetricOverride>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct MetricOverride {
    pub dropped: bool,
    /// A CEL expression for each tag; `None`: the tag is removed.
    pub tags: BTreeMap<String, Option<String>>,
}

/// The state of a provider while the objects are merged.
#[derive(Default)]
struct MetricsMerge {
    interval: Option<Duration>,
    /// All its metrics are disabled, and no later override touched one of them.
    off: bool,
    overrides: BTreeMap<String, MetricOverride>,
}

impl ProviderMetrics {
    pub(super) fn all(objects: &[&Telemetry], mode: WorkloadMode, providers: Providers<'_>) -> Vec<Self> {
        let entries: Vec<&kube::TelemetryMetrics> = objects.iter().flat_map(|object| &object.metrics).collect();
        let default: Vec<&str> = providers.config.default_providers.metrics.iter().map(String::as_str).collect();
        drafts(&entries, &default, mode)
            .into_iter()
            .filter(|(_, draft)| !draft.off)
            .filter_map(|(name, draft)| {
                let known = providers.named(name)?;
                let counted = matches!(known.provider, Some(ProviderKind::Prometheus(_)));
                counted.then(|| Self {
                    provider: Arc::from(known.name.as_str()),
                    interval: draft.interval,
                    overrides: draft.overrides,
                })
            })
            .collect()
    }
}

/// The last entry that names providers decides which count; one without providers applies to those before it.
fn drafts<'a>(
    entries: &[&'a kube::TelemetryMetrics],
    default: &[&'a str],
    mode: WorkloadMode,
) -> BTreeMap<&'a str, MetricsMerge> {
    if entries.is_empty() {
        return default.iter().map(|name| (*name, MetricsMerge::default())).collect();
    }
    let last = entries.iter().rev().find(|entry| !entry.providers.is_empty());
    let counting: BTreeSet<&str> =
        last.map_or_else(|| default.iter().copied().collect(), |entry| names(&entry.providers).collect());
    let mut drafts: BTreeMap<&str, MetricsMerge> = BTreeMap::new();
    let mut before: Vec<&str> = default.to_vec();
    for entry in entries {
        if !entry.providers.is_empty() {
            before = names(&entry.providers).collect();
        }
        for name in before.iter().filter(|name| counting.contains(**name)) {
            let draft = drafts.entry(*name).or_default();
            draft.interval = entry.reporting_interval.or(draft.interval);
            for wanted in &entry.overrides {
                draft.apply(wanted, mode);
            }
        }
    }
    drafts
}

impl MetricsMerge {
    fn apply(&mut self, wanted: &MetricsOverrides, mode: WorkloadMode) {
        let selector = wanted.selector.clone().unwrap_or_default();
        if !concerns(selector.mode, mode) {
            return;
        }
        let all = matches!(selector.metric, None | Some(MetricMatch::Istio(IstioMetric::AllMetrics)));
        self.off = all && wanted.disabled == Some(true);
        if self.off {
            return;
        }
        for metric in metrics(selector.metric.as_ref()) {
            let entry = self.overrides.entry(metric.to_owned()).or_default();
            entry.dropped = wanted.disabled.unwrap_or(entry.dropped);
            for (tag, change) in &wanted.tag_overrides {
                let value = (change.operation == TagOperation::Upsert).then(|| change.value.clone());
                entry.tags.insert(tag.clone(), value);
            }
        }
    }
}

fn metrics(selected: Option<&MetricMatch>) -> Vec<&str> {
    match selected {
        None | Some(MetricMatch::Istio(IstioMetric::AllMetrics)) => EVERY.map(|(_, name)| name).to_vec(),
        Some(MetricMatch::Istio(metric)) => {
            EVERY.iter().filter(|(known, _)| known == metric).map(|(_, name)| *name).collect()
        }
        Some(MetricMatch::Custom(name)) => vec![name],
    }
}

const EVERY: [(IstioMetric, &str); 10] = [
    (IstioMetric::RequestCount, "REQUEST_COUNT"),
    (IstioMetric::RequestDuration, "REQUEST_DURATION"),
    (IstioMetric::RequestSize, "REQUEST_SIZE"),
    (IstioMetric::ResponseSize, "RESPONSE_SIZE"),
    (IstioMetric::TcpOpenedConnections, "TCP_OPENED_CONNECTIONS"),
    (IstioMetric::TcpClosedConnections, "TCP_CLOSED_CONNECTIONS"),
    (IstioMetric::TcpSentBytes, "TCP_SENT_BYTES"),
    (IstioMetric::TcpReceivedBytes, "TCP_RECEIVED_BYTES"),
    (IstioMetric::GrpcRequestMessages, "GRPC_REQUEST_MESSAGES"),
    (IstioMetric::GrpcResponseMessages, "GRPC_RESPONSE_MESSAGES"),
];
