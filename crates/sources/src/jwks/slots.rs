//! Slots of concurrent fetches, shared out so that no namespace, however many slow servers it names, keeps another one waiting.

use std::collections::HashMap;
use std::sync::Arc;

use config::jwks::KeySource;
use tokio::task::Id;

/// Sockets at a time. Half of tokio's blocking threads at most: each slot may hold one for the lookup of a name.
pub(super) const SLOTS: usize = 256;

/// A namespace may hold a quarter of what is free: 51 slots alone, 12 among 16. Slots for others remain free until some 250 namespaces hold one.
const SHARE: usize = 4;

/// The same for sources that failed before, so that what is known to fail leaves slots to what is not.
const SHARE_OF_FAILED: usize = 16;

#[derive(Default)]
pub(super) struct Slots {
    taken: HashMap<Id, Slot>,
    by_namespace: HashMap<Arc<str>, usize>,
    /// By namespace and server.
    by_server: HashMap<(Arc<str>, Arc<str>), usize>,
}

/// One fetch in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) source: KeySource,
    /// The namespace whose share it counts against.
    pub(super) namespace: Arc<str>,
    pub(super) server: Arc<str>,
}

impl Slots {
    pub(super) fn take(&mut self, fetch: Id, slot: Slot) {
        *self.by_namespace.entry(slot.namespace.clone()).or_default() += 1;
        *self.by_server.entry((slot.namespace.clone(), slot.server.clone())).or_default() += 1;
        self.taken.insert(fetch, slot);
    }

    /// `None`: not taken.
    pub(super) fn release(&mut self, fetch: Id) -> Option<Slot> {
        let slot = self.taken.remove(&fetch)?;
        decrement(&mut self.by_namespace, &slot.namespace);
        decrement(&mut self.by_server, &(slot.namespace.clone(), slot.server.clone()));
        Some(slot)
    }

    pub(super) fn has_room_for(&self, namespace: &Arc<str>, failed: bool) -> bool {
        let share = if failed { SHARE_OF_FAILED } else { SHARE };
        (self.held_by(namespace) + 1) * share <= SLOTS - self.taken.len()
    }

    pub(super) fn held_by(&self, namespace: &Arc<str>) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }

    pub(super) fn held_for(&self, namespace: &Arc<str>, server: &Arc<str>) -> usize {
        self.by_server.get(&(namespace.clone(), server.clone())).copied().unwrap_or_default()
    }
}

fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
