//! Content that proxies reject is held back. Rejections are collected here, and where no good version is known, the objects to blame are found; what
//! is held, and from whom, is decided in `views`.

mod search_budget;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use provenance::{without_culprits, without_object};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep};
use tracing::{error, info};
use views::{Hold, NackedResource, PendingNotifications, Views};
use xds::{Connections, TypeUrl};

use crate::metrics::Metrics;
use crate::pipeline::notify;
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

/// Holds what proxies reject for as long as the process lives. `term`: of a hold.
pub(crate) async fn follow(views: Arc<Views>, streams: Arc<Connections>, term: Duration, metrics: Arc<Metrics>) {
    let (sender, mut nacked) = mpsc::channel(QUEUED);
    views.set_nack_listener(Box::new(move |nacked| drop(sender.try_send(nacked))));
    let mut reviews = interval(REVIEW);
    let (searches, mut pause) = (Arc::<Mutex<SearchBudget>>::default(), GATHER);
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            _ = nacked.recv_many(&mut batch, QUEUED) => {
                sleep(pause).await;
                batch.extend(std::iter::from_fn(|| nacked.try_recv().ok()));
            }
            _ = reviews.tick() => {}
        }
        let judge = Judge { views: views.clone(), streams: streams.clone(), searches: searches.clone(), term };
        let counted = metrics.clone();
        let judged = spawn_blocking(move || {
            let begun = Instant::now();
            let (notifications, searched) = judge.judge(batch, &counted);
            (notifications, begun.elapsed().saturating_sub(searched))
        });
        match judged.await {
            Ok((notifications, took)) => {
                pause = GATHER.max(took * PAUSE);
                notify(notifications, metrics.stages().clone()).await;
            }
            Err(error) => error!(%error, "what proxies reject could not be judged"),
        }
    }
}

struct Judge {
    views: Arc<Views>,
    streams: Arc<Connections>,
    searches: Arc<Mutex<SearchBudget>>,
    term: Duration,
}

/// The objects to blame, by type and by the text of the rejection without the name of the resource: proxies of many classes reject alike.
type KnownCulprits = BTreeMap<(TypeUrl, String), String>;

impl Judge {
    /// Returns how long it searched for objects too.
    fn judge(&self, mut batch: Vec<NackedResource>, metrics: &Metrics) -> (PendingNotifications, Duration) {
        let before = self.views.holds();
        let mut searched = Duration::ZERO;
        let notifications = if batch.is_empty() {
            self.views.review_holds(&self.streams, SystemTime::now())
        } else {
            searched = self.find_substitutes(&mut batch);
            self.views.hold_refused(&batch, &self.streams, self.term)
        };
        let after = self.views.holds();
        if !Arc::ptr_eq(&before, &after) {
            let known: HashSet<*const Hold> = before.iter().map(Arc::as_ptr).collect();
            for hold in after.iter().filter(|hold| !known.contains(&Arc::as_ptr(hold))) {
                metrics.nack_holds.with_label_values(&[hold.key.kind.label()]).inc();
                log(hold);
            }
        }
        metrics.held_resources.set(i64::try_from(self.views.holds_in_force().len()).unwrap_or(i64::MAX));
        (notifications, searched)
    }

    /// What is refused and was never good is made without the objects to blame, where that can be found out and its client has not had too many
    /// searches. Returns how long it searched.
    fn find_substitutes(&self, batch: &mut [NackedResource]) -> Duration {
        let Some(mesh) = self.views.mesh() else { return Duration::ZERO };
        let mut searches = self.searches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = KnownCulprits::new();
        let (mut examined, mut searched) = (0, Duration::ZERO);
        for nacked in batch.iter_mut().filter(|nacked| nacked.needs_substitute()) {
            let (kind, name, reason) = (nacked.key().kind, nacked.key().name.clone(), nacked.reason().clone());
            let proxy = nacked.proxy().clone();
            let text = (kind, reason.replace(&*name, ""));
            let found = match known.get(&text) {
                Some(object) => {
                    without_object(&mesh, &proxy, (kind, &name), object).map(|made| (made, vec![object.clone()]))
                }
                None if examined < MOST_EXAMINED && searches.allows(nacked.client(), Instant::now()) => {
                    examined += 1;
                    let begun = Instant::now();
                    let found = without_culprits(&mesh, &proxy, (kind, &name), &reason);
                    let took = begun.elapsed();
                    searches.spend(nacked.client(), took, begun + took);
                    searched += took;
                    found
                }
                None => None,
            };
            if let Some((made, objects)) = found {
                known.insert(text, objects[0].clone());
                nacked.substitute(made, objects);
            }
        }
        searched
    }
}

fn log(hold: &Hold) {
    let (kind, resource, proxies) = (hold.key.kind.short(), &*hold.key.name, &hold.proxies);
    info!(kind, resource, %proxies, instead = %hold.instead, reason = &*hold.reason, "content held back: proxies reject it");
}
