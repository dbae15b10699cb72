//! How many streams are written to at a time, and who is next: one stream of each namespace in turn. Who does not get on
//! loses its slot. Knows nothing of what is written.

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

/// A proxy that takes nothing for this long loses its slot: its flow-control window is full.
const STALLED: Duration = Duration::from_millis(5);

pub(crate) struct Throttle {
    slots: usize,
    began: Instant,
    queue: Mutex<Queue>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Queue {
    inside: Vec<Arc<Seat>>,
    /// Somebody looks at who does not get on. One for all: a timer of each stream would ring with every push.
    watched: bool,
    waiting: usize,
    /// Namespaces in which somebody waits; the first is the next to be served.
    turns: VecDeque<Arc<str>>,
    by_namespace: HashMap<Arc<str>, VecDeque<Arc<Seat>>>,
}

/// A stream's way to a slot. Dropping it gives everything back.
pub(crate) struct Pass {
    throttle: Arc<Throttle>,
    seat: Arc<Seat>,
}

/// Its place is written with the queue locked only.
struct Seat {
    namespace: Arc<str>,
    place: AtomicU8,
    /// When it last got on, in milliseconds of the throttle.
    progress: AtomicU64,
    /// Of the stream, which has one for its whole life.
    waker: OnceLock<Waker>,
}

const OUTSIDE: u8 = 0;
const WAITING: u8 = 1;
const INSIDE: u8 = 2;

impl Throttle {
    /// `slots`: 0 means as many as istiod would take for this machine.
    pub(crate) fn new(slots: usize, metrics: Arc<Metrics>) -> Arc<Throttle> {
        let slots =
            if slots == 0 { slots_for(std::thread::available_parallelism().map_or(1, usize::from)) } else { slots };
        Arc::new(Throttle { slots, began: Instant::now(), queue: Mutex::default(), metrics })
    }

    pub(crate) fn pass(self: &Arc<Self>, namespace: &str) -> Pass {
        let (place, progress, waker) = (AtomicU8::new(OUTSIDE), AtomicU64::new(0), OnceLock::new());
        Pass { throttle: self.clone(), seat: Arc::new(Seat { namespace: namespace.into(), place, progress, waker }) }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue().waiting
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, queue: &Queue) {
        self.metrics.queue(queue.waiting, queue.inside.len());
    }

    fn now(&self) -> u64 {
        // In half a billion years it is full.
        (clock::now() - self.began).as_millis() as u64
    }

    /// As long as somebody has a slot.
    async fn watch(self: Arc<Self>) {
        loop {
            sleep(STALLED).await;
            let mut queue = self.queue();
            if queue.inside.is_empty() {
                queue.watched = false;
                return;
            }
            let now = self.now();
            let stalled = |seat: &&Arc<Seat>| seat.progress.load(Ordering::Relaxed) + STALLED.as_millis() as u64 <= now;
            let stalled: Vec<_> = queue.inside.iter().filter(stalled).cloned().collect();
            for seat in &stalled {
                self.take_back(&mut queue, seat);
            }
            if !stalled.is_empty() {
                self.show(&queue);
            }
        }
    }

    fn take_back(&self, queue: &mut Queue, seat: &Arc<Seat>) {
        match seat.place.swap(OUTSIDE, Ordering::AcqRel) {
            INSIDE => {
                queue.inside.retain(|other| !Arc::ptr_eq(other, seat));
                if let Some(next) = queue.next() {
                    self.let_in(queue, &next);
                    if let Some(waker) = next.waker.get() {
                        waker.wake_by_ref();
                    }
                }
            }
            WAITING => queue.remove(seat),
            _ => {}
        }
    }

    fn let_in(&self, queue: &mut Queue, seat: &Arc<Seat>) {
        seat.progress.store(self.now(), Ordering::Relaxed);
        seat.place.store(INSIDE, Ordering::Release);
        queue.inside.push(seat.clone());
    }
}

fn slots_for(cpus: usize) -> usize {
    (15 + 5 * cpus).min(100)
}

impl Pass {
    /// Ready: this stream may be written to, until `leave`. Only one task may wait for it at a time.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        self.seat.waker.get_or_init(|| cx.waker().clone());
        match self.seat.place.load(Ordering::Acquire) {
            INSIDE => return Poll::Ready(()),
            WAITING => return Poll::Pending,
            _ => {}
        }
        self.throttle.metrics.stages().run(Stage::PushQueue, || self.enter())
    }

