//! Debounce: changes are collected into batches. Endpoints and secrets take a fast path, everything else waits until the source is quiet
//! (PILOT_DEBOUNCE_AFTER, PILOT_DEBOUNCE_MAX). What a batch leads to is in `pipeline`.

mod urgency;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::ObjectId;
use config::store::{Snapshot, Update};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::settings::DebounceSettings;
use urgency::{Urgency, urgency};

/// Backoff of the fast path: how long a lane pauses after a flush, longer each time while changes continue, so that a rollout is a
/// handful of pushes. It starts again after the lane was quiet for the longest of these.
const BACKOFF: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(1)];

/// Batches of the source that are drained before a flush; it cannot have more ready.
const MAX_DRAINED: usize = 64;

pub(crate) struct Debouncer {
    limits: DebounceSettings,
    debounced: Pending,
    lanes: HashMap<LaneKey, Lane>,
    spent: Duration,
}

/// Changes that are applied together.
pub(crate) struct Batch {
    /// The newest update of each object.
    pub(crate) updates: Vec<Update>,
    /// How long the oldest of them waited.
    pub(crate) waited: Duration,
    /// CPU time of the debouncer since the last batch.
    pub(crate) spent: Duration,
}

/// Changes of the fast path that are flushed together. A lane does not wait for another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum LaneKey {
    Endpoints(Arc<str>),
    Secrets(Arc<str>),
}

#[derive(Default)]
struct Lane {
    pending: Pending,
    /// The earliest time at which one of the pending changes may be flushed.
    ready: Option<Instant>,
    /// The time of the last flush, and how many there were without a pause.
    last_flush: Option<Instant>,
    streak: usize,
}

#[derive(Default)]
struct Pending {
    objects: BTreeMap<ObjectId, Update>,
    /// Updates that are no objects, in order.
    others: Vec<Update>,
    /// When the oldest and the newest of them arrived. `None`: there are none.
    arrived: Option<(Instant, Instant)>,
}

impl Debouncer {
    pub(crate) fn new(limits: DebounceSettings) -> Debouncer {
        Debouncer { limits, debounced: Pending::default(), lanes: HashMap::new(), spent: Duration::ZERO }
    }

    /// The next batch that is due. `objects`: what is applied so far; `observe` gets every update that arrives. `None`: the source is closed
    /// and nothing is pending. Cancel safe.
    pub(crate) async fn next_batch(
        &mut self,
        source: &mut Receiver<Vec<Update>>,
        objects: &Snapshot,
        mut observe: impl FnMut(&[Update]),
    ) -> Option<Batch> {
        loop {
            tokio::select! {
                // A due flush goes before new updates, or a source that never pauses would postpone it for ever.
                biased;
                () = until(self.due()) => {}
                next = source.recv() => match next {
                    Some(updates) => {
                        observe(&updates);
                        self.add(updates, objects);
                        continue;
                    }
                    None => return self.flush(|_| true),
                },
            }
            for _ in 0..MAX_DRAINED {
                let Ok(updates) = source.try_recv() else { break };
                observe(&updates);
                self.add(updates, objects);
            }
            let now = Instant::now();
            if let Some(batch) = self.flush(|due| due <= now) {
                return Some(batch);
            }
        }
    }

    /// The number of pending changes.
    pub(crate) fn len(&self) -> usize {
        let lanes = self.lanes.values().map(|lane| &lane.pending);
        lanes.chain([&self.debounced]).map(|pending| pending.objects.len() + pending.others.len()).sum()
    }

