//! Changes that wait to be worked in: endpoints and secrets go ahead, everything else waits until the source is quiet. Knows nothing
//! of what comes of them.

mod urgency;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use config::note::ObjectId;
use config::store::{Snapshot, Update};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::settings::Debounce;
use urgency::{Urgency, urgency};

/// How long a namespace rests after its endpoints went ahead: longer each time while they go on changing, so that a rollout is a
/// handful of pushes. It begins anew after having been quiet for the longest of these.
const RESTS: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(1)];

/// More than the source can have ready is not waited for.
const MOST_AT_ONCE: usize = 64;

pub(crate) struct Waiting {
    limits: Debounce,
    calm: Pending,
    ahead: HashMap<Line, Ahead>,
    spent: Duration,
}

/// What is worked in together.
pub(crate) struct Batch {
    /// The newest of each object.
    pub(crate) updates: Vec<Update>,
    /// How long the oldest of them waited.
    pub(crate) waited: Duration,
    /// How long the sorting took, since the last batch.
    pub(crate) spent: Duration,
}

/// Changes that go ahead together. One line does not wait for another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Line {
    Endpoints(Arc<str>),
    Secrets(Arc<str>),
}

#[derive(Default)]
struct Ahead {
    pending: Pending,
    /// The earliest that one of the pending changes may go.
    ready: Option<Instant>,
    /// When it last went ahead, and how often without a break.
    went: Option<Instant>,
    streak: usize,
}

#[derive(Default)]
struct Pending {
    objects: BTreeMap<ObjectId, Update>,
    /// What is no object, in order.
    others: Vec<Update>,
    /// When the oldest and the newest of them came. `None`: there are none.
    came: Option<(Instant, Instant)>,
}

impl Waiting {
    pub(crate) fn new(limits: Debounce) -> Waiting {
        Waiting { limits, calm: Pending::default(), ahead: HashMap::new(), spent: Duration::ZERO }
    }

    /// The next changes that have waited long enough. `objects`: what is worked in so far; `see` gets everything that arrives. `None`:
    /// the source is gone and nothing waits. Safe to drop while waiting.
    pub(crate) async fn batch(
        &mut self,
        source: &mut Receiver<Vec<Update>>,
        objects: &Snapshot,
        mut see: impl FnMut(&[Update]),
    ) -> Option<Batch> {
        loop {
            tokio::select! {
                // At the limit the refresh comes first, or a source that never rests would postpone it for ever.
                biased;
                () = until(self.due()) => {}
                next = source.recv() => match next {
                    Some(updates) => {
                        see(&updates);
                        self.take(updates, objects);
                        continue;
                    }
                    None => return self.flush(|_| true),
                },
            }
            for _ in 0..MOST_AT_ONCE {
                let Ok(updates) = source.try_recv() else { break };
                see(&updates);
                self.take(updates, objects);
            }
            let now = Instant::now();
            if let Some(batch) = self.flush(|due| due <= now) {
                return Some(batch);
            }
        }
    }

    /// How many changes wait.
    pub(crate) fn len(&self) -> usize {
        let ahead = self.ahead.values().map(|ahead| &ahead.pending);
        ahead.chain([&self.calm]).map(|pending| pending.objects.len() + pending.others.len()).sum()
    }

    fn take(&mut self, updates: Vec<Update>, objects: &Snapshot) {
        let (began, now) = (std::time::Instant::now(), Instant::now());
        if updates.is_empty() {
            self.calm.restless(now);
        }
        for update in updates {
            let (line, wait) = match urgency(&update, objects, self.limits) {
                Urgency::Calm => {
                    self.calm.add(update, now);
                    continue;
                }
                Urgency::Endpoint { namespace, wait } => (Line::Endpoints(namespace), wait),
                Urgency::Secret { namespace } => (Line::Secrets(namespace), Duration::ZERO),
            };
            let ahead = self.ahead.entry(line).or_default();
            ahead.pending.add(update, now);
            ahead.ready = Some(ahead.ready.map_or(now + wait, |ready| ready.min(now + wait)));
        }
        self.spent += began.elapsed();
    }

    fn due(&self) -> Option<Instant> {
        self.ahead.values().filter_map(|ahead| ahead.due(self.limits)).chain(self.calm.due(self.limits)).min()
    }

    fn flush(&mut self, is_due: impl Fn(Instant) -> bool) -> Option<Batch> {
        let now = Instant::now();
        let mut batch = Pending::default();
        if self.calm.due(self.limits).is_some_and(&is_due) {
            batch.append(std::mem::take(&mut self.calm));
        }
        for ahead in self.ahead.values_mut() {
            if ahead.due(self.limits).is_some_and(&is_due) {
                batch.append(ahead.go(now));
            }
        }
        self.ahead.retain(|_, ahead| ahead.pending.came.is_some() || ahead.went.is_some_and(|went| went + REST > now));
        let (first, _) = batch.came?;
        let spent = std::mem::take(&mut self.spent);
        Some(Batch { updates: batch.updates(), waited: now.saturating_duration_since(first), spent })
    }
}

/// The longest rest.
const REST: Duration = RESTS[RESTS.len() - 1];

impl Ahead {
    /// Whoever rests goes when the rest is over, or when nothing more came for as long as it takes for a source to be quiet.
    fn due(&self, limits: Debounce) -> Option<Instant> {
        let (_, last) = self.pending.came?;
        let rested = self.went.map(|went| (went + RESTS[self.streak]).min(last + limits.after));
        self.ready.max(rested)
    }

    fn go(&mut self, now: Instant) -> Pending {
        // What waits since then was not quiet meanwhile, however long it rested.
        let came = self.pending.came.map_or(now, |(first, _)| first);
        let goes_on = self.went.is_some_and(|went| went + REST > came);
        self.streak = if goes_on { (self.streak + 1).min(RESTS.len() - 1) } else { 0 };
        self.went = Some(now);
        self.ready = None;
        std::mem::take(&mut self.pending)
    }
}

impl Pending {
    fn add(&mut self, update: Update, now: Instant) {
        let id = match &update {
            Update::Put(object) => Some(object.id()),
            Update::Delete(id) => Some(id.clone()),
            Update::Notes { .. } | Update::Keys { .. } | Update::MeshConfig(_) | Update::Standing { .. } => None,
        };
        match id {
            Some(id) => drop(self.objects.insert(id, update)),
            None => self.others.push(update),
        }
        let (first, _) = self.came.unwrap_or((now, now));
        self.came = Some((first, now));
    }

    /// The source has more to come, which may belong to what waits here.
    fn restless(&mut self, now: Instant) {
        if let Some((_, last)) = &mut self.came {
            *last = now;
        }
    }

    fn due(&self, limits: Debounce) -> Option<Instant> {
        let (first, last) = self.came?;
        Some((last + limits.after).min(first + limits.max))
    }

    fn append(&mut self, other: Pending) {
        self.objects.extend(other.objects);
        self.others.extend(other.others);
        self.came = match (self.came, other.came) {
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
