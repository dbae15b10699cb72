//! The program's own metrics, under istiod's names. Those of streams are made by `xds`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::envoy_filters;
use super::memory::{Counts, Objects};
use super::process::Process;
use crate::version;

pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) streams: Arc<xds::Metrics>,
    pub(crate) objects: Arc<Objects>,
    process: Process,
    started: Instant,
    uptime: IntGauge,
    pub(crate) services: IntGauge,
    pub(crate) virtual_services: IntGauge,
    debounce: Histogram,
    refresh: Histogram,
    refreshes: IntCounter,
    /// By `type`: what kind of change led to a refresh.
    pub(crate) triggers: IntCounterVec,
    /// By `type` and `event`: objects of Istio's kinds.
    pub(crate) config_events: IntCounterVec,
    /// By `type` and `event`: objects of Kubernetes' kinds.
    pub(crate) registry_events: IntCounterVec,
    pub(crate) keys_fetched: IntCounter,
    pub(crate) keys_failed: IntCounter,
    pub(crate) credentials_withheld: IntCounter,
    /// By `name`, `patch` and `result`: 1 where a patch of that EnvoyFilter changed something.
    patches: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: Registry) -> prometheus::Result<Metrics> {
        let info = IntGaugeVec::new(Opts::new("pilot_info", "Version of the control plane; always 1."), &["version"])?;
        info.with_label_values(&[&version::dashed()]).set(1);
        let build =
            IntGaugeVec::new(Opts::new("istio_build", "Build of the component; always 1."), &["component", "tag"])?;
        build.with_label_values(&["pilot", version::VERSION]).set(1);
        let metrics = Metrics {
            streams: xds::Metrics::new(&registry)?,
            objects: Arc::default(),
            process: Process::register(&registry)?,
            started: Instant::now(),
            uptime: IntGauge::new("istiod_uptime_seconds", "Time since the process started.")?,
            services: IntGauge::new("pilot_services", "Services that are known.")?,
            virtual_services: IntGauge::new("pilot_virt_services", "VirtualServices that are known.")?,
            debounce: histogram(
                "pilot_debounce_time",
                "Time from the first of several changes until they are used.",
                &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0],
            )?,
            refresh: histogram(
                "pilot_pushcontext_init_seconds",
                "Time to work changes into the configuration of the proxies.",
                &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0],
            )?,
            refreshes: IntCounter::new("pilot_push_context_recompute_count", "How often changes were worked in.")?,
            triggers: counters("pilot_push_triggers", "What led to a refresh.", &["type"])?,
            config_events: counters("pilot_k8s_cfg_events", "Changes of Istio objects.", &["type", "event"])?,
            registry_events: counters("pilot_k8s_reg_events", "Changes of Kubernetes objects.", &["type", "event"])?,
            keys_fetched: IntCounter::new(
                "pilot_jwks_resolver_network_fetch_success_total",
                "Fetches of an issuer's keys that succeeded.",
            )?,
            keys_failed: IntCounter::new(
                "pilot_jwks_resolver_network_fetch_fail_total",
                "Fetches of an issuer's keys that failed.",
            )?,
            credentials_withheld: IntCounter::new(
                "pilot_sds_certificate_errors_total",
                "Secrets that a proxy asked for and did not get.",
            )?,
            patches: IntGaugeVec::new(
                Opts::new("pilot_envoy_filter_status", "Whether patches of an EnvoyFilter changed anything."),
                &["name", "patch", "result"],
            )?,
            registry,
        };
        for collector in metrics.collectors() {
            metrics.registry.register(collector)?;
        }
        metrics.registry.register(Box::new(info))?;
        metrics.registry.register(Box::new(build))?;
        Ok(metrics)
    }

    fn collectors(&self) -> Vec<Box<dyn prometheus::core::Collector>> {
        vec![
            Box::new(self.uptime.clone()),
            Box::new(self.services.clone()),
            Box::new(self.virtual_services.clone()),
            Box::new(self.debounce.clone()),
            Box::new(self.refresh.clone()),
            Box::new(self.refreshes.clone()),
            Box::new(self.triggers.clone()),
            Box::new(self.config_events.clone()),
            Box::new(self.registry_events.clone()),
            Box::new(self.keys_fetched.clone()),
            Box::new(self.keys_failed.clone()),
            Box::new(self.credentials_withheld.clone()),
            Box::new(self.patches.clone()),
        ]
    }

    /// Where the CPU time goes.
    pub(crate) fn stages(&self) -> &xds::Stages {
        self.streams.stages()
    }

    pub(crate) fn debounced(&self, waited: Duration) {
        self.debounce.observe(waited.as_secs_f64());
    }

    pub(crate) fn refreshed(&self, took: Duration) {
        self.refresh.observe(took.as_secs_f64());
        self.refreshes.inc();
    }

    /// What the process holds: as the kernel says, of which objects, by stage.
    pub(crate) fn memory(&self) -> (i64, Counts, [(xds::Stage, usize); 9]) {
        self.process.observe();
        let (counts, memory) = (self.objects.counts(), self.streams.memory());
        memory.set(xds::Stage::InformerCache, counts.bytes);
        (self.process.resident(), counts, memory.parts())
    }

    /// Of several patches of one object and kind any counts.
    pub(crate) fn show_patches(&self, reach: &[views::PatchReach]) {
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
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

fn histogram(name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))
}

fn counters(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_on_the_page() {
        let metrics = Metrics::new(Registry::new()).unwrap();
        metrics.triggers.with_label_values(&["config"]).inc();
        metrics.config_events.with_label_values(&["VirtualService", "add"]).inc();
        metrics.registry_events.with_label_values(&["Services", "update"]).inc();
        metrics.debounced(Duration::from_millis(100));
        metrics.refreshed(Duration::from_millis(20));
        let page = metrics.page().unwrap();
        for line in [
            "istio_build{component=\"pilot\",tag=\"",
            "pilot_info{version=\"",
            "istiod_uptime_seconds 0",
            "pilot_services 0",
            "pilot_virt_services 0",
            "pilot_jwks_resolver_network_fetch_success_total 0",
            "pilot_jwks_resolver_network_fetch_fail_total 0",
            "pilot_sds_certificate_errors_total 0",
            "pilot_debounce_time_bucket{le=\"0.01\"} 0",
            "pilot_debounce_time_bucket{le=\"0.5\"} 1",
            "pilot_pushcontext_init_seconds_bucket{le=\"0.1\"} 1",
            "pilot_push_context_recompute_count 1",
            "pilot_push_triggers{type=\"config\"} 1",
            "pilot_k8s_cfg_events{event=\"add\",type=\"VirtualService\"} 1",
            "pilot_k8s_reg_events{event=\"update\",type=\"Services\"} 1",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_start_time_seconds ",
        ] {
            assert!(page.contains(line), "{line} is not in:\n{page}");
        }
    }
}