    fn add(&mut self, updates: Vec<Update>, objects: &Snapshot) {
        let (began, now) = (std::time::Instant::now(), Instant::now());
        if updates.is_empty() {
            self.debounced.postpone(now);
        }
        for update in updates {
            let (key, wait) = match urgency(&update, objects, self.limits) {
                Urgency::Debounced => {
                    self.debounced.add(update, now);
                    continue;
                }
                Urgency::Endpoint { namespace, wait } => (LaneKey::Endpoints(namespace), wait),
                Urgency::Secret { namespace } => (LaneKey::Secrets(namespace), Duration::ZERO),
            };
            let lane = self.lanes.entry(key).or_default();
            lane.pending.add(update, now);
            lane.ready = Some(lane.ready.map_or(now + wait, |ready| ready.min(now + wait)));
        }
        self.spent += began.elapsed();
    }

    fn due(&self) -> Option<Instant> {
        self.lanes.values().filter_map(|lane| lane.due(self.limits)).chain(self.debounced.due(self.limits)).min()
    }

    fn flush(&mut self, is_due: impl Fn(Instant) -> bool) -> Option<Batch> {
        let now = Instant::now();
        let mut batch = Pending::default();
        if self.debounced.due(self.limits).is_some_and(&is_due) {
            batch.append(std::mem::take(&mut self.debounced));
        }
        for lane in self.lanes.values_mut() {
            if lane.due(self.limits).is_some_and(&is_due) {
                batch.append(lane.flush(now));
            }
        }
        self.lanes.retain(|_, lane| {
            lane.pending.arrived.is_some() || lane.last_flush.is_some_and(|last| last + LONGEST_BACKOFF > now)
        });
        let (first, _) = batch.arrived?;
        let spent = std::mem::take(&mut self.spent);
        Some(Batch { updates: batch.updates(), waited: now.saturating_duration_since(first), spent })
    }
}

const LONGEST_BACKOFF: Duration = BACKOFF[BACKOFF.len() - 1];

impl Lane {
    /// During the backoff a lane is due when the backoff ends, or when the source was quiet for PILOT_DEBOUNCE_AFTER.
    fn due(&self, limits: DebounceSettings) -> Option<Instant> {
        let (_, last) = self.pending.arrived?;
        let backoff_ends = self.last_flush.map(|flushed| (flushed + BACKOFF[self.streak]).min(last + limits.after));
        self.ready.max(backoff_ends)
    }

    fn flush(&mut self, now: Instant) -> Pending {
        // Changes that were pending during the backoff count as activity, however long the backoff was.
        let arrived = self.pending.arrived.map_or(now, |(first, _)| first);
        let continues = self.last_flush.is_some_and(|last| last + LONGEST_BACKOFF > arrived);
        self.streak = if continues { (self.streak + 1).min(BACKOFF.len() - 1) } else { 0 };
        self.last_flush = Some(now);
        self.ready = None;
        std::mem::take(&mut self.pending)
    }
}

impl Pending {
    fn add(&mut self, update: Update, now: Instant) {
        let id = match &update {
            Update::Put(object) => Some(object.id()),
            Update::Delete(id) => Some(id.clone()),
            Update::Diagnostics { .. } | Update::Keys { .. } | Update::MeshConfig(_) | Update::ObjectStatus { .. } => {
                None
            }
        };
        match id {
            Some(id) => drop(self.objects.insert(id, update)),
            None => self.others.push(update),
        }
        let (first, _) = self.arrived.unwrap_or((now, now));
        self.arrived = Some((first, now));
    }

    /// The source announced more updates, which may belong to the pending ones.
    fn postpone(&mut self, now: Instant) {
        if let Some((_, last)) = &mut self.arrived {
            *last = now;
        }
    }

    fn due(&self, limits: DebounceSettings) -> Option<Instant> {
        let (first, last) = self.arrived?;
        Some((last + limits.after).min(first + limits.max))
    }

    fn append(&mut self, other: Pending) {
        self.objects.extend(other.objects);
        self.others.extend(other.others);
        self.arrived = match (self.arrived, other.arrived) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, two) => one.or(two),
        };
    }

    fn updates(self) -> Vec<Update> {
        self.objects.into_values().chain(self.others).collect()
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
