//! How each watch is: live, listing, or stalled since when. Written by the watches, read by pages, metrics and the barrier at the start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;

use super::held::Held;
use super::resource::Resource;

/// Shared by all watches of a cluster.
#[derive(Clone)]
pub struct Health(Arc<Inner>);

struct Inner {
    watches: Mutex<BTreeMap<Resource, WatchHealth>>,
    synced: watch::Sender<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The list is being read, for the first time or again.
    Listing,
    Live,
    /// The last request failed; what was known stays in force.
    Stalled,
    /// The API server has no such kind.
    Absent,
    /// We may not read this kind.
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
    /// When the API server last said something about this kind. `None`: never.
    pub heard: Option<SystemTime>,
    /// A whole list was read, or it is known that there is none.
    pub synced: bool,
    pub objects: usize,
    /// Of the names and versions of all objects: equal wherever the same is held.
    pub digest: u64,
    /// The last version that was seen.
    pub version: u64,
    pub lists: u64,
    pub failures: u64,
    /// Differences that an audit found and mended.
    pub repairs: u64,
    /// Empty: nothing is wrong.
    pub trouble: String,
}

impl Default for Health {
    fn default() -> Health {
        Health(Arc::new(Inner { watches: Mutex::default(), synced: watch::Sender::new(()) }))
    }
}

impl Health {
    pub fn snapshot(&self) -> Vec<(Resource, WatchHealth)> {
        self.watches().iter().map(|(resource, health)| (resource.clone(), health.clone())).collect()
    }

    /// Until every watch that was begun has read its list.
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

    pub(super) fn begin(&self, resource: &Resource) -> Reporter {
        let fresh = WatchHealth {
            state: State::Listing,
            since: SystemTime::now(),
            heard: None,
            synced: false,
            objects: 0,
            digest: 0,
            version: 0,
            lists: 0,
            failures: 0,
            repairs: 0,
            trouble: String::new(),
        };
        self.watches().insert(resource.clone(), fresh);
        Reporter { health: self.clone(), resource: resource.clone() }
    }

    fn watches(&self) -> MutexGuard<'_, BTreeMap<Resource, WatchHealth>> {
        self.0.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One watch's own line in the table.
pub(super) struct Reporter {
    health: Health,
    resource: Resource,
}

impl Reporter {
    pub(super) fn enter(&self, state: State, trouble: &str) {
        self.edit(|health| {
            if health.state != state {
                health.since = SystemTime::now();
            }
            health.state = state;
            health.trouble = trouble.to_owned();
            health.failures += u64::from(state == State::Stalled);
        });
    }

    pub(super) fn heard(&self, held: &Held, version: u64) {
        self.edit(|health| {
            health.heard = Some(SystemTime::now());
            (health.objects, health.digest, health.version) = (held.len(), held.digest(), version);
        });
    }

    /// The kind's list was read to its end, or there is none.
    pub(super) fn synced(&self) {
        self.edit(|health| health.synced = true);
        // Nobody waits: fine.
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
        self.health.watches().remove(&self.resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::kind::Kind;

    #[tokio::test]
    async fn the_barrier_opens_with_the_last_list() {
        let health = Health::default();
        let resource = |kind| Resource { kind, namespace: None };
        let (pods, nodes) = (health.begin(&resource(Kind::Pod)), health.begin(&resource(Kind::Node)));
        pods.listed();
        let barrier = tokio::spawn({
            let health = health.clone();
            async move { health.synced().await }
        });
        tokio::task::yield_now().await;
        assert!(!barrier.is_finished());
        nodes.enter(State::Forbidden, "no");
        nodes.synced();
        barrier.await.unwrap();
        assert_eq!(health.snapshot()[0].1.trouble, "no");
    }
}
