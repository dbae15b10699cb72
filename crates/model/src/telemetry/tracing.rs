//! Traces: where the spans of a workload go, how many, and with which tags.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::kinds::telemetry::{CustomTag, Telemetry, WorkloadMode};

use super::{Providers, concerns, names};
use crate::percent::Percent;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Tracing {
    /// As the mesh config says for all: tags and sampling, but nobody to send spans to.
    #[default]
    Mesh,
    Off,
    To(TraceTo),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceTo {
    pub provider: Arc<str>,
    /// `None`: the proxy's settings decide.
    pub sampling: Option<Percent>,
    /// Empty: those of the proxy's settings.
    pub custom_tags: BTreeMap<String, CustomTag>,
    /// The request's id decides whether it is sampled, so that all proxies on its way agree.
    pub samples_by_request_id: bool,
    pub istio_tags: bool,
    /// The application's own trace is not carried on.
    pub hides_context: bool,
}

impl Tracing {
    pub(super) fn new(objects: &[&Telemetry], mode: WorkloadMode, providers: Providers<'_>) -> Self {
        let entries = objects.iter().flat_map(|object| &object.tracing);
        let default = providers.config.default_providers.tracing.first();
        if default.is_none() && entries.clone().next().is_none() {
            return Self::Mesh;
        }
        let mut provider = default.map(String::as_str);
        let mut off = false;
        let mut to = TraceTo {
            provider: Arc::from(""),
            sampling: None,
            custom_tags: BTreeMap::new(),
            samples_by_request_id: true,
            istio_tags: true,
            hides_context: false,
        };
        for entry in entries.filter(|entry| concerns(entry.selector.unwrap_or_default().mode, mode)) {
            // Spans go to one place: of several providers the first counts.
            provider = names(&entry.providers).next().or(provider);
            off = entry.disable_span_reporting.unwrap_or(off);
            to.sampling = entry.random_sampling_percentage.map(Percent).or(to.sampling);
            if let Some(tags) = &entry.custom_tags {
                to.custom_tags.clone_from(tags);
            }
            to.samples_by_request_id = entry.use_request_id_for_trace_sampling.unwrap_or(to.samples_by_request_id);
            to.istio_tags = entry.enable_istio_tags.unwrap_or(to.istio_tags);
            to.hides_context = entry.disable_context_propagation.unwrap_or(to.hides_context);
        }
        match provider.and_then(|name| providers.named(name)) {
            Some(known) if !off => Self::To(TraceTo { provider: Arc::from(known.name.as_str()), ..to }),
            _ => Self::Off,
        }
    }

    /// Its spans name the proxy.
    pub fn provider(&self) -> Option<&str> {
        match self {
            Self::To(to) => Some(&to.provider),
            Self::Mesh | Self::Off => None,
        }
    }
}
