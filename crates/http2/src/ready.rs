//! Which streams of a connection have something to do, so that no other is looked at. What they do is elsewhere.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use smallvec::SmallVec;

#[derive(Default)]
pub(crate) struct Ready(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order in which they were woken.
    streams: Woken,
    /// It stays here: a task has one waker for its whole life.
    task: Option<Waker>,
    /// The task runs, or was woken: it looks before it sleeps.
    awake: bool,
}

/// Mostly one, which needs no memory of its own.
pub(crate) type Woken = SmallVec<[u32; 4]>;

/// Wakes the connection for one stream.
pub(crate) struct Nudge {
    stream: u32,
    waits: AtomicBool,
    ready: Arc<Ready>,
}

impl Ready {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task runs. Until it sleeps nobody needs to wake it: woken by its socket, it would run once more for each stream that reads.
    pub(crate) fn runs(&self) {
        self.state().awake = true;
    }

    pub(crate) fn take(&self) -> Woken {
        std::mem::take(&mut self.state().streams)
    }

    /// Whether the task may sleep: it is woken when a stream is.
    pub(crate) fn sleeps(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        if !state.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            state.task = Some(cx.waker().clone());
        }
        state.awake = !state.streams.is_empty();
        !state.awake
    }
}

impl Nudge {
    pub(crate) fn new(stream: u32, ready: &Arc<Ready>) -> Nudge {
        Nudge { stream, waits: AtomicBool::new(false), ready: ready.clone() }
    }

    /// It is looked at now; from here on it may be woken again. `false`: it was not woken since it was last looked at.
    pub(crate) fn seen(&self) -> bool {
        self.waits.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn nudge(&self) {
        if self.waits.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.ready.state();
        state.streams.push(self.stream);
        let awake = std::mem::replace(&mut state.awake, true);
        let task = if awake { None } else { state.task.clone() };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.nudge();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_stream_is_listed_once_until_it_is_seen() {
        let ready = Arc::<Ready>::default();
        let (one, two) = (Nudge::new(1, &ready), Nudge::new(3, &ready));
        let cx = Context::from_waker(Waker::noop());
        assert!(ready.sleeps(&cx));
        two.nudge();
        one.nudge();
        two.nudge();
        assert!(!ready.sleeps(&cx));
        assert_eq!(ready.take()[..], [3, 1]);
        two.nudge();
        assert!(ready.take().is_empty(), "it was not seen yet");
        assert!(two.seen() && !two.seen());
        two.nudge();
        assert_eq!(ready.take()[..], [3]);
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
        nudge.nudge();
        assert!(!ready.sleeps(&cx), "it has to look first");
        ready.take();
        nudge.seen();
        assert!(ready.sleeps(&cx));
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        nudge.nudge();
        Nudge::new(3, &ready).nudge();
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "once, however many are ready");
    }
}
