//! The last pushes as the debug pages show them: their causes, their recipients and their progress.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use http2::clock;
use tokio::time::Instant;

use crate::{Seq, protocol::pending_pushes::MAX_PUSHES};

pub struct Journal {
    pushes: Mutex<VecDeque<PushRecord>>,
    capacity: usize,
}

/// A snapshot of one push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    pub seq: Seq,
    /// The cause, as given by the source of the change.
    pub cause: String,
    /// When the change was complete and ready to be sent. `None`: not recorded.
    pub at: Option<SystemTime>,
    /// From the arrival of the oldest change to the beginning of the refresh.
    pub debounce: Duration,
    /// Computing what changed.
    pub refresh: Duration,
    /// Classes of proxies for which something changed, and their streams.
    pub classes: usize,
    pub streams: usize,
    /// Responses that were sent, ACKed and NACKed.
    pub sent: u64,
    pub acked: u64,
    pub rejected: u64,
    /// Streams that have completed it: everything that they were sent since is ACKed.
    pub done: usize,
    /// From `at` to the first response handed to a proxy, the last one, the last answer, and the last stream that was done.
    pub first_sent: Option<Duration>,
    pub last_sent: Option<Duration>,
    pub last_answer: Option<Duration>,
    pub last_done: Option<Duration>,
}

struct PushRecord {
    push: Push,
    began: Instant,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal::new(MAX_PUSHES)
    }
}

impl Journal {
    pub fn new(capacity: usize) -> Journal {
        Journal { pushes: Mutex::default(), capacity: capacity.max(1) }
    }

    /// Records a push before its streams are notified.
    pub fn begin(&self, push: Push) {
        let Push { seq, cause, classes, streams, debounce, refresh, .. } = &push;
        tracing::debug!(push = seq, cause, classes, streams, ?debounce, ?refresh, "push started");
        let mut pushes = self.pushes();
        if pushes.len() == self.capacity {
            pushes.pop_front();
        }
        let push = Push { at: Some(push.at.unwrap_or_else(SystemTime::now)), ..push };
        pushes.push_back(PushRecord { push, began: clock::now() });
    }

    /// The newest push is the last.
    pub fn snapshot(&self) -> Vec<Push> {
        self.pushes().iter().map(|entry| entry.push.clone()).collect()
    }

    /// Returns how long it took to compute what is sent. `None`: the push is no longer recorded.
    pub(crate) fn record_sent(&self, seq: Seq) -> Option<Duration> {
        self.edit(seq, |push, after| {
            push.sent += 1;
            push.first_sent.get_or_insert(after);
            push.last_sent = Some(after);
            push.refresh
        })
    }

    pub(crate) fn record_answer(&self, seq: Seq, accepted: bool) {
        self.edit(seq, |push, after| {
            if accepted {
                push.acked += 1;
            } else {
                push.rejected += 1;
            }
            push.last_answer = Some(after);
        });
    }

    pub(crate) fn record_done(&self, seq: Seq) {
        self.edit(seq, |push, after| {
            push.done += 1;
            push.last_done = Some(after);
        });
    }

    /// `None`: the push is not recorded, or no longer.
    fn edit<T>(&self, seq: Seq, change: impl FnOnce(&mut Push, Duration) -> T) -> Option<T> {
        let mut pushes = self.pushes();
        let index = pushes.binary_search_by_key(&seq, |entry| entry.push.seq).ok()?;
        let after = clock::now().saturating_duration_since(pushes[index].began);
        Some(change(&mut pushes[index].push, after))
    }

    fn pushes(&self) -> MutexGuard<'_, VecDeque<PushRecord>> {
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_the_oldest_push() {
        let journal = Journal::new(2);
        for seq in [1, 4, 6] {
            journal.begin(Push { seq, ..Push::default() });
        }
        journal.record_sent(1);
        journal.record_sent(4);
        journal.record_sent(4);
        journal.record_answer(4, true);
        journal.record_answer(4, false);
        journal.record_sent(5);
        let shown: Vec<_> =
            journal.snapshot().iter().map(|push| (push.seq, push.sent, push.acked, push.rejected)).collect();
        assert_eq!(shown, [(4, 2, 1, 1), (6, 0, 0, 0)]);
        let first = &journal.snapshot()[0];
        assert!(first.first_sent <= first.last_sent && first.last_sent <= first.last_answer);
    }
}
