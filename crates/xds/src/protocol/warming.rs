//! Cluster warming: clusters on their way into a proxy. Listeners and routes that may name them wait until the proxy can use them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::protocol::{order::ORDER_TIMEOUT, watch::Watch};

/// How long after its ACK of a cluster a proxy may take to subscribe to the endpoints: it does so at once, or never.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Warming {
    clusters: Vec<Arc<str>>,
    /// When to stop waiting in any case.
    deadline: Instant,
    /// Set by the ACK of the clusters: when the proxy must have subscribed to their endpoints.
    subscribe_by: Option<Instant>,
}

impl Warming {
    pub(crate) fn new(clusters: Vec<Arc<str>>, now: Instant) -> Option<Warming> {
        (!clusters.is_empty()).then(|| Warming { clusters, deadline: now + ORDER_TIMEOUT, subscribe_by: None })
    }

    /// The response with the clusters was ACKed.
    pub(crate) fn on_ack(&mut self, now: Instant) {
        self.subscribe_by = Some(now + SUBSCRIBE_TIMEOUT);
    }

    /// Until when to wait at the latest. `None`: there is no reason to wait any longer.
    pub(crate) fn wait_until(
        &self,
        clusters: Option<&Watch>,
        endpoints: Option<&Watch>,
        now: Instant,
    ) -> Option<Instant> {
        let is_outstanding = |watch: &Watch| watch.ack.outstanding().is_some();
        let is_subscribed = |watch: &&Watch| self.clusters.iter().all(|name| watch.subscription.covers(name));
        let is_pending =
            |watch: &Watch| self.clusters.iter().any(|name| watch.pending.names.binary_search(name).is_ok());
        let until = match endpoints.filter(is_subscribed) {
            _ if clusters.is_some_and(is_outstanding) => self.deadline,
            Some(endpoints) if is_outstanding(endpoints) || is_pending(endpoints) => self.deadline,
            Some(_) => return None,
            None => self.deadline.min(self.subscribe_by.unwrap_or(self.deadline)),
        };
        (now < until).then_some(until)
    }
}
