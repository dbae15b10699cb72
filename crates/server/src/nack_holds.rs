//! Content that proxies reject is held back. Rejections are collected here, and the objects to blame are found, so that what is sent in its place lacks
//! their fault alone; what is held, and from whom, is decided in `views`.

mod earlier_objects;
mod search_budget;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use config::diagnostic::ObjectId;
use config::object::AnyObject;
use config::store::Snapshot;
use model::Mesh;
use provenance::{culprit, repaired};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep};
use tracing::{error, info};
use views::{Hold, NackedResource, PendingNotifications, ProxySet, RenderedResource, Repair, ResourceKey, Views};
use xds::{Connections, TypeUrl};

use crate::metrics::Metrics;
use crate::pipeline::notify;
use earlier_objects::EarlierObjects;
use search_budget::SearchBudget;

/// Proxies of a class answer within milliseconds of each other: their rejections are judged together.
const GATHER: Duration = Duration::from_millis(20);
/// How often holds are looked at that may have expired, or become those of a class.
const REVIEW: Duration = Duration::from_secs(1);
/// Rejections of one batch whose objects are searched: each takes up to seconds.
const MOST_EXAMINED: usize = 8;
/// Between two batches, as many times what the last one took without its searches: judging takes a quarter of a processor at most.
const PAUSE: u32 = 3;
/// Rejections that wait to be judged. Of more, each comes again with the next change.
const QUEUED: usize = 4096;

/// Holds what proxies reject for as long as the process lives.
pub(crate) struct NackHolds {
    pub(crate) views: Arc<Views>,
    pub(crate) streams: Arc<Connections>,
    /// Of a hold.
    pub(crate) term: Duration,
    pub(crate) metrics: Arc<Metrics>,
    /// The current ones, before proxies can be sent what is made from them.
    pub(crate) objects: watch::Receiver<Arc<Snapshot>>,
}

impl NackHolds {
    pub(crate) async fn follow(mut self) {
        let (sender, mut nacked) = mpsc::channel(QUEUED);
        self.views.set_nack_listener(Box::new(move |nacked| drop(sender.try_send(nacked))));
        let earlier = EarlierObjects::new(self.objects.borrow_and_update().clone());
        let judge = Arc::new(Judge {
            views: self.views,
            streams: self.streams,
            term: self.term,
            metrics: self.metrics,
            earlier: Mutex::new(earlier),
            searches: Mutex::default(),
            deciding: Mutex::default(),
        });
        let (to_repair, repairs) = mpsc::channel(QUEUED);
        tokio::spawn(judge.clone().repair_all(repairs));
        let (mut reviews, mut pause) = (interval(REVIEW), GATHER);
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                _ = nacked.recv_many(&mut batch, QUEUED) => {
                    sleep(pause).await;
                    batch.extend(std::iter::from_fn(|| nacked.try_recv().ok()));
                }
                Ok(()) = self.objects.changed() => {
                    judge.follow_objects(&self.objects.borrow_and_update().clone());
                    continue;
                }
                _ = reviews.tick() => {}
            }
            judge.follow_objects(&self.objects.borrow_and_update().clone());
            if batch.is_empty() && !judge.has_holds() {
                continue;
            }
            if let Some((batch, took)) = judge.clone().step(batch, |nacked| !nacked.has_last_good()).await {
                pause = GATHER.max(took * PAUSE);
                for nacked in batch.into_iter().filter(NackedResource::has_last_good) {
                    let _ = to_repair.try_send(nacked);
                }
            }
        }
    }
}

struct Judge {
    views: Arc<Views>,
    streams: Arc<Connections>,
    term: Duration,
    metrics: Arc<Metrics>,
    earlier: Mutex<EarlierObjects>,
    searches: Mutex<SearchBudget>,
    /// So that new holds are counted once.
    deciding: Mutex<()>,
}

/// The objects to blame, by type and by the text of the rejection without the name of the resource: proxies of many classes reject alike.
type Culprits = BTreeMap<(TypeUrl, String), ObjectId>;

/// What resources are with a culprit repaired. It is the same for all proxies of a class.
type Repaired = BTreeMap<(ProxySet, ResourceKey, ObjectId), Option<(RenderedResource, Repair)>>;

impl Judge {
    fn follow_objects(&self, objects: &Arc<Snapshot>) {
        locked(&self.earlier).follow(objects, self.views.holds().iter().next().is_some(), Instant::now());
    }

    /// Also if the last ones went and the gauge still counts them.
    fn has_holds(&self) -> bool {
        self.views.holds().iter().next().is_some() || self.metrics.held_resources.get() != 0
    }

