//! The metrics that the server records, under istiod's names. Those of streams are recorded by `xds`; what is computed when Prometheus scrapes is
//! in the crate `admin`.

mod events;
mod injection;
mod objects;
mod validation;

use std::sync::Arc;
use std::time::Duration;

use config::kind::Kind;
use config::store::Update;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};
use xds::{PortBytes, Register};

pub(crate) use events::EventCounter;
use events::{event_type, trigger};
pub(crate) use injection::InjectionMetrics;
pub use objects::CurrentObjects;
pub(crate) use validation::ValidationMetrics;

pub struct Metrics {
    register: Register,
    pub streams: Arc<xds::Metrics>,
    pub objects: Arc<CurrentObjects>,
    pub(crate) services: IntGauge,
    pub(crate) virtual_services: IntGauge,
    debounce: Histogram,
    refresh: Histogram,
    refreshes: IntCounter,
    /// By `type`: the kind of change that led to a refresh.
    pub(crate) triggers: IntCounterVec,
    /// By `type`: the kind of change that was received.
    pub(crate) inbound: IntCounterVec,
    /// By `type` and `event`: objects of Istio's kinds.
    pub(crate) config_events: IntCounterVec,
    /// By `type` and `event`: objects of Kubernetes' kinds.
    pub(crate) registry_events: IntCounterVec,
    pub(crate) jwks_fetches: IntCounter,
    pub(crate) jwks_fetch_failures: IntCounter,
    pub(crate) credentials_withheld: IntCounter,
    pub(crate) panics: IntCounter,
    /// By `port` and `direction`.
    port_bytes: IntCounterVec,
    /// By `type`.
    pub(crate) nack_holds: IntCounterVec,
    pub(crate) held_resources: IntGauge,
    pub(crate) history_bytes: IntGauge,
    pub(crate) validation: ValidationMetrics,
    pub(crate) injection: InjectionMetrics,
}

const HISTORY_BYTES: &str =
    "memory of the history of resources, which `MELTEMI_HISTORY_BYTES` limits, as of its last check, every 10 s";

