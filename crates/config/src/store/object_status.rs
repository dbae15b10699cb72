//! The state of an object at the API server besides its content: generation and status conditions. Also of
//! rejected objects.

use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStatus {
    /// Its resourceVersion: changes with every write, of the status too.
    pub version: u64,
    /// Changes with every write of the spec.
    pub generation: i64,
    /// Such as `networking.istio.io/v1`.
    pub api_version: Arc<str>,
    /// Its label `istio.io/rev`. `None`: for every control plane.
    pub revision: Option<Arc<str>>,
    /// This generation is not in force: proxies would NACK it.
    pub rejected: bool,
    /// `status.conditions`, as JSON. Empty: none.
    pub conditions: Arc<str>,
}
