//! The order within a push: what a type refers to goes out before it. The order of the types themselves is that of
//! `TypeUrl`.

use std::time::Duration;

use crate::TypeUrl;

/// How long the news of a type waits for an earlier type that cannot be sent because the proxy does not answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// A response that is not answered for this long is counted.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);

impl TypeUrl {
    /// Others refer to it: clusters have load assignments, listeners and routes name clusters, listeners name routes.
    pub(crate) fn leads(self) -> bool {
        matches!(self, TypeUrl::Cluster | TypeUrl::Endpoints | TypeUrl::Listener)
    }

    /// It names clusters, so that none may go before it has changed.
    pub(crate) fn names_clusters(self) -> bool {
        matches!(self, TypeUrl::Listener | TypeUrl::Route)
    }

    pub(crate) fn follows(self) -> bool {
        matches!(self, TypeUrl::Endpoints | TypeUrl::Listener | TypeUrl::Route)
    }
}
