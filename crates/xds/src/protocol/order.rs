//! The order within a push: a type is sent after the types that it refers to. The order of the types themselves is that of
//! `TypeUrl`.

use std::time::Duration;

use crate::TypeUrl;

/// How long changes of a type wait for an earlier type that cannot be sent because the proxy does not answer.
pub(crate) const ORDER_TIMEOUT: Duration = Duration::from_secs(1);

/// A response that is neither ACKed nor NACKed for this long is counted.
pub(crate) const ACK_OVERDUE: Duration = Duration::from_secs(30);

impl TypeUrl {
    /// Other types refer to it: clusters have load assignments, listeners and routes name clusters, listeners name routes.
    pub(crate) fn is_referred_to(self) -> bool {
        matches!(self, TypeUrl::Cluster | TypeUrl::Endpoints | TypeUrl::Listener)
    }

    /// It names clusters, so that no cluster may be removed before it has changed.
    pub(crate) fn names_clusters(self) -> bool {
        matches!(self, TypeUrl::Listener | TypeUrl::Route)
    }

    /// It refers to an earlier type.
    pub(crate) fn refers_to_earlier(self) -> bool {
        matches!(self, TypeUrl::Endpoints | TypeUrl::Listener | TypeUrl::Route)
    }
}
