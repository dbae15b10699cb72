//! What a connection and its streams tell each other about their end. They run in one task, so that what a stream wishes is seen as soon as it has had
//! its turn; and streams are woken when the connection has something to tell.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
};

use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct Closing {
    by: OnceLock<Instant>,
    wish: AtomicU8,
    streams: AtomicUsize,
    /// What ends the connection from outside has to be looked at.
    called: AtomicBool,
    /// It stays here: a task has one waker for its whole life.
    task: Mutex<Option<Waker>>,
}

/// How a stream wants its connection to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    None,
    /// As if it were old.
    Retire,
    /// At once: a status cannot reach a proxy that does not read.
    HangUp,
}

/// The side of one stream.
pub(crate) struct Bound(Arc<Closing>);

impl Closing {
    /// The streams have to end by then. The first word counts.
    pub(crate) fn close(&self, by: Instant) {
        self.by.get_or_init(|| by);
    }

    pub(crate) fn wish(&self) -> Wish {
        match self.wish.load(Ordering::Acquire) {
            0 => Wish::None,
            1 => Wish::Retire,
            _ => Wish::HangUp,
        }
    }

    /// Whether it was woken since the last look. `task`: who is woken from then on.
    pub(crate) fn is_called(&self, task: &Waker) -> bool {
        if !self.called.load(Ordering::Acquire) {
            return false;
        }
        self.task.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| task.clone());
        self.called.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.streams.load(Ordering::Acquire) == 0
    }

    pub(crate) fn bind(self: &Arc<Self>) -> Bound {
        self.streams.fetch_add(1, Ordering::AcqRel);
        // It is the connection's turn, which looks when the streams have had theirs.
        self.called.store(true, Ordering::Release);
        Bound(self.clone())
    }
}

/// Wakes the connection for its own end, as opposed to what happens on its socket and streams.
impl Wake for Closing {
    fn wake(self: Arc<Self>) {
        self.called.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Bound {
    /// The latest time to end. `None`: the connection goes on.
    pub(crate) fn by(&self) -> Option<Instant> {
        self.0.by.get().copied()
    }

    pub(crate) fn wish(&self, wish: Wish) {
        self.0.wish.fetch_max(wish as u8, Ordering::AcqRel);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_wish_and_the_first_word_count() {
        let closing = Arc::<Closing>::default();
        let (one, two) = (closing.bind(), closing.bind());
        assert_eq!((closing.wish(), closing.is_idle()), (Wish::None, false));
        one.wish(Wish::HangUp);
        two.wish(Wish::Retire);
        assert_eq!(closing.wish(), Wish::HangUp);
        let now = Instant::now();
        closing.close(now);
        closing.close(now + std::time::Duration::from_secs(1));
        assert_eq!(two.by(), Some(now));
        drop((one, two));
        assert!(closing.is_idle());
    }
}
