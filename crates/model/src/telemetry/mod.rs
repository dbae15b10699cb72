//! Telemetry of a workload: Telemetry objects from the root namespace down to the workload, over the mesh's default providers.
//! `translate` makes access loggers, tracers and filters from it.

mod logs;
mod metrics;
mod tracing;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::kinds::telemetry::{self as kube, WorkloadMode};
use config::labels::Labels;
use config::mesh::{ExtensionProvider, MeshConfig};
use config::meta::Object;

use crate::attachment::Attachment;

pub use logs::{AccessLogProvider, AccessLogs};
pub use metrics::{MetricOverride, ProviderMetrics};
pub use tracing::{TracingTarget, WorkloadTracing};

/// The telemetry of a workload. Providers have the names of the mesh config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct WorkloadTelemetry {
    /// As a client.
    pub client: Side,
    /// As a server.
    pub server: Side,
    pub made_from: Vec<ObjectId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Side {
    pub logs: AccessLogs,
    pub tracing: WorkloadTracing,
    /// Of providers whose metrics the proxy itself counts, by name.
    pub metrics: Vec<ProviderMetrics>,
}

type Written = Arc<Object<kube::Telemetry>>;

/// All objects by namespace, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Telemetries {
    root: Arc<str>,
    by_namespace: BTreeMap<Arc<str>, Vec<Written>>,
}

impl Telemetries {
    pub(crate) fn new<'a>(objects: impl Iterator<Item = &'a Written>, root: &str) -> Self {
        let mut by_namespace: BTreeMap<Arc<str>, Vec<Written>> = BTreeMap::new();
        for object in objects {
            by_namespace.entry(object.meta.namespace.clone()).or_default().push(object.clone());
        }
        by_namespace.values_mut().for_each(|list| list.sort_by(|a, b| a.meta.age_order(&b.meta)));
        Self { root: Arc::from(root), by_namespace }
    }

    /// `finds`: whether the mesh has the service that a provider names.
    pub(crate) fn of(
        &self,
        namespace: &str,
        labels: &Labels,
        config: &MeshConfig,
        finds: &dyn Fn(&str) -> bool,
    ) -> WorkloadTelemetry {
        let objects = self.applicable(namespace, labels);
        let providers = Providers { config, finds };
        WorkloadTelemetry {
            client: Side::new(&objects, WorkloadMode::Client, providers),
            server: Side::new(&objects, WorkloadMode::Server, providers),
            made_from: objects.iter().map(|object| id(object)).collect(),
        }
    }

    /// The namespace-wide one of the root namespace, that of the workload's namespace, then all that select the workload: later ones override.
    fn applicable(&self, namespace: &str, labels: &Labels) -> Vec<&Written> {
        let own = self.by_namespace.get(namespace).map(Vec::as_slice).unwrap_or_default();
        let wide = (*namespace != *self.root).then(|| oldest_wide(own)).flatten();
        let root = self.by_namespace.get(&self.root).and_then(|objects| oldest_wide(objects));
        let chosen = own.iter().filter(|object| attachment(object).chooses(namespace, labels));
        root.into_iter().chain(wide).chain(chosen).collect()
    }
}

impl Side {
    fn new(objects: &[&Written], mode: WorkloadMode, providers: Providers<'_>) -> Self {
        let specs: Vec<&kube::Telemetry> = objects.iter().map(|object| &object.spec).collect();
        Self {
            logs: AccessLogs::new(&specs, mode, providers),
            tracing: WorkloadTracing::new(&specs, mode, providers),
            metrics: ProviderMetrics::all(&specs, mode, providers),
        }
    }
}

#[derive(Clone, Copy)]
struct Providers<'a> {
    config: &'a MeshConfig,
    finds: &'a dyn Fn(&str) -> bool,
}

impl<'a> Providers<'a> {
    /// Case-insensitive.
    fn named(self, name: &str) -> Option<&'a ExtensionProvider> {
        self.config.extension_providers.iter().find(|provider| provider.name.eq_ignore_ascii_case(name))
    }
}

fn oldest_wide(objects: &[Written]) -> Option<&Written> {
    objects.iter().find(|object| attachment(object).is_namespace_wide())
}

fn attachment(object: &Written) -> Attachment<'_> {
    let kube::Telemetry { selector, target_ref, target_refs, .. } = &object.spec;
    Attachment::new(selector.as_ref().map(|selector| &selector.match_labels), target_refs, target_ref.as_ref())
}

fn id(object: &Written) -> ObjectId {
    let meta = &object.meta;
    ObjectId { kind: Kind::Telemetry, namespace: meta.namespace.clone(), name: meta.name.clone() }
}

/// Names as written.
fn names(providers: &[kube::ProviderRef]) -> impl Iterator<Item = &str> {
    providers.iter().map(|provider| provider.name.as_str())
}

/// An entry without a mode applies to both sides.
fn concerns(wanted: WorkloadMode, mode: WorkloadMode) -> bool {
    wanted == WorkloadMode::ClientAndServer || wanted == mode
}
