//! What an API server says of an object besides its content: which generation of it this is, and the conditions in its status. Also of
//! objects that were refused.

use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its resourceVersion: grows with every change, of the status too.
    pub version: u64,
    /// Grows with every change of the spec.
    pub generation: i64,
    /// Such as `networking.istio.io/v1`.
    pub api_version: Arc<str>,
    /// Its label `istio.io/rev`. `None`: it is for every control plane.
    pub revision: Option<Arc<str>>,
    /// This generation of it is not in force: proxies would choke on it.
    pub refused: bool,
    /// `status.conditions`, as JSON. Empty: there are none.
    pub conditions: Arc<str>,
}