impl Metrics {
    pub fn new(registry: Registry) -> prometheus::Result<Metrics> {
        let register = Register::new(registry);
        let metrics = Metrics {
            streams: xds::Metrics::register(&register)?,
            objects: Arc::default(),
            services: register.gauge("pilot_services", "Services and hosts of ServiceEntries")?,
            virtual_services: register.gauge("pilot_virt_services", "VirtualServices")?,
            debounce: register.seconds(
                "pilot_debounce_time",
                "debounce of a batch of changes: from its first change until it is applied",
                &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0],
            )?,
            refresh: register.seconds(
                "pilot_pushcontext_init_seconds",
                "computing the configuration of all proxies after a batch of changes",
                &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0],
            )?,
            refreshes: register.counter(
                "pilot_push_context_recompute_count",
                "batches of changes, of more than endpoints, for which the configuration of proxies was computed. Not in istiod",
            )?,
            triggers: register.counters(
                "pilot_push_triggers",
                "changes by the kind of push that they trigger: `endpoint`, `service`, `config`, `secret`, `namespace`, `global`",
                &["type"],
            )?,
            inbound: register.counters(
                "pilot_inbound_updates",
                "changes received from the source: `config`, `eds`, `svc`, `svcdelete`",
                &["type"],
            )?,
            config_events: register.counters(
                "pilot_k8s_cfg_events",
                "changes of Istio objects; `type` is the kind, `event` is `add`, `update` or `delete`",
                &["type", "event"],
            )?,
            registry_events: register.counters(
                "pilot_k8s_reg_events",
                "changes of Kubernetes objects; `type` is the kind, mostly in the plural, `event` is `add`, `update` or `delete`",
                &["type", "event"],
            )?,
            jwks_fetches: register.counter(
                "pilot_jwks_resolver_network_fetch_success_total",
                "fetches of a token issuer's JSON Web Key Set that succeeded",
            )?,
            jwks_fetch_failures: register.counter(
                "pilot_jwks_resolver_network_fetch_fail_total",
                "fetches of a token issuer's JSON Web Key Set that failed",
            )?,
            credentials_withheld: register.counter(
                "pilot_sds_certificate_errors_total",
                "secrets that a gateway subscribed to and was not sent: missing, invalid, or not authorized",
            )?,
            panics: register.counter(
                "meltemi_panics_total",
                "internal errors: panics, each of which was caught or ended one task; the log has the source location of each",
            )?,
            port_bytes: register.counters(
                "meltemi_port_bytes_total",
                "bytes on the connections of a port, with TLS and HTTP as they are on the wire; `port` is `grpc`, `secureGRPC`, `http`, `monitoring` or `https`, as in the flag \
                 that sets its address, `direction` is `received` or `sent`",
                &["port", "direction"],
            )?,
            nack_holds: register.counters(
                "meltemi_nack_holds_total",
                "times that content of a resource was held back because proxies rejected it: `cds`, `lds`, `rds`, `ecds`",
                &["type"],
            )?,
            history_bytes: register.gauge("meltemi_history_bytes", HISTORY_BYTES)?,
            held_resources: register.gauge(
                "meltemi_held_resources",
                "resources whose newest content is held back at present because proxies reject it, counted for each proxy or class of proxies",
            )?,
            validation: ValidationMetrics::register(&register)?,
            injection: InjectionMetrics::register(&register)?,
            register,
        };
        metrics.start_at_zero();
        Ok(metrics)
    }

    /// Dashboards and alerts must tell "none yet" from "not measured".
    fn start_at_zero(&self) {
        for kind in Kind::ALL {
            let counters = if kind.is_istio() { &self.config_events } else { &self.registry_events };
            for event in ["add", "update", "delete"] {
                counters.with_label_values(&[event_type(kind), event]);
            }
            self.triggers.with_label_values(&[trigger(kind)]);
        }
        for kind in views::HELD_KINDS.iter() {
            self.nack_holds.with_label_values(&[kind.label()]);
        }
        for kind in ["config", "eds", "svc", "svcdelete"] {
            self.inbound.with_label_values(&[kind]);
        }
    }

    /// Where more metrics are registered.
    pub fn register(&self) -> &Register {
        &self.register
    }

    pub fn registry(&self) -> &Registry {
        self.register.registry()
    }

    /// The counters of a port, by the flag that sets its address.
    pub(crate) fn port_bytes(&self, flag: &str) -> PortBytes {
        let port = flag.trim_start_matches("--").trim_end_matches("Addr");
        let counter = |direction| self.port_bytes.with_label_values(&[port, direction]);
        PortBytes { received: counter("received"), sent: counter("sent") }
    }

    /// CPU time by stage of a push.
    pub fn stages(&self) -> &xds::Stages {
        self.streams.stages()
    }

    pub fn observe_debounce(&self, waited: Duration) {
        self.debounce.observe(waited.as_secs_f64());
    }

    pub fn observe_refresh(&self, took: Duration, kind: RefreshKind) {
        self.refresh.observe(took.as_secs_f64());
        if kind == RefreshKind::Full {
            self.refreshes.inc();
        }
    }
}

/// What a batch of changes concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshKind {
    EndpointsOnly,
    Full,
}

impl RefreshKind {
    pub(crate) fn of(updates: &[Update]) -> RefreshKind {
        let endpoints = |update: &Update| match update {
            Update::Put(object) => trigger(object.kind()) == "endpoint",
            Update::Delete(id) => trigger(id.kind) == "endpoint",
            Update::Diagnostics { .. } | Update::ObjectStatus { .. } => true,
            Update::Keys { .. } | Update::MeshConfig(_) => false,
        };
        if updates.iter().all(endpoints) { RefreshKind::EndpointsOnly } else { RefreshKind::Full }
    }
}
