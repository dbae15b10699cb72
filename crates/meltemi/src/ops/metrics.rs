//! The program's own metrics, under istiod's names. Those of streams are made by `xds`.

mod validation;

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::kind::Kind;
use config::store::Update;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder};
use xds::Register;

use super::census::Gauges;
use super::envoy_filters;
use super::memory::{Counts, Objects};
use super::process::Process;
use crate::version;
pub(crate) use validation::Validation;

pub(crate) struct Metrics {
    register: Register,
    pub(crate) streams: Arc<xds::Metrics>,
    pub(crate) objects: Arc<Objects>,
    census: Gauges,
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
    /// By `type`: what arrived.
    pub(crate) inbound: IntCounterVec,
    /// By `type` and `event`: objects of Istio's kinds.
    pub(crate) config_events: IntCounterVec,
    /// By `type` and `event`: objects of Kubernetes' kinds.
    pub(crate) registry_events: IntCounterVec,
    pub(crate) keys_fetched: IntCounter,
    pub(crate) keys_failed: IntCounter,
    pub(crate) credentials_withheld: IntCounter,
    pub(crate) validation: Validation,
    /// By `name`, `patch` and `result`: 1 where a patch of that EnvoyFilter changed something.
    patches: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: Registry) -> prometheus::Result<Metrics> {
        let on = Register::new(registry);
        on.gauges("pilot_info", "always 1", &["version"])?.with_label_values(&[&version::dashed()]).set(1);
        let build = on.gauges("istio_build", "always 1; `component` is `pilot`", &["component", "tag"])?;
        build.with_label_values(&["pilot", version::VERSION]).set(1);
        let clusters = on.gauges("istiod_managed_clusters", "clusters whose objects are read", &["cluster_type"])?;
        clusters.with_label_values(&["local"]).set(1);
        clusters.with_label_values(&["remote"]).set(0);
        let metrics = Metrics {
            streams: xds::Metrics::register(&on)?,
            objects: Arc::default(),
            census: Gauges::register(&on)?,
            process: Process::register(&on)?,
            started: Instant::now(),
            uptime: on.gauge("istiod_uptime_seconds", "time since the start")?,
            services: on.gauge("pilot_services", "Services and hosts of ServiceEntries")?,
            virtual_services: on.gauge("pilot_virt_services", "VirtualServices")?,
            debounce: on.seconds(
                "pilot_debounce_time",
                "from the first of several changes until they are worked in",
                &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0],
            )?,
            refresh: on.seconds(
                "pilot_pushcontext_init_seconds",
                "working changes into the configuration of all proxies",
                &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0],
            )?,
            refreshes: on.counter(
                "pilot_push_context_recompute_count",
                "how often that was done for more than endpoints. Not in istiod",
            )?,
            triggers: on.counters(
                "pilot_push_triggers",
                "changes by what they set off: `endpoint`, `service`, `config`, `secret`, `namespace`, `global`",
                &["type"],
            )?,
            inbound: on.counters(
                "pilot_inbound_updates",
                "changes by what arrived: `config`, `eds`, `svc`, `svcdelete`",
                &["type"],
            )?,
            config_events: on.counters(
                "pilot_k8s_cfg_events",
                "changes of Istio objects; `type` is the kind, `event` is `add`, `update` or `delete`",
                &["type", "event"],
            )?,
            registry_events: on.counters(
                "pilot_k8s_reg_events",
                "changes of Kubernetes objects: `Services`, `Pods`, `Nodes`, `EndpointSlice` and the others",
                &["type", "event"],
            )?,
            keys_fetched: on.counter(
                "pilot_jwks_resolver_network_fetch_success_total",
                "fetches of a token issuer's keys that succeeded",
            )?,
            keys_failed: on.counter(
                "pilot_jwks_resolver_network_fetch_fail_total",
                "fetches of a token issuer's keys that failed",
            )?,
            credentials_withheld: on.counter(
                "pilot_sds_certificate_errors_total",
                "secrets that a proxy asked for and did not get: not there, not usable, or not for it",
            )?,
            validation: Validation::register(&on)?,
            patches: on.gauges(
                "pilot_envoy_filter_status",
                "1 where a patch of the EnvoyFilter changed something, else 0",
                &["name", "patch", "result"],
            )?,
            register: on,
        };
        metrics.begin_at_zero();
        Ok(metrics)
    }

    /// Whoever draws or alerts must tell "none yet" from "not measured".
    fn begin_at_zero(&self) {
        for kind in Kind::ALL {
            let counters = if kind.is_istio() { &self.config_events } else { &self.registry_events };
            for event in ["add", "update", "delete"] {
                counters.with_label_values(&[event_type(kind), event]);
            }
            self.triggers.with_label_values(&[trigger(kind)]);
        }
        for kind in ["config", "eds", "svc", "svcdelete"] {
            self.inbound.with_label_values(&[kind]);
        }
    }

    /// All that there are, whether they have values yet or not.
    #[cfg(test)]
    fn described(&self) -> Vec<xds::Described> {
        self.register.described()
    }

    /// What the container was promised, in processors.
    pub(crate) fn requested(&self, cores: f64) {
        self.process.requested(cores);
    }

    /// Where the CPU time goes.
    pub(crate) fn stages(&self) -> &xds::Stages {
        self.streams.stages()
    }

    pub(crate) fn debounced(&self, waited: Duration) {
        self.debounce.observe(waited.as_secs_f64());
    }

    pub(crate) fn refreshed(&self, took: Duration, reach: Reach) {
        self.refresh.observe(took.as_secs_f64());
        if reach == Reach::More {
            self.refreshes.inc();
        }
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
        self.census.show(&self.objects.census());
        TextEncoder::new().encode_to_string(&self.register.registry().gather())
    }
}

