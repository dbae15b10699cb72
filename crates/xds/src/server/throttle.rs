//! The push queue: how many streams are written to at a time, and which is next, one stream of each namespace in turn. A stalled stream
//! loses its permit. Knows nothing of what is written.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use http2::clock;
use tokio::time::{Instant, sleep};

use crate::{Metrics, Stage};

/// A proxy that reads nothing for this long loses its permit: its flow-control window is full.
const STALLED: Duration = Duration::from_millis(5);

pub(crate) struct Throttle {
    slots: usize,
    epoch: Instant,
    queue: Mutex<Queue>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Queue {
    granted: Vec<Arc<PermitState>>,
    /// A task looks for stalled streams. One for all: a timer of each stream would fire with every push.
    watched: bool,
    queued: usize,
    /// Namespaces with queued streams; the first is the next to be served.
    turns: VecDeque<Arc<str>>,
    by_namespace: HashMap<Arc<str>, VecDeque<Arc<PermitState>>>,
}

/// The push permit of one stream, granted, queued or neither. Dropping it releases everything.
pub(crate) struct PushPermit {
    throttle: Arc<Throttle>,
    state: Arc<PermitState>,
}

/// `status` is written with the queue locked only.
struct PermitState {
    namespace: Arc<str>,
    status: AtomicU8,
    /// When it last made progress, in milliseconds since the epoch of the throttle.
    progress: AtomicU64,
    /// Of the stream, which has one for its whole life.
    waker: OnceLock<Waker>,
}

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const GRANTED: u8 = 2;

impl Throttle {
    /// `slots`: 0 means as many as istiod would use on this machine.
    pub(crate) fn new(slots: usize, metrics: Arc<Metrics>) -> Arc<Throttle> {
        let slots =
            if slots == 0 { slots_for(std::thread::available_parallelism().map_or(1, usize::from)) } else { slots };
        Arc::new(Throttle { slots, epoch: Instant::now(), queue: Mutex::default(), metrics })
    }

    pub(crate) fn permit(self: &Arc<Self>, namespace: &str) -> PushPermit {
        let (status, progress, waker) = (AtomicU8::new(IDLE), AtomicU64::new(0), OnceLock::new());
        PushPermit {
            throttle: self.clone(),
            state: Arc::new(PermitState { namespace: namespace.into(), status, progress, waker }),
        }
    }

    pub(crate) fn queue_len(&self) -> usize {
        self.queue().queued
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, queue: &Queue) {
        self.metrics.record_queue(queue.queued, queue.granted.len());
    }

    fn now(&self) -> u64 {
        // Overflows in half a billion years.
        (clock::now() - self.epoch).as_millis() as u64
    }

    /// Revokes the permits of stalled streams, as long as there are permits.
    async fn watch(self: Arc<Self>) {
        loop {
            sleep(STALLED).await;
            let mut queue = self.queue();
            if queue.granted.is_empty() {
                queue.watched = false;
                return;
            }
            let now = self.now();
            let stalled =
                |state: &&Arc<PermitState>| state.progress.load(Ordering::Relaxed) + STALLED.as_millis() as u64 <= now;
            let stalled: Vec<_> = queue.granted.iter().filter(stalled).cloned().collect();
            for state in &stalled {
                self.revoke(&mut queue, state);
            }
            if !stalled.is_empty() {
                self.record(&queue);
            }
        }
    }

    fn revoke(&self, queue: &mut Queue, state: &Arc<PermitState>) {
        match state.status.swap(IDLE, Ordering::AcqRel) {
            GRANTED => {
                queue.granted.retain(|other| !Arc::ptr_eq(other, state));
                if let Some(next) = queue.next() {
                    self.grant(queue, &next);
                    if let Some(waker) = next.waker.get() {
                        waker.wake_by_ref();
                    }
                }
            }
            QUEUED => queue.remove(state),
            _ => {}
        }
    }

    fn grant(&self, queue: &mut Queue, state: &Arc<PermitState>) {
        state.progress.store(self.now(), Ordering::Relaxed);
        state.status.store(GRANTED, Ordering::Release);
        queue.granted.push(state.clone());
    }
}

fn slots_for(cpus: usize) -> usize {
    (15 + 5 * cpus).min(100)
}

impl PushPermit {
    /// Ready: this stream may be written to, until `release`. Only one task may wait for it at a time.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        self.state.waker.get_or_init(|| cx.waker().clone());
        match self.state.status.load(Ordering::Acquire) {
            GRANTED => return Poll::Ready(()),
            QUEUED => return Poll::Pending,
            _ => {}
        }
        self.throttle.metrics.stages().run(Stage::PushQueue, || self.request())
    }

