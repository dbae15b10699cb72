//! Metrics of the validation webhook, under istiod's names.

use prometheus::IntCounterVec;
use xds::Register;

/// Admission reviews by result. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ValidationMetrics {
    /// By `group`, `version` and `resource`.
    pub(crate) passed: IntCounterVec,
    /// By `group`, `version`, `resource` and `reason`.
    pub(crate) failed: IntCounterVec,
    /// By `status`.
    pub(crate) unreadable: IntCounterVec,
}

impl ValidationMetrics {
    pub(crate) fn register(on: &Register) -> prometheus::Result<ValidationMetrics> {
        Ok(ValidationMetrics {
            passed: on.counters(
                "galley_validation_passed",
                "admission reviews of objects that are valid",
                &["group", "version", "resource"],
            )?,
            failed: on.counters(
                "galley_validation_failed",
                "admission reviews of objects that are invalid and rejected; `reason` is always `invalid_resource`",
                &["group", "version", "resource", "reason"],
            )?,
            unreadable: on.counters(
                "galley_validation_http_error",
                "requests to the webhook that hold no AdmissionReview; `status` is the HTTP status of the response",
                &["status"],
            )?,
        })
    }
}
