//! How a provider wakes one stream, and only that one. An idle stream costs nothing while others have changes.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Instant,
};

use crate::{Kinds, Seq, protocol::pending_pushes::PendingPushes};

/// Notifies the one stream that joined with it.
#[derive(Debug)]
pub struct Notifier(Mutex<State>);

#[derive(Debug)]
struct State {
    seq: Seq,
    /// When the first notification came that the stream has not taken.
    since: Option<Instant>,
    /// The sequences and types of the notifications since then.
    pushes: PendingPushes,
    kinds: Kinds,
    workload_gone_since: Option<tokio::time::Instant>,
    end_requested: bool,
    /// Set once: a stream has one waker for its whole life.
    waker: Option<Waker>,
}

/// What a stream is notified of: all notifications since it last took one.
#[derive(Debug)]
pub struct Notification {
    /// The newest sequence.
    pub seq: Seq,
    /// When the first of the notifications came.
    pub at: Instant,
    /// Types that may have changed.
    pub kinds: Kinds,
    /// Since when the workload is gone. `None`: it exists, or was never known.
    pub workload_gone_since: Option<tokio::time::Instant>,
    /// The stream has to end.
    pub(crate) end_requested: bool,
    pub(crate) pushes: PendingPushes,
}

impl Notifier {
    /// `seq`: the sequence at which the stream joins.
    pub fn new(seq: Seq) -> Arc<Notifier> {
        Arc::new(Notifier(Mutex::new(State {
            seq,
            since: None,
            pushes: PendingPushes::default(),
            kinds: Kinds::NONE,
            workload_gone_since: None,
            end_requested: false,
            waker: None,
        })))
    }

    /// The class can answer up to this sequence. Never goes back.
    pub fn notify_every_type(&self, seq: Seq) {
        self.notify(seq, Kinds::ALL, Instant::now());
    }

    /// The same where only some types changed: the stream does not look at the others. `now`: read once for all streams that are notified.
    pub fn notify(&self, seq: Seq, kinds: Kinds, now: Instant) {
        self.update(now, |state| {
            state.seq = state.seq.max(seq);
            state.kinds = state.kinds.union(kinds);
            state.pushes.push(seq);
        });
    }

    /// The workload of the proxy existed and is gone: unless it comes back, the stream is a zombie.
    pub fn mark_workload_gone(&self) {
        self.update(Instant::now(), |state| state.workload_gone_since = Some(tokio::time::Instant::now()));
    }

    /// The workload exists again.
    pub fn mark_workload_present(&self) {
        self.update(Instant::now(), |state| state.workload_gone_since = None);
    }

    pub(crate) fn request_end(&self) {
        self.update(Instant::now(), |state| state.end_requested = true);
    }

    fn update(&self, now: Instant, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waker = state.waker.clone();
        state.since.get_or_insert(now);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Since when the workload is gone. `None`: it exists, or was never known.
    pub fn workload_gone_since(&self) -> Option<tokio::time::Instant> {
        self.state().workload_gone_since
    }

    pub fn seq(&self) -> Seq {
        self.state().seq
    }

    /// Waits for the next notification. Cancellation safe; only the last waiter is woken.
    pub async fn notified(&self) -> Notification {
        poll_fn(|cx| self.poll_notified(cx)).await
    }

    pub(crate) fn poll_notified(&self, cx: &Context<'_>) -> Poll<Notification> {
        let mut state = self.state();
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        let Some(at) = state.since.take() else { return Poll::Pending };
        let (kinds, pushes) = (std::mem::take(&mut state.kinds), std::mem::take(&mut state.pushes));
        let State { seq, workload_gone_since, end_requested, .. } = *state;
        Poll::Ready(Notification { seq, at, kinds, workload_gone_since, end_requested, pushes })
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
    async fn notifications_that_nobody_waits_for_are_merged() {
        let notifier = Notifier::new(3);
        assert!(notifier.notified().now_or_never().is_none());
        notifier.notify_every_type(4);
        notifier.notify_every_type(6);
        notifier.notify_every_type(5);
        let Notification { seq, kinds, pushes, .. } = notifier.notified().await;
        assert_eq!((seq, kinds, pushes.into_iter().collect()), (6, Kinds::ALL, vec![4, 6, 5]));
        assert!(notifier.notified().now_or_never().is_none());
        notifier.notify(7, [TypeUrl::Route].into_iter().collect(), Instant::now());
        notifier.notify(8, [TypeUrl::Cluster].into_iter().collect(), Instant::now());
        assert_eq!(notifier.notified().await.kinds.iter().collect::<Vec<_>>(), [TypeUrl::Cluster, TypeUrl::Route]);
    }
}
