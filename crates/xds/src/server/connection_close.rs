//! How a connection and its streams agree on their end. They run in one task, so that the request of a stream is seen as soon as it has had
//! its turn; and streams are polled when the connection sets a deadline.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
};

use tokio::time::Instant;

/// Shared by a connection and its streams.
#[derive(Default)]
pub(crate) struct ConnectionClose {
    deadline: OnceLock<Instant>,
    request: AtomicU8,
    streams: AtomicUsize,
    /// The futures that end the connection have to be polled.
    woken: AtomicBool,
    /// Set once: a task has one waker for its whole life.
    task: Mutex<Option<Waker>>,
}

/// How a stream wants its connection to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseRequest {
    None,
    /// As if it had reached its maximum age.
    Graceful,
    /// At once: a status cannot reach a proxy that does not read.
    Abort,
}

/// The side of one stream.
pub(crate) struct StreamClose(Arc<ConnectionClose>);

impl ConnectionClose {
    /// The streams have to end by then. The first deadline counts.
    pub(crate) fn close(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
    }

    pub(crate) fn request(&self) -> CloseRequest {
        match self.request.load(Ordering::Acquire) {
            0 => CloseRequest::None,
            1 => CloseRequest::Graceful,
            _ => CloseRequest::Abort,
        }
    }

    /// Whether it was woken since the last call. `task`: is woken from then on.
    pub(crate) fn take_wake(&self, task: &Waker) -> bool {
        if !self.woken.load(Ordering::Acquire) {
            return false;
        }
        self.task.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| task.clone());
        self.woken.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.streams.load(Ordering::Acquire) == 0
    }

    pub(crate) fn add_stream(self: &Arc<Self>) -> StreamClose {
        self.streams.fetch_add(1, Ordering::AcqRel);
        // The task of the connection runs, and checks this after the turns of its streams.
        self.woken.store(true, Ordering::Release);
        StreamClose(self.clone())
    }
}

/// Wakes the connection for its own end, as opposed to events on its socket and streams.
impl Wake for ConnectionClose {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl StreamClose {
    /// By when the stream has to end. `None`: the connection goes on.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.deadline.get().copied()
    }

    /// The strongest request counts.
    pub(crate) fn request(&self, request: CloseRequest) {
        self.0.request.fetch_max(request as u8, Ordering::AcqRel);
    }
}

impl Drop for StreamClose {
    fn drop(&mut self) {
        if self.0.streams.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The connection is idle. Its task runs, and checks this after the turns of its streams.
            self.0.woken.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_request_and_the_first_deadline_count() {
        let close = Arc::<ConnectionClose>::default();
        let (one, two) = (close.add_stream(), close.add_stream());
        assert_eq!((close.request(), close.is_idle()), (CloseRequest::None, false));
        one.request(CloseRequest::Abort);
        two.request(CloseRequest::Graceful);
        assert_eq!(close.request(), CloseRequest::Abort);
        let now = Instant::now();
        close.close(now);
        close.close(now + std::time::Duration::from_secs(1));
        assert_eq!(two.deadline(), Some(now));
        drop(one);
        assert!(!close.take_wake(Waker::noop()) || !close.is_idle());
        drop(two);
        assert!(
            close.is_idle() && close.take_wake(Waker::noop()),
            "the last stream makes the connection poll its own end"
        );
    }
}
