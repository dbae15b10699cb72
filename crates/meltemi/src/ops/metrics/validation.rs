//! What the validation webhook was asked and said, under istiod's names.

use prometheus::IntCounterVec;
use xds::Register;

/// What API servers asked before they stored an object. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Validation {
    /// By `group`, `version` and `resource`.
    pub(crate) passed: IntCounterVec,
    /// The same, and by `reason`.
    pub(crate) failed: IntCounterVec,
    /// By `status`.
    pub(crate) unreadable: IntCounterVec,
}

impl Validation {
    pub(crate) fn register(on: &Register) -> prometheus::Result<Validation> {
        Ok(Validation {
            passed: on.counters(
                "galley_validation_passed",
                "objects that an API server asked about and may store",
                &["group", "version", "resource"],
            )?,
            failed: on.counters(
                "galley_validation_failed",
                "objects that an API server asked about and may not store; `reason` is always `invalid_resource`",
                &["group", "version", "resource", "reason"],
            )?,
            unreadable: on.counters(
                "galley_validation_http_error",
                "requests of API servers that were none; `status` is that of the answer",
                &["status"],
            )?,
        })
    }
}
