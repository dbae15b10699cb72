//! Metrics of the injection webhook: istiod's names, and whether its ConfigMap is valid.

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};
use xds::Register;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct InjectionMetrics {
    pub(crate) requests: IntCounter,
    pub(crate) success: IntCounter,
    pub(crate) failure: IntCounter,
    pub(crate) skipped: IntCounter,
    pub(crate) time: Histogram,
    pub(crate) invalid_config: IntGauge,
    pub(crate) faults: IntCounterVec,
}

impl InjectionMetrics {
    pub(crate) fn register(on: &Register) -> prometheus::Result<InjectionMetrics> {
        Ok(InjectionMetrics {
            requests: on.counter("sidecar_injection_requests_total", "requests to the injection webhook")?,
            success: on.counter(
                "sidecar_injection_success_total",
                "reviews of pods that were answered, rejected and skipped pods included, as istiod counts",
            )?,
            failure: on.counter(
                "sidecar_injection_failure_total",
                "pods that were refused, and requests to the injection webhook that hold no AdmissionReview",
            )?,
            skipped: on.counter("sidecar_injection_skip_total", "pods that were not injected")?,
            time: on.seconds(
                "sidecar_injection_time_seconds",
                "time to answer a request to the injection webhook",
                &[0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0],
            )?,
            invalid_config: on.gauge(
                "meltemi_injection_config_invalid",
                "1 while the injector's ConfigMap is invalid and the last valid one is in use. Not in istiod",
            )?,
            faults: on.counters(
                "meltemi_injection_faults_total",
                "injected pods that an API server refuses, by what is wrong with them. Not in istiod",
                &["fault"],
            )?,
        })
    }
}
