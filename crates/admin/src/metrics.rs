//! The metrics page: what the server records, and what is computed when Prometheus scrapes: process, memory, figures of the objects.

mod object_stats;
mod process;
mod replicas;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use prometheus::{IntGauge, IntGaugeVec, TextEncoder};
use server::{Metrics, SharedState, version};
use sources::kube::WatchesHealth;

use crate::memory::ObjectCounts;
use crate::{envoy_filters, watches};
use object_stats::ObjectGauges;
pub(crate) use object_stats::{ObjectStats, has_sidecar};
use process::ProcessMetrics;
use replicas::ReplicaCollector;

/// What the metrics tell of this instance.
#[derive(Debug, Clone, Default)]
pub struct ExporterSettings {
    /// The CPU request of the container, in cores.
    pub cpu_request: Option<f64>,
    /// A memory limit besides that of the container.
    pub memory_limit: Option<i64>,
    /// Empty: the default.
    pub revision: String,
}

pub struct Exporter {
    metrics: Arc<Metrics>,
    object_gauges: ObjectGauges,
    process: ProcessMetrics,
    revision: String,
    started: Instant,
    uptime: IntGauge,
    /// By `name`, `patch` and `result`: 1 where a patch of that EnvoyFilter changed something.
    patches: IntGaugeVec,
    /// Of the snapshot with this sequence: counted again only after the objects changed.
    counted: Mutex<Option<(u64, ObjectCounts, ObjectStats)>>,
}

/// Memory of the process.
pub(crate) struct MemoryUse {
    /// As the kernel reports it.
    pub(crate) resident: i64,
    pub(crate) objects: ObjectCounts,
    pub(crate) stages: [(xds::Stage, usize); 9],
}

impl Exporter {
    pub fn new(metrics: Arc<Metrics>, settings: ExporterSettings) -> Result<Exporter> {
        Exporter::register(metrics, settings).context("cannot register metrics")
    }

    fn register(metrics: Arc<Metrics>, settings: ExporterSettings) -> prometheus::Result<Exporter> {
        let on = metrics.register();
        on.gauges("pilot_info", "always 1; `version` is that of this build", &["version"])?
            .with_label_values(&[&version::dashed()])
            .set(1);
        let build = on.gauges("istio_build", "always 1; `component` is `pilot`", &["component", "tag"])?;
        build.with_label_values(&["pilot", version::VERSION]).set(1);
        let clusters = on.gauges("istiod_managed_clusters", "clusters whose objects are read", &["cluster_type"])?;
        clusters.with_label_values(&["local"]).set(1);
        clusters.with_label_values(&["remote"]).set(0);
        Ok(Exporter {
            object_gauges: ObjectGauges::register(on, &settings.revision)?,
            process: ProcessMetrics::register(on, &settings)?,
            revision: settings.revision,
            started: Instant::now(),
            uptime: on.gauge("istiod_uptime_seconds", "time since the start of the process")?,
            patches: on.gauges(
                "pilot_envoy_filter_status",
                "1 where a patch of the EnvoyFilter changed something, else 0",
                &["name", "patch", "result"],
            )?,
            counted: Mutex::default(),
            metrics,
        })
    }

    /// Metrics of a server in a cluster.
    pub(crate) fn register_cluster(&self, health: &WatchesHealth, state: &Arc<SharedState>) -> Result<()> {
        let watches = Box::new(watches::WatchCollector::new(health.clone()));
        self.metrics.registry().register(watches).context("cannot register the metrics of the watches")?;
        let replicas = Box::new(ReplicaCollector::new(Arc::downgrade(state)));
        self.metrics.registry().register(replicas).context("cannot register the metrics of replicas")
    }

    pub(crate) fn memory(&self) -> MemoryUse {
        self.process.observe();
        let (objects, memory) = (self.counted().0, self.metrics.streams.memory());
        memory.set(xds::Stage::InformerCache, objects.bytes);
        MemoryUse { resident: self.process.resident(), objects, stages: memory.parts() }
    }

    /// 1 if any of several patches of one object and kind changed something.
    pub(crate) fn set_patches(&self, reach: &[views::PatchReach]) {
        self.patches.reset();
        for found in reach {
            let (id, kind) = (&found.patch.object, envoy_filters::label(found.apply_to));
            let gauge = self.patches.with_label_values(&[&*format!("{}/{}", id.namespace, id.name), kind, "applied"]);
            gauge.set(gauge.get().max(i64::from(found.resources > 0)));
        }
    }

    /// The page that Prometheus scrapes.
    pub(crate) fn page(&self) -> prometheus::Result<String> {
        self.uptime.set(i64::try_from(self.started.elapsed().as_secs()).unwrap_or(i64::MAX));
        self.memory();
        self.object_gauges.set(&self.counted().1);
        TextEncoder::new().encode_to_string(&self.metrics.registry().gather())
    }

    fn counted(&self) -> (ObjectCounts, ObjectStats) {
        let Some(snapshot) = self.metrics.objects.snapshot() else { return Default::default() };
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seq, counts, stats)) = *counted
            && seq == snapshot.seq
        {
            return (counts, stats);
        }
        let (counts, stats) = (ObjectCounts::of(&snapshot), ObjectStats::of(&snapshot, &self.revision));
        *counted = Some((snapshot.seq, counts, stats));
        (counts, stats)
    }
}

#[cfg(test)]
mod document;
#[cfg(test)]
mod istiod;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::Registry;
    use server::RefreshKind;

    use super::*;

    #[test]
    fn every_metric_is_on_the_page() {
        let metrics = Arc::new(Metrics::new(Registry::new()).unwrap());
        metrics.observe_debounce(Duration::from_millis(100));
        metrics.observe_refresh(Duration::from_millis(20), RefreshKind::Full);
        metrics.observe_refresh(Duration::from_millis(20), RefreshKind::EndpointsOnly);
        let page = Exporter::new(metrics, ExporterSettings::default()).unwrap().page().unwrap();
        for line in [
            "istio_build{component=\"pilot\",tag=\"",
            "pilot_info{version=\"",
            "istiod_uptime_seconds 0",
            "pilot_services 0",
            "pilot_total_xds_rejects{type=\"cds\"} 0",
            "pilot_xds_push_errors{type=\"lds\"} 0",
            "pilot_xds_clients 0",
            "endpoint_no_pod 0",
            "meltemi_expected_proxies{revision=\"default\"} 0",
            "meltemi_xds_streams_rejected_total{reason=\"memory\"} 0",
            "go_goroutines ",
            "pilot_debounce_time_bucket{le=\"300\"} 1",
            "pilot_virt_services 0",
            "pilot_jwks_resolver_network_fetch_success_total 0",
            "pilot_jwks_resolver_network_fetch_fail_total 0",
            "pilot_sds_certificate_errors_total 0",
            "pilot_debounce_time_bucket{le=\"0.01\"} 0",
            "pilot_debounce_time_bucket{le=\"0.5\"} 1",
            "pilot_pushcontext_init_seconds_bucket{le=\"0.1\"} 2",
            "pilot_push_context_recompute_count 1",
            "pilot_push_triggers{type=\"config\"} 0",
            "pilot_k8s_cfg_events{event=\"add\",type=\"VirtualService\"} 0",
            "pilot_k8s_reg_events{event=\"update\",type=\"Services\"} 0",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_start_time_seconds ",
        ] {
            assert!(page.contains(line), "{line} is not in:\n{page}");
        }
    }
}
