//! The state of each watch: live, listing, or stalled and since when. Written by the watches, read by debug pages, metrics and the start barrier.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::client::RequestError;
use super::known_objects::KnownObjects;
use super::outage::{OutageLine, Outages};
use super::resource::ApiResource;
use super::watch_delay::WatchDelays;

/// Shared by all watches of a cluster.
#[derive(Clone)]
pub struct WatchesHealth(Arc<Inner>);

struct Inner {
    watches: Mutex<BTreeMap<ApiResource, WatchHealth>>,
    outages: Mutex<Outages>,
    synced: watch::Sender<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The list is being read, initially or again.
    Listing,
    Live,
    /// The last request failed; the known objects stay in force.
    Stalled,
    /// The API server has no such kind.
    Absent,
    /// The role does not allow to read this kind.
    Forbidden,
}

impl State {
    pub const ALL: [State; 5] = [State::Listing, State::Live, State::Stalled, State::Absent, State::Forbidden];

    pub fn name(self) -> &'static str {
        match self {
            State::Listing => "listing",
            State::Live => "live",
            State::Stalled => "stalled",
            State::Absent => "absent",
            State::Forbidden => "forbidden",
        }
    }
}

#[derive(Debug, Clone)]
pub struct WatchHealth {
    pub state: State,
    pub since: SystemTime,
    /// The last response about this kind. `None`: never.
    pub last_event: Option<SystemTime>,
    /// A whole list was read, or there is none.
    pub synced: bool,
    pub objects: usize,
    /// A digest of the names and versions of all objects: equal for equal sets.
    pub digest: u64,
    /// The last resource version.
    pub version: u64,
    pub lists: u64,
    pub failures: u64,
    /// Differences that an audit found and repaired.
    pub repairs: u64,
    /// Empty: no error.
    pub trouble: String,
    pub received: ReceivedEvents,
}

/// Events of a watch: additions, updates and deletions, also of objects that are not for this control plane.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReceivedEvents {
    pub count: u64,
    pub bytes: u64,
    pub delays: WatchDelays,
}

impl Default for WatchesHealth {
    fn default() -> WatchesHealth {
        let (watches, outages) = (Mutex::default(), Mutex::default());
        WatchesHealth(Arc::new(Inner { watches, outages, synced: watch::Sender::new(()) }))
    }
}

impl WatchesHealth {
    pub fn snapshot(&self) -> Vec<(ApiResource, WatchHealth)> {
        self.watches().iter().map(|(resource, health)| (resource.clone(), health.clone())).collect()
    }

    /// Returns when every watch has read its list.
    pub async fn synced(&self) {
        let mut changes = self.0.synced.subscribe();
        loop {
            changes.borrow_and_update();
            if self.watches().values().all(|health| health.synced) {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    pub(super) fn begin(&self, resource: &ApiResource) -> Reporter {
        let fresh = WatchHealth {
            state: State::Listing,
            since: SystemTime::now(),
            last_event: None,
            synced: false,
            objects: 0,
            digest: 0,
            version: 0,
            lists: 0,
            failures: 0,
            repairs: 0,
            trouble: String::new(),
            received: ReceivedEvents::default(),
        };
        self.watches().insert(resource.clone(), fresh);
        Reporter { health: self.clone(), resource: resource.clone() }
    }

    fn outages(&self) -> MutexGuard<'_, Outages> {
        self.0.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, BTreeMap<ApiResource, WatchHealth>> {
        self.0.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the state of one watch.
pub(super) struct Reporter {
    health: WatchesHealth,
    resource: ApiResource,
}

impl Reporter {
    pub(super) fn is_forbidden(&self) -> bool {
        self.health.watches().get(&self.resource).is_some_and(|health| health.state == State::Forbidden)
    }

    pub(super) fn set_state(&self, state: State, trouble: &str) {
        self.edit(|health| {
            if health.state != state {
                health.since = SystemTime::now();
            }
            health.state = state;
            health.trouble = trouble.to_owned();
            health.failures += u64::from(state == State::Stalled);
        });
    }

    /// `None`: the failure is not to be logged.
    pub(super) fn failed(&self, failure: &RequestError) -> Option<OutageLine> {
        self.set_state(State::Stalled, &failure.to_string());
        self.health.outages().failed(&self.resource, failure)
    }

    /// How long watches failed, if this was the last of them.
    pub(super) fn live(&self) -> Option<Duration> {
        self.set_state(State::Live, "");
        self.health.outages().recovered(&self.resource)
    }

    pub(super) fn record_event(&self, known: &KnownObjects, version: u64) {
        self.edit(|health| {
            health.last_event = Some(SystemTime::now());
            (health.objects, health.digest, health.version) = (known.len(), known.digest(), version);
        });
    }

    pub(super) fn received(&self, events: &ReceivedEvents) {
        self.edit(|health| {
            health.received.count += events.count;
            health.received.bytes += events.bytes;
            health.received.delays.add(&events.delays);
        });
    }

    /// The list was read completely, or there is none.
    pub(super) fn synced(&self) {
        self.edit(|health| health.synced = true);
        // No receiver: fine.
        let _ = self.health.0.synced.send(());
    }

    pub(super) fn listed(&self) {
        self.edit(|health| health.lists += 1);
        self.synced();
    }

    pub(super) fn repaired(&self, differences: usize) {
        self.edit(|health| health.repairs += differences as u64);
    }

    fn edit(&self, change: impl FnOnce(&mut WatchHealth)) {
        if let Some(health) = self.health.watches().get_mut(&self.resource) {
            change(health);
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.health.outages().recovered(&self.resource);
        self.health.watches().remove(&self.resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::kind::Kind;

    #[tokio::test]
    async fn the_barrier_opens_with_the_last_list() {
        let health = WatchesHealth::default();
        let resource = |kind| ApiResource { kind, namespace: None };
        let (pods, nodes) = (health.begin(&resource(Kind::Pod)), health.begin(&resource(Kind::Node)));
        pods.listed();
        let barrier = tokio::spawn({
            let health = health.clone();
            async move { health.synced().await }
        });
        tokio::task::yield_now().await;
        assert!(!barrier.is_finished());
        nodes.set_state(State::Forbidden, "no");
        nodes.synced();
        barrier.await.unwrap();
        assert_eq!(health.snapshot()[0].1.trouble, "no");
    }
}