/// What a refresh worked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Endpoints,
    More,
}

impl Reach {
    pub(crate) fn of(updates: &[Update]) -> Reach {
        let endpoints = |update: &Update| match update {
            Update::Put(object) => trigger(object.kind()) == "endpoint",
            Update::Delete(id) => trigger(id.kind) == "endpoint",
            Update::Notes { .. } | Update::Standing { .. } => true,
            Update::Keys { .. } | Update::MeshConfig(_) => false,
        };
        if updates.iter().all(endpoints) { Reach::Endpoints } else { Reach::More }
    }
}

/// istiod's `type` of an event: its own kinds by name, those of the registry mostly in the plural.
pub(crate) fn event_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Namespace => "Namespaces",
        Kind::Node => "Nodes",
        Kind::Pod => "Pods",
        Kind::Service => "Services",
        Kind::ServiceAccount => "ServiceAccounts",
        Kind::Secret => "Secrets",
        Kind::ConfigMap => "ConfigMaps",
        other => other.name(),
    }
}

/// istiod's word for what such a change sets off.
pub(crate) fn trigger(kind: Kind) -> &'static str {
    match kind {
        Kind::EndpointSlice | Kind::Endpoints | Kind::Pod | Kind::WorkloadEntry => "endpoint",
        Kind::Service | Kind::ServiceEntry | Kind::Node => "service",
        Kind::Secret => "secret",
        Kind::Namespace => "namespace",
        Kind::ConfigMap => "global",
        _ => "config",
    }
}

/// istiod's word for what such a change is when it arrives.
pub(crate) fn inbound(kind: Kind, event: &str) -> &'static str {
    match kind {
        Kind::EndpointSlice | Kind::Endpoints | Kind::Pod => "eds",
        Kind::Service if event == "delete" => "svcdelete",
        Kind::Service => "svc",
        _ => "config",
    }
}

#[cfg(test)]
mod document;
#[cfg(test)]
mod istiod;

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
        metrics.refreshed(Duration::from_millis(20), Reach::More);
        metrics.refreshed(Duration::from_millis(20), Reach::Endpoints);
        let page = metrics.page().unwrap();
        for line in [
            "istio_build{component=\"pilot\",tag=\"",
            "pilot_info{version=\"",
            "istiod_uptime_seconds 0",
            "pilot_services 0",
            "pilot_total_xds_rejects{type=\"cds\"} 0",
            "pilot_xds_push_errors{type=\"lds\"} 0",
            "pilot_xds_clients 0",
            "endpoint_no_pod 0",
            "meltemi_expected_proxies 0",
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
