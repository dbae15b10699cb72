//! Tracing: the provider of a workload's spans, sampling and tags.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::kinds::telemetry::{CustomTag, Telemetry, WorkloadMode};

use super::{Providers, concerns, names};
use crate::percent::Percentage;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum WorkloadTracing {
    /// The mesh config's tags and sampling, without a provider.
    #[default]
    Mesh,
    Off,
    To(TracingTarget),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TracingTarget {
    pub provider: Arc<str>,
    /// `None`: from the proxy's settings.
    pub sampling: Option<Percentage>,
    /// Empty: those of the proxy's settings.
    pub custom_tags: BTreeMap<String, CustomTag>,
    /// The request id decides the sampling, so that all proxies on the path agree.
    pub samples_by_request_id: bool,
    pub istio_tags: bool,
    /// The trace context of the application is not propagated.
    pub disables_context_propagation: bool,
}

impl WorkloadTracing {
    pub(super) fn new(objects: &[&Telemetry], mode: WorkloadMode, providers: Providers<'_>) -> Self {
        let entries = objects.iter().flat_map(|object| &object.tracing);
        let default = providers.config.default_providers.tracing.first();
        if default.is_none() && entries.clone().next().is_none() {
            return Self::Mesh;
        }
        let mut provider = default.map(String::as_str);
        let mut off = false;
        let mut to = TracingTarget {
            provider: Arc::from(""),
            sampling: None,
            custom_tags: BTreeMap::new(),
            samples_by_request_id: true,
            istio_tags: true,
            disables_context_propagation: false,
        };
        for entry in entries.filter(|entry| concerns(entry.selector.unwrap_or_default().mode, mode)) {
            // Only one provider is supported: the first counts.
            provider = names(&entry.providers).next().or(provider);
            off = entry.disable_span_reporting.unwrap_or(off);
            to.sampling = entry.random_sampling_percentage.map(Percentage).or(to.sampling);
            if let Some(tags) = &entry.custom_tags {
                to.custom_tags.clone_from(tags);
            }
            to.samples_by_request_id = entry.use_request_id_for_trace_sampling.unwrap_or(to.samples_by_request_id);
            to.istio_tags = entry.enable_istio_tags.unwrap_or(to.istio_tags);
            to.disables_context_propagation =
                entry.disable_context_propagation.unwrap_or(to.disables_context_propagation);
        }
        match provider.and_then(|name| providers.named(name)) {
            Some(known) if !off => Self::To(TracingTarget { provider: Arc::from(known.name.as_str()), ..to }),
            _ => Self::Off,
        }
    }

    /// The provider, in whose spans the proxy has a name.
    pub fn provider(&self) -> Option<&str> {
        match self {
            Self::To(to) => Some(&to.provider),
            Self::Mesh | Self::Off => None,
        }
    }
}
