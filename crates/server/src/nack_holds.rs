//! Content that proxies reject is held back. Rejections are collected here; what is held, and from whom, is decided in `views`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::{self, Receiver};
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep};
use tracing::{error, info};
use views::{Hold, PendingNotifications, Refusal, Views};
use xds::{Connections, Stages};

use crate::pipeline::notify;

/// Proxies of a class answer within milliseconds of each other: their rejections are judged together.
const GATHER: Duration = Duration::from_millis(20);
/// How often holds are looked at that may have expired, or become those of a class.
const REVIEW: Duration = Duration::from_secs(1);
/// Rejections that wait to be judged. Of more, each comes again with the next change.
const QUEUED: usize = 4096;

/// Holds what proxies reject for as long as the process lives. `term`: of a hold.
pub(crate) async fn follow(views: Arc<Views>, streams: Arc<Connections>, term: Duration, stages: Stages) {
    let (sender, mut refusals) = mpsc::channel(QUEUED);
    views.listen_to_refusals(Box::new(move |refusal| drop(sender.try_send(refusal))));
    let mut reviews = interval(REVIEW);
    loop {
        let batch = tokio::select! {
            batch = next_batch(&mut refusals) => batch,
            _ = reviews.tick() => Vec::new(),
        };
        let (views, streams) = (views.clone(), streams.clone());
        let judged = spawn_blocking(move || judge(&views, &batch, &streams, term));
        match judged.await {
            Ok(notifications) => notify(notifications, stages.clone()).await,
            Err(error) => error!(%error, "what proxies reject could not be judged"),
        }
    }
}

async fn next_batch(refusals: &mut Receiver<Refusal>) -> Vec<Refusal> {
    // The sender lives as long as the views.
    let Some(first) = refusals.recv().await else { return std::future::pending().await };
    sleep(GATHER).await;
    let mut batch = vec![first];
    batch.extend(std::iter::from_fn(|| refusals.try_recv().ok()));
    batch
}

fn judge(views: &Views, batch: &[Refusal], streams: &Connections, term: Duration) -> PendingNotifications {
    if batch.is_empty() {
        return views.review_holds(streams, SystemTime::now());
    }
    let before = views.holds();
    let notifications = views.hold_refused(batch, streams, term);
    let after = views.holds();
    for hold in after.iter().filter(|hold| !before.iter().any(|known| Arc::ptr_eq(known, hold))) {
        log(hold);
    }
    notifications
}

fn log(hold: &Hold) {
    let (kind, resource, proxies) = (hold.key.kind.short(), &*hold.key.name, &hold.proxies);
    info!(kind, resource, %proxies, instead = %hold.instead, reason = &*hold.reason, "content held back: proxies reject it");
}
