//! How a provider wakes one stream, and only that one. An idle stream costs nothing while others have news.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Instant,
};

use futures_util::task::AtomicWaker;

use crate::Seq;

/// As many pushes as a journal remembers: nobody asks for the progress of older ones.
pub(crate) const REMEMBERED: usize = 100;

/// One listener: the stream that joined with it.
#[derive(Debug)]
pub struct Bell {
    state: Mutex<State>,
    listener: AtomicWaker,
}

#[derive(Debug)]
struct State {
    seq: Seq,
    /// When it was first rung since the stream last listened.
    rung: Option<Instant>,
    /// For which sequences it was rung since they were last asked for, the newest of them.
    pushes: VecDeque<Seq>,
    gone: Option<tokio::time::Instant>,
}

impl Bell {
    /// `seq`: what the stream finds when it joins.
    pub fn new(seq: Seq) -> Arc<Bell> {
        Arc::new(Bell {
            state: Mutex::new(State { seq, rung: None, pushes: VecDeque::new(), gone: None }),
            listener: AtomicWaker::new(),
        })
    }

    /// The class can answer up to here. Never goes back.
    pub fn ring(&self, seq: Seq) {
        let mut state = self.state();
        state.seq = state.seq.max(seq);
        if state.pushes.len() == REMEMBERED {
            state.pushes.pop_front();
        }
        state.pushes.push_back(seq);
        state.rung.get_or_insert_with(Instant::now);
        drop(state);
        self.listener.wake();
    }

    /// The workload of the proxy was there and is gone: unless it comes back, the stream is that of a zombie.
    pub fn lose(&self) {
        self.set_gone(Some(tokio::time::Instant::now()));
    }

    /// The workload is there again.
    pub fn regain(&self) {
        self.set_gone(None);
    }

    fn set_gone(&self, gone: Option<tokio::time::Instant>) {
        let mut state = self.state();
        state.gone = gone;
        state.rung.get_or_insert_with(Instant::now);
        drop(state);
        self.listener.wake();
    }

    /// Since when the workload is gone. `None`: it is there, or was never known.
    pub fn gone(&self) -> Option<tokio::time::Instant> {
        self.state().gone
    }

    /// The pushes that it was rung for since the last such question.
    pub(crate) fn pushes(&self) -> VecDeque<Seq> {
        std::mem::take(&mut self.state().pushes)
    }

    pub fn seq(&self) -> Seq {
        self.state().seq
    }

    /// Waits for the next ring. Answers the newest sequence and when the first ring for it came. Safe to drop while
    /// waiting; only the one who asked last hears it.
    pub async fn rung(&self) -> (Seq, Instant) {
        poll_fn(|cx| {
            self.listener.register(cx.waker());
            let mut state = self.state();
            state.rung.take().map_or(Poll::Pending, |at| Poll::Ready((state.seq, at)))
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn rings_while_nobody_listens_are_heard_once() {
        let bell = Bell::new(3);
        assert!(bell.rung().now_or_never().is_none());
        bell.ring(4);
        bell.ring(6);
        bell.ring(5);
        assert_eq!(bell.rung().await.0, 6);
        assert!(bell.rung().now_or_never().is_none());
    }
}
