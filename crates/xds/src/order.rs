//! The order within a push: what a type refers to goes out before it. The order of the types themselves is that of
//! `TypeUrl`.

use std::time::Duration;

use crate::TypeUrl;

/// How long the news of a type waits for an earlier type that cannot be sent because the proxy does not answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

impl TypeUrl {
    /// Others refer to it: clusters have load assignments, listeners and routes name clusters, listeners name routes.
    pub(crate) fn leads(self) -> bool {
        matches!(self, TypeUrl::Cluster | TypeUrl::Endpoints | TypeUrl::Listener)
    }

    pub(crate) fn follows(self) -> bool {
        matches!(self, TypeUrl::Endpoints | TypeUrl::Listener | TypeUrl::Route)
    }
}
