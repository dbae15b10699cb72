//! How a provider wakes one stream, and only that one. An idle stream costs nothing while others have news.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Instant,
};

use crate::{Kinds, Seq, pushes::Pushes};

/// One listener: the stream that joined with it.
#[derive(Debug)]
pub struct Bell(Mutex<State>);

#[derive(Debug)]
struct State {
    seq: Seq,
    /// When it was first rung since the stream last listened.
    rung: Option<Instant>,
    /// For which sequences and types it was rung since.
    pushes: Pushes,
    kinds: Kinds,
    gone: Option<tokio::time::Instant>,
    ended: bool,
    /// It stays here: a stream has one waker for its whole life.
    listener: Option<Waker>,
}

/// What a stream hears.
#[derive(Debug)]
pub struct Rung {
    /// The newest sequence.
    pub seq: Seq,
    /// When the first ring came.
    pub at: Instant,
    /// What there may be news of.
    pub kinds: Kinds,
    /// Since when the workload is gone. `None`: it is there, or was never known.
    pub gone: Option<tokio::time::Instant>,
    /// Somebody wants the stream to end.
    pub(crate) ended: bool,
    pub(crate) pushes: Pushes,
}

impl Bell {
    /// `seq`: what the stream finds when it joins.
    pub fn new(seq: Seq) -> Arc<Bell> {
        Arc::new(Bell(Mutex::new(State {
            seq,
            rung: None,
            pushes: Pushes::default(),
            kinds: Kinds::NONE,
            gone: None,
            ended: false,
            listener: None,
        })))
    }

    /// The class can answer up to here. Never goes back.
    pub fn ring(&self, seq: Seq) {
        self.ring_for(seq, Kinds::ALL, Instant::now());
    }

    /// The same where only some types have news: the stream does not look at the others. `now`: read once for all that are rung.
    pub fn ring_for(&self, seq: Seq, kinds: Kinds, now: Instant) {
        self.tell(now, |state| {
            state.seq = state.seq.max(seq);
            state.kinds = state.kinds.and(kinds);
            state.pushes.push(seq);
        });
    }

    /// The workload of the proxy was there and is gone: unless it comes back, the stream is that of a zombie.
    pub fn lose(&self) {
        self.tell(Instant::now(), |state| state.gone = Some(tokio::time::Instant::now()));
    }

    /// The workload is there again.
    pub fn regain(&self) {
        self.tell(Instant::now(), |state| state.gone = None);
    }

    /// The stream ends.
    pub(crate) fn end(&self) {
        self.tell(Instant::now(), |state| state.ended = true);
    }

    fn tell(&self, now: Instant, what: impl FnOnce(&mut State)) {
        let mut state = self.state();
        what(&mut state);
        let listener = state.listener.clone();
        state.rung.get_or_insert(now);
        drop(state);
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// Since when the workload is gone. `None`: it is there, or was never known.
    pub fn gone(&self) -> Option<tokio::time::Instant> {
        self.state().gone
    }

    pub fn seq(&self) -> Seq {
        self.state().seq
    }

    /// Waits for the next ring. Safe to drop while waiting; only the one who asked last hears it.
    pub async fn rung(&self) -> Rung {
        poll_fn(|cx| self.poll_rung(cx)).await
    }

    pub(crate) fn poll_rung(&self, cx: &Context<'_>) -> Poll<Rung> {
        let mut state = self.state();
        if !state.listener.as_ref().is_some_and(|listener| listener.will_wake(cx.waker())) {
            state.listener = Some(cx.waker().clone());
        }
        let Some(at) = state.rung.take() else { return Poll::Pending };
        let (kinds, pushes) = (std::mem::take(&mut state.kinds), std::mem::take(&mut state.pushes));
        Poll::Ready(Rung { seq: state.seq, at, kinds, gone: state.gone, ended: state.ended, pushes })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::TypeUrl;

    #[tokio::test]
    async fn rings_while_nobody_listens_are_heard_once() {
        let bell = Bell::new(3);
        assert!(bell.rung().now_or_never().is_none());
        bell.ring(4);
        bell.ring(6);
        bell.ring(5);
        let rung = bell.rung().await;
        assert_eq!((rung.seq, rung.kinds, rung.pushes.into_iter().collect()), (6, Kinds::ALL, vec![4, 6, 5]));
        assert!(bell.rung().now_or_never().is_none());
        bell.ring_for(7, [TypeUrl::Route].into_iter().collect(), Instant::now());
        bell.ring_for(8, [TypeUrl::Cluster].into_iter().collect(), Instant::now());
        assert_eq!(bell.rung().await.kinds.iter().collect::<Vec<_>>(), [TypeUrl::Cluster, TypeUrl::Route]);
    }
}
