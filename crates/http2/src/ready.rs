//! Which streams of a connection have something to do, so that no other is looked at. What they do is elsewhere.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake},
};

use futures_util::task::AtomicWaker;

#[derive(Default)]
pub(crate) struct Ready {
    state: Mutex<State>,
    task: AtomicWaker,
}

#[derive(Default)]
struct State {
    /// In the order in which they were woken.
    streams: Vec<u32>,
    /// The task runs, or was woken: it looks before it sleeps.
    awake: bool,
}

/// A list that was longer than this once does not keep its room.
const MANY: usize = 16;

/// Wakes the connection for one stream.
pub(crate) struct Nudge {
    stream: u32,
    waits: AtomicBool,
    ready: Arc<Ready>,
}

impl Ready {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task runs. Until it sleeps nobody needs to wake it: woken by its socket, it would run once more for each stream that reads.
    pub(crate) fn runs(&self) {
        self.state().awake = true;
    }

    /// Into `woken`, whose room is used for the next ones.
    pub(crate) fn take(&self, woken: &mut Vec<u32>) {
        woken.clear();
        woken.shrink_to(MANY);
        std::mem::swap(woken, &mut self.state().streams);
    }

    /// Whether the task may sleep: it is woken when a stream is.
    pub(crate) fn sleeps(&self, cx: &Context<'_>) -> bool {
        self.task.register(cx.waker());
        let mut state = self.state();
        state.awake = !state.streams.is_empty();
        !state.awake
    }
}

impl Nudge {
    pub(crate) fn new(stream: u32, ready: &Arc<Ready>) -> Arc<Nudge> {
        Arc::new(Nudge { stream, waits: AtomicBool::new(false), ready: ready.clone() })
    }

    /// It is looked at now; from here on it may be woken again. `false`: it was not woken since it was last looked at.
    pub(crate) fn seen(&self) -> bool {
        self.waits.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.waits.swap(true, Ordering::AcqRel) {
            let mut state = self.ready.state();
            state.streams.push(self.stream);
            let awake = std::mem::replace(&mut state.awake, true);
            drop(state);
            if !awake {
                self.ready.task.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, task::Waker};

    use super::*;

    fn taken(ready: &Ready) -> Vec<u32> {
        let mut woken = Vec::new();
        ready.take(&mut woken);
        woken
    }

    #[test]
    fn a_stream_is_listed_once_until_it_is_seen() {
        let ready = Arc::<Ready>::default();
        let (one, two) = (Nudge::new(1, &ready), Nudge::new(3, &ready));
        let cx = Context::from_waker(Waker::noop());
        assert!(ready.sleeps(&cx));
        two.wake_by_ref();
        one.wake_by_ref();
        two.wake_by_ref();
        assert!(!ready.sleeps(&cx));
        assert_eq!(taken(&ready), [3, 1]);
        two.wake_by_ref();
        assert!(taken(&ready).is_empty(), "it was not seen yet");
        assert!(two.seen() && !two.seen());
        two.wake_by_ref();
        assert_eq!(taken(&ready), [3]);
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_runs_is_not_woken() {
        let (ready, count) = (Arc::<Ready>::default(), Arc::<Count>::default());
        let nudge = Nudge::new(1, &ready);
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        ready.runs();
        nudge.wake_by_ref();
        assert!(!ready.sleeps(&cx), "it has to look first");
        taken(&ready);
        nudge.seen();
        assert!(ready.sleeps(&cx));
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        nudge.wake_by_ref();
        Nudge::new(3, &ready).wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "once, however many are ready");
    }
}
