//! Which streams of a connection have something to do, so that no other is looked at. What they do is elsewhere.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake},
};

use futures_util::task::AtomicWaker;

/// In the order in which they were woken.
#[derive(Default)]
pub(crate) struct Ready {
    streams: Mutex<Vec<u32>>,
    task: AtomicWaker,
}

/// Wakes the connection for one stream.
pub(crate) struct Nudge {
    stream: u32,
    waits: AtomicBool,
    ready: Arc<Ready>,
}

impl Ready {
    fn streams(&self) -> MutexGuard<'_, Vec<u32>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.streams())
    }

    /// Whether the task may sleep: it is woken when a stream is. While it runs nobody needs to wake it.
    pub(crate) fn sleeps(&self, cx: &Context<'_>) -> bool {
        self.task.register(cx.waker());
        self.streams().is_empty()
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
            self.ready.streams().push(self.stream);
            self.ready.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

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
        assert_eq!(ready.take(), [3, 1]);
        two.wake_by_ref();
        assert!(ready.take().is_empty(), "it was not seen yet");
        assert!(two.seen() && !two.seen());
        two.wake_by_ref();
        assert_eq!(ready.take(), [3]);
    }
}