    fn request(&self) -> Poll<()> {
        let mut queue = self.throttle.queue();
        let granted = queue.granted.len() < self.throttle.slots;
        if granted {
            self.throttle.grant(&mut queue, &self.state);
        } else {
            queue.add(&self.state);
        }
        if !std::mem::replace(&mut queue.watched, true) {
            tokio::spawn(self.throttle.clone().watch());
        }
        self.throttle.record(&queue);
        if granted { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The proxy reads what is written to it.
    pub(crate) fn record_progress(&self) {
        self.state.progress.store(self.throttle.now(), Ordering::Relaxed);
    }

    /// The permit goes to the next stream in the queue. If it is neither granted nor queued, nothing happens.
    pub(crate) fn release(&self) {
        if self.state.status.load(Ordering::Acquire) != IDLE {
            self.throttle.metrics.stages().run(Stage::PushQueue, || self.release_now());
        }
    }

    fn release_now(&self) {
        let mut queue = self.throttle.queue();
        self.throttle.revoke(&mut queue, &self.state);
        self.throttle.record(&queue);
    }
}

impl Drop for PushPermit {
    fn drop(&mut self) {
        self.release();
    }
}

impl Queue {
    fn add(&mut self, state: &Arc<PermitState>) {
        state.status.store(QUEUED, Ordering::Release);
        self.queued += 1;
        let streams = self.by_namespace.entry(state.namespace.clone()).or_default();
        if streams.is_empty() {
            self.turns.push_back(state.namespace.clone());
        }
        streams.push_back(state.clone());
    }

    fn next(&mut self) -> Option<Arc<PermitState>> {
        let namespace = self.turns.pop_front()?;
        let streams = self.by_namespace.get_mut(&namespace)?;
        let state = streams.pop_front();
        if streams.is_empty() {
            self.by_namespace.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        self.queued -= usize::from(state.is_some());
        state
    }

    fn remove(&mut self, state: &Arc<PermitState>) {
        let namespace = &state.namespace;
        let Some(streams) = self.by_namespace.get_mut(namespace) else { return };
        let before = streams.len();
        streams.retain(|other| !Arc::ptr_eq(other, state));
        self.queued -= before - streams.len();
        if streams.is_empty() {
            self.by_namespace.remove(namespace);
            self.turns.retain(|other| other != namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use prometheus::Registry;

    use super::*;

    fn throttle(slots: usize) -> Arc<Throttle> {
        Throttle::new(slots, Metrics::new(&Registry::new()).expect("registers"))
    }

    fn is_granted(permit: &PushPermit) -> bool {
        permit.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn grants_no_more_permits_than_slots() {
        let throttle = throttle(2);
        let permits: Vec<_> = (0..4).map(|_| throttle.permit("a")).collect();
        let granted = || permits.iter().map(is_granted).collect::<Vec<_>>();
        assert_eq!(granted(), [true, true, false, false]);
        permits[0].release();
        assert_eq!(granted(), [false, true, true, false], "the first is queued again");
        permits[1].release();
        permits[2].release();
        assert_eq!(granted(), [true, false, false, true]);
    }

    #[tokio::test]
    async fn namespaces_take_turns() {
        let throttle = throttle(1);
        let noisy: Vec<_> = (0..100).map(|_| throttle.permit("noisy")).collect();
        assert!(is_granted(&noisy[0]));
        assert!(noisy[1..].iter().all(|permit| !is_granted(permit)));
        let quiet = throttle.permit("quiet");
        assert!(!is_granted(&quiet));
        noisy[0].release();
        assert!(is_granted(&noisy[1]), "it was queued first");
        noisy[1].release();
        assert!(is_granted(&quiet), "before the other 98");
    }

    #[tokio::test]
    async fn a_dropped_permit_leaves_the_queue() {
        let throttle = throttle(1);
        let (one, two, three) = (throttle.permit("a"), throttle.permit("a"), throttle.permit("b"));
        assert!(is_granted(&one) && !is_granted(&two) && !is_granted(&three));
        drop(two);
        assert_eq!(throttle.queue().queued, 1);
        drop(one);
        assert!(is_granted(&three));
        drop(three);
        let queue = throttle.queue();
        assert_eq!((queue.granted.len(), queue.queued, queue.turns.len(), queue.by_namespace.len()), (0, 0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_stream_loses_its_permit() {
        let throttle = throttle(1);
        let (slow, other) = (throttle.permit("a"), throttle.permit("a"));
        assert!(is_granted(&slow) && !is_granted(&other));
        for _ in 0..5 {
            sleep(STALLED / 2).await;
            slow.record_progress();
            assert!(!is_granted(&other));
        }
        sleep(STALLED * 3).await;
        assert!(is_granted(&other) && !is_granted(&slow), "it is queued again");
        drop(other);
        assert!(is_granted(&slow));
        drop(slow);
        sleep(STALLED * 2).await;
        assert!(!throttle.queue().watched, "no permit is left to watch");
    }

    #[test]
    fn zero_slots_depend_on_the_number_of_cpus() {
        assert_eq!([1, 2, 16, 64].map(slots_for), [20, 25, 95, 100]);
    }
}