    /// The last good version of these is sent already. Searches take up to seconds, which other rejections do not wait for.
    async fn repair_all(self: Arc<Self>, mut nacked: mpsc::Receiver<NackedResource>) {
        loop {
            let mut batch = Vec::new();
            if nacked.recv_many(&mut batch, QUEUED).await == 0 {
                return;
            }
            self.clone().step(batch, NackedResource::has_last_good).await;
        }
    }

    /// Holds all of a batch, with repairs for what `to_repair` selects. Returns it, and what it took without searches. `None`: it failed.
    async fn step(
        self: Arc<Self>,
        mut batch: Vec<NackedResource>,
        to_repair: fn(&NackedResource) -> bool,
    ) -> Option<(Vec<NackedResource>, Duration)> {
        let stages = self.metrics.stages().clone();
        let judged = spawn_blocking(move || {
            let begun = Instant::now();
            let (notifications, searched) = self.hold(&mut batch, to_repair);
            (batch, notifications, begun.elapsed().saturating_sub(searched))
        });
        match judged.await {
            Ok((batch, notifications, took)) => {
                notify(notifications, stages).await;
                Some((batch, took))
            }
            Err(error) => {
                error!(%error, "what proxies reject could not be judged");
                None
            }
        }
    }

    /// Returns how long it searched for objects too.
    fn hold(
        &self,
        batch: &mut [NackedResource],
        to_repair: fn(&NackedResource) -> bool,
    ) -> (PendingNotifications, Duration) {
        let searched = self.repair(batch, to_repair);
        let _deciding = locked(&self.deciding);
        let before = self.views.holds();
        let notifications = match batch {
            [] => self.views.review_holds(&self.streams, SystemTime::now()),
            batch => self.views.hold_refused(batch, &self.streams, self.term),
        };
        let after = self.views.holds();
        if !Arc::ptr_eq(&before, &after) {
            let known: HashSet<*const Hold> = before.iter().map(Arc::as_ptr).collect();
            for hold in after.iter().filter(|hold| !known.contains(&Arc::as_ptr(hold))) {
                self.metrics.nack_holds.with_label_values(&[hold.key.kind.label()]).inc();
                log(hold);
            }
        }
        self.metrics.held_resources.set(i64::try_from(self.views.holds_in_force().len()).unwrap_or(i64::MAX));
        (notifications, searched)
    }

    /// Makes what is rejected with the object at fault as it was before, or without it, where that can be found out and the client has not had too
    /// many searches. Returns how long it searched.
    fn repair(&self, batch: &mut [NackedResource], to_repair: fn(&NackedResource) -> bool) -> Duration {
        let Some(mesh) = self.views.mesh() else { return Duration::ZERO };
        let (mut culprits, mut made) = (Culprits::new(), Repaired::new());
        let (mut examined, begun) = (0, Instant::now());
        for nacked in batch.iter_mut().filter(|nacked| to_repair(nacked) && nacked.is_newest()) {
            let key = nacked.key().clone();
            let text = (key.kind, nacked.reason().replace(&*key.name, ""));
            let is_known = culprits.contains_key(&text);
            // What has a last good version can do without a repair.
            let is_paid = !is_known || nacked.has_last_good();
            let started = Instant::now();
            if is_paid && !locked(&self.searches).allows(nacked.client(), started) {
                continue;
            }
            if !is_known && examined < MOST_EXAMINED {
                examined += 1;
                let found = culprit(&mesh, nacked.proxy(), (key.kind, &key.name), nacked.reason());
                culprits.extend(found.map(|found| (text.clone(), found)));
            }
            if let Some(object) = culprits.get(&text) {
                let earlier = || locked(&self.earlier).find(object);
                let of_class = made.entry((nacked.class(), key, object.clone()));
                if let Some((content, repair)) = of_class.or_insert_with(|| repair(&mesh, nacked, object, earlier())) {
                    nacked.substitute(content.clone(), repair.clone());
                }
            }
            if is_paid {
                locked(&self.searches).spend(nacked.client(), started.elapsed(), Instant::now());
            }
        }
        begun.elapsed()
    }
}

/// `None`: there is no such resource then.
fn repair(
    mesh: &Mesh,
    nacked: &NackedResource,
    culprit: &ObjectId,
    earlier: Option<AnyObject>,
) -> Option<(RenderedResource, Repair)> {
    let (name, key) = (culprit.to_string().into(), nacked.key());
    let repair = if earlier.is_some() { Repair::Earlier(name) } else { Repair::Without(name) };
    Some((repaired(mesh, nacked.proxy(), (key.kind, &key.name), culprit, earlier)?, repair))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn log(hold: &Hold) {
    let (kind, resource, proxies) = (hold.key.kind.short(), &*hold.key.name, &hold.proxies);
    info!(kind, resource, %proxies, instead = %hold.instead, reason = &*hold.reason, "content held back: proxies reject it");
}
