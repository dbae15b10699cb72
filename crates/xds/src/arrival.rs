//! Clusters on their way into a proxy: listeners and routes that may name them wait until the proxy can use them. Pure.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{order::PATIENCE, watch::Watch};

/// How long after it took a cluster a proxy may take to ask for the endpoints: it does so at once, or never.
const ASKING: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Arrival {
    clusters: Vec<Arc<str>>,
    /// The end of all waiting.
    by: Instant,
    /// Set when the proxy took the clusters: when it must have asked for their endpoints.
    ask_by: Option<Instant>,
}

impl Arrival {
    pub(crate) fn new(clusters: Vec<Arc<str>>, now: Instant) -> Option<Arrival> {
        (!clusters.is_empty()).then(|| Arrival { clusters, by: now + PATIENCE, ask_by: None })
    }

    /// The response that holds the clusters was accepted.
    pub(crate) fn accepted(&mut self, now: Instant) {
        self.ask_by = Some(now + ASKING);
    }

    /// Until when to wait at the latest. `None`: there is no reason to wait any longer.
    pub(crate) fn awaited(&self, clusters: Option<&Watch>, endpoints: Option<&Watch>, now: Instant) -> Option<Instant> {
        let on_its_way = |watch: &Watch| watch.ack.open().is_some();
        let asked = |watch: &&Watch| self.clusters.iter().all(|name| watch.subscription.covers(name));
        let owed = |watch: &Watch| self.clusters.iter().any(|name| watch.owed.names.binary_search(name).is_ok());
        let until = match endpoints.filter(asked) {
            _ if clusters.is_some_and(on_its_way) => self.by,
            Some(endpoints) if on_its_way(endpoints) || owed(endpoints) => self.by,
            Some(_) => return None,
            None => self.by.min(self.ask_by.unwrap_or(self.by)),
        };
        (now < until).then_some(until)
    }
}