    fn enter(&self) -> Poll<()> {
        let mut queue = self.throttle.queue();
        let entered = queue.inside.len() < self.throttle.slots;
        if entered {
            self.throttle.let_in(&mut queue, &self.seat);
        } else {
            queue.add(&self.seat);
        }
        if !std::mem::replace(&mut queue.watched, true) {
            tokio::spawn(self.throttle.clone().watch());
        }
        self.throttle.show(&queue);
        if entered { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The proxy takes what is written to it.
    pub(crate) fn gets_on(&self) {
        self.seat.progress.store(self.throttle.now(), Ordering::Relaxed);
    }

    /// The slot goes to the next in turn. Without one, or without a wish for one, nothing happens.
    pub(crate) fn leave(&self) {
        if self.seat.place.load(Ordering::Acquire) != OUTSIDE {
            self.throttle.metrics.stages().run(Stage::PushQueue, || self.give_back());
        }
    }

    fn give_back(&self) {
        let mut queue = self.throttle.queue();
        self.throttle.take_back(&mut queue, &self.seat);
        self.throttle.show(&queue);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Queue {
    fn add(&mut self, seat: &Arc<Seat>) {
        seat.place.store(WAITING, Ordering::Release);
        self.waiting += 1;
        let line = self.by_namespace.entry(seat.namespace.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(seat.namespace.clone());
        }
        line.push_back(seat.clone());
    }

    fn next(&mut self) -> Option<Arc<Seat>> {
        let namespace = self.turns.pop_front()?;
        let line = self.by_namespace.get_mut(&namespace)?;
        let seat = line.pop_front();
        if line.is_empty() {
            self.by_namespace.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        self.waiting -= usize::from(seat.is_some());
        seat
    }

    fn remove(&mut self, seat: &Arc<Seat>) {
        let namespace = &seat.namespace;
        let Some(line) = self.by_namespace.get_mut(namespace) else { return };
        let before = line.len();
        line.retain(|other| !Arc::ptr_eq(other, seat));
        self.waiting -= before - line.len();
        if line.is_empty() {
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

    fn inside(pass: &Pass) -> bool {
        pass.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn no_more_than_the_slots_are_inside() {
        let throttle = throttle(2);
        let passes: Vec<_> = (0..4).map(|_| throttle.pass("a")).collect();
        let shown = || passes.iter().map(inside).collect::<Vec<_>>();
        assert_eq!(shown(), [true, true, false, false]);
        passes[0].leave();
        assert_eq!(shown(), [false, true, true, false], "and the first waits again");
        passes[1].leave();
        passes[2].leave();
        assert_eq!(shown(), [true, false, false, true]);
    }

    #[tokio::test]
    async fn namespaces_take_turns() {
        let throttle = throttle(1);
        let noisy: Vec<_> = (0..100).map(|_| throttle.pass("noisy")).collect();
        assert!(inside(&noisy[0]));
        assert!(noisy[1..].iter().all(|pass| !inside(pass)));
        let quiet = throttle.pass("quiet");
        assert!(!inside(&quiet));
        noisy[0].leave();
        assert!(inside(&noisy[1]), "it was here first");
        noisy[1].leave();
        assert!(inside(&quiet), "before the other 98");
    }

    #[tokio::test]
    async fn who_goes_leaves_neither_a_slot_nor_a_place_in_the_queue() {
        let throttle = throttle(1);
        let (one, two, three) = (throttle.pass("a"), throttle.pass("a"), throttle.pass("b"));
        assert!(inside(&one) && !inside(&two) && !inside(&three));
        drop(two);
        assert_eq!(throttle.queue().waiting, 1);
        drop(one);
        assert!(inside(&three));
        drop(three);
        let queue = throttle.queue();
        assert_eq!((queue.inside.len(), queue.waiting, queue.turns.len(), queue.by_namespace.len()), (0, 0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_get_on_loses_its_slot() {
        let throttle = throttle(1);
        let (slow, other) = (throttle.pass("a"), throttle.pass("a"));
        assert!(inside(&slow) && !inside(&other));
        for _ in 0..5 {
            sleep(STALLED / 2).await;
            slow.gets_on();
            assert!(!inside(&other));
        }
        sleep(STALLED * 3).await;
        assert!(inside(&other) && !inside(&slow), "it waits again");
        drop(other);
        assert!(inside(&slow));
        drop(slow);
        sleep(STALLED * 2).await;
        assert!(!throttle.queue().watched, "nobody is left to look at");
    }

    #[test]
    fn zero_follows_the_size_of_the_machine() {
        assert_eq!([1, 2, 16, 64].map(slots_for), [20, 25, 95, 100]);
    }
}
