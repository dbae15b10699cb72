//! The ready queue: which streams of a connection were woken, so that the connection polls no other. What a turn of a stream does is in
//! `send`. The interleavings of wakers and the polling task are checked by the loom model in `ready_queue/model.rs`.

#[cfg(test)]
#[cfg(loom)]
mod model;
mod sync;

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
};

use smallvec::SmallVec;
use sync::{AtomicBool, Mutex, MutexGuard};

/// The streams of one connection that are to be polled, and the task that polls them.
#[derive(Default)]
pub(crate) struct ReadyQueue {
    state: Mutex<QueueState>,
    /// Received bytes that the handlers of all streams have not read. Here, because each stream has this queue at hand.
    unread: AtomicUsize,
}

#[derive(Default)]
struct QueueState {
    /// In the order in which they were woken.
    streams: StreamIds,
    /// Kept after a wake-up: a task has one waker for its whole life.
    task: Option<Waker>,
    /// The task runs or was woken: it looks into the queue before it parks.
    task_awake: bool,
}

/// Mostly one, which needs no allocation.
pub(crate) type StreamIds = SmallVec<[u32; 4]>;

/// Puts one stream into the ready queue and wakes the task of its connection.
pub(crate) struct StreamWaker {
    stream: u32,
    /// The stream is in the queue, or in a list that the task has taken and not worked off.
    queued: AtomicBool,
    queue: Arc<ReadyQueue>,
}

impl ReadyQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unread(&self) -> usize {
        self.unread.load(Ordering::Relaxed)
    }

    /// To be called when the task is polled: until it parks, `enqueue` does not wake it. Otherwise a task that was woken by its socket
    /// would be polled once more for each stream that has read data.
    pub(crate) fn mark_running(&self) {
        self.state().task_awake = true;
    }

    /// Takes all queued streams.
    pub(crate) fn take(&self) -> StreamIds {
        std::mem::take(&mut self.state().streams)
    }

    /// `true`: the queue is empty, the task may return `Pending` and is woken by the next `enqueue`. `false`: there is more to do.
    pub(crate) fn try_park(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        if !state.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            state.task = Some(cx.waker().clone());
        }
        state.task_awake = !state.streams.is_empty();
        !state.task_awake
    }
}

impl StreamWaker {
    pub(crate) fn new(stream: u32, queue: &Arc<ReadyQueue>) -> StreamWaker {
        StreamWaker { stream, queued: AtomicBool::new(false), queue: queue.clone() }
    }

    /// The counter of the connection that the stream belongs to.
    pub(crate) fn unread(&self) -> &AtomicUsize {
        &self.queue.unread
    }

    /// To be called before the stream is polled: from here on it may be queued again. `false`: it was not woken since its last turn.
    ///
    /// Acquire: what a waker wrote before `enqueue` is visible to the poll that follows, also if it found the stream queued already.
    pub(crate) fn take_queued(&self) -> bool {
        self.queued.swap(false, Ordering::AcqRel)
    }

    /// Queues the stream, unless it is queued already, and wakes the task, if it is parked.
    pub(crate) fn enqueue(&self) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.queue.state();
        state.streams.push(self.stream);
        let awake = std::mem::replace(&mut state.task_awake, true);
        let task = if awake { None } else { state.task.clone() };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.enqueue();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_stream_is_queued_once_until_it_is_polled() {
        let queue = Arc::<ReadyQueue>::default();
        let (one, two) = (StreamWaker::new(1, &queue), StreamWaker::new(3, &queue));
        let cx = Context::from_waker(Waker::noop());
        assert!(queue.try_park(&cx));
        two.enqueue();
        one.enqueue();
        two.enqueue();
        assert!(!queue.try_park(&cx));
        assert_eq!(queue.take()[..], [3, 1]);
        two.enqueue();
        assert!(queue.take().is_empty(), "its turn has not begun");
        assert!(two.take_queued() && !two.take_queued());
        two.enqueue();
        assert_eq!(queue.take()[..], [3]);
    }

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_running_task_is_not_woken() {
        let (queue, count) = (Arc::<ReadyQueue>::default(), Arc::<WakeCount>::default());
        let stream = StreamWaker::new(1, &queue);
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        queue.mark_running();
        stream.enqueue();
        assert!(!queue.try_park(&cx), "a stream is queued");
        queue.take();
        stream.take_queued();
        assert!(queue.try_park(&cx));
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        stream.enqueue();
        StreamWaker::new(3, &queue).enqueue();
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "once, however many streams are queued");
    }
}
