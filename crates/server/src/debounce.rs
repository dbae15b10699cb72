//! Debounce: changes are collected into batches. Endpoints and secrets take a fast path, everything else waits until the source is quiet
//! (PILOT_DEBOUNCE_AFTER, PILOT_DEBOUNCE_MAX). What a batch leads to is in `pipeline`.

mod urgency;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::ObjectId;
use config::store::{Snapshot, Update};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::settings::DebounceSettings;
use urgency::{Urgency, changes_nothing, urgency};

/// Backoff of the fast path: how long a lane pauses after a flush, longer each time while changes continue, so that a rollout is a
/// handful of pushes. It starts again after the lane was quiet for the longest of these.
const BACKOFF: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(1)];

/// How long updates wait that change nothing of what proxies are sent: the status of an object, or a new version of it with the same content. They
/// neither make batches of their own, several in a second, nor postpone the changes of others.
const UNCHANGED_WAIT: Duration = Duration::from_secs(1);

/// Batches of the source that are drained before a flush; it cannot have more ready.
const MAX_DRAINED: usize = 64;

pub(crate) struct Debouncer {
    limits: DebounceSettings,
    debounced: Pending,
    lanes: HashMap<LaneKey, Lane>,
    /// Nothing of an object is here while a change of it is pending elsewhere.
    unchanged: Pending,
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
    statuses: BTreeMap<ObjectId, Update>,
    /// Updates that are no objects, in order.
    others: Vec<Update>,
    /// When the oldest and the newest of them arrived. `None`: there are none.
    arrived: Option<(Instant, Instant)>,
}

impl Debouncer {
    pub(crate) fn new(limits: DebounceSettings) -> Debouncer {
        Debouncer {
            limits,
            debounced: Pending::default(),
            lanes: HashMap::new(),
            unchanged: Pending::default(),
            spent: Duration::ZERO,
        }
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
        lanes.chain([&self.debounced, &self.unchanged]).map(Pending::len).sum()
    }

    fn add(&mut self, updates: Vec<Update>, objects: &Snapshot) {
        let (began, now) = (std::time::Instant::now(), Instant::now());
        if updates.is_empty() {
            self.debounced.postpone(now);
        }
        let changed = changed_with_status(&updates, objects);
        for update in updates {
            let lane = match urgency(&update, objects, self.limits) {
                Urgency::Debounced => None,
                Urgency::Endpoint { namespace, wait } => Some((LaneKey::Endpoints(namespace), wait)),
                Urgency::Secret { namespace } => Some((LaneKey::Secrets(namespace), Duration::ZERO)),
            };
            let pending = match &lane {
                None => Some(&self.debounced),
                Some((key, _)) => self.lanes.get(key).map(|lane| &lane.pending),
            };
            let joins = pending.is_some_and(|pending| pending.has_same_object(&update))
                || matches!(&update, Update::ObjectStatus { id, .. } if changed.contains(id));
            if changes_nothing(&update, objects) && !joins {
                self.unchanged.add(update, now);
                continue;
            }
            self.unchanged.remove(&update);
            match lane {
                None => self.debounced.add(update, now),
                Some((key, wait)) => self.lanes.entry(key).or_default().add(update, now, wait),
            }
        }
        self.spent += began.elapsed();
    }

    fn due(&self) -> Option<Instant> {
        let lanes = self.lanes.values().filter_map(|lane| lane.due(self.limits));
        lanes.chain(self.debounced.due(self.limits)).chain(self.unchanged_due()).min()
    }

    fn unchanged_due(&self) -> Option<Instant> {
        self.unchanged.arrived.map(|(first, _)| first + UNCHANGED_WAIT)
    }

    fn flush(&mut self, is_due: impl Fn(Instant) -> bool) -> Option<Batch> {
        let now = Instant::now();
        let mut batch = Pending::default();
        if self.unchanged_due().is_some_and(&is_due) {
            batch.append(std::mem::take(&mut self.unchanged));
        }
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
    fn add(&mut self, update: Update, now: Instant, wait: Duration) {
        self.pending.add(update, now);
        self.ready = Some(self.ready.map_or(now + wait, |ready| ready.min(now + wait)));
    }

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
    fn len(&self) -> usize {
        self.objects.len() + self.statuses.len() + self.others.len()
    }

    fn add(&mut self, update: Update, now: Instant) {
        match subject(&update) {
            Some(Subject::Object(id)) => drop(self.objects.insert(id, update)),
            Some(Subject::Status(id)) => drop(self.statuses.insert(id, update)),
            None => self.others.push(update),
        }
        let (first, _) = self.arrived.unwrap_or((now, now));
        self.arrived = Some((first, now));
    }

    /// An update of the same object, or of the same status, is pending.
    fn has_same_object(&self, update: &Update) -> bool {
        match subject(update) {
            Some(Subject::Object(id)) => self.objects.contains_key(&id),
            Some(Subject::Status(id)) => self.statuses.contains_key(&id),
            None => false,
        }
    }

    /// Drops an update of the same object, or of the same status.
    fn remove(&mut self, update: &Update) {
        match subject(update) {
            Some(Subject::Object(id)) => drop(self.objects.remove(&id)),
            Some(Subject::Status(id)) => drop(self.statuses.remove(&id)),
            None => {}
        }
        if self.len() == 0 {
            self.arrived = None;
        }
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
        self.statuses.extend(other.statuses);
        self.others.extend(other.others);
        self.arrived = match (self.arrived, other.arrived) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, two) => one.or(two),
        };
    }

    fn updates(self) -> Vec<Update> {
        self.objects.into_values().chain(self.statuses.into_values()).chain(self.others).collect()
    }
}

/// Objects of kinds with a status that change: their status comes with them.
fn changed_with_status(updates: &[Update], objects: &Snapshot) -> HashSet<ObjectId> {
    let ids = updates.iter().filter_map(|update| match update {
        Update::Put(object) if object.kind().is_istio() && !objects.holds(object) => Some(object.id()),
        _ => None,
    });
    ids.collect()
}

/// What the next update of the same replaces.
enum Subject {
    Object(ObjectId),
    Status(ObjectId),
}

/// `None`: updates are kept in their order.
fn subject(update: &Update) -> Option<Subject> {
    match update {
        Update::Put(object) => Some(Subject::Object(object.id())),
        Update::Delete(id) => Some(Subject::Object(id.clone())),
        Update::ObjectStatus { id, .. } => Some(Subject::Status(id.clone())),
        Update::Diagnostics { .. } | Update::Keys { .. } | Update::MeshConfig(_) => None,
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
