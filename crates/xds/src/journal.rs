//! The last pushes as the debug pages show them: what caused each, whom it reached, how far it got. Decides nothing.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use http2::clock;
use tokio::time::Instant;

use crate::{Seq, pushes::REMEMBERED};

pub struct Journal {
    pushes: Mutex<VecDeque<Entry>>,
    kept: usize,
}

/// One push, at the moment of asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    pub seq: Seq,
    /// In the words of whoever saw the change.
    pub cause: String,
    /// When the change was complete and ready to be sent. `None`: not noted.
    pub at: Option<SystemTime>,
    /// From the arrival of the oldest change to the beginning of the refresh.
    pub debounce: Duration,
    /// Computing what changed.
    pub refresh: Duration,
    /// Classes of proxies that see a difference, and streams of these.
    pub classes: usize,
    pub streams: usize,
    /// Responses that were sent, accepted and refused.
    pub sent: u64,
    pub acked: u64,
    pub refused: u64,
    /// Streams that hold all of it: everything that they were sent since is accepted.
    pub done: usize,
    /// From `at` to the first response handed to a proxy, the last one, the last answer, and the last stream that was done.
    pub first_sent: Option<Duration>,
    pub last_sent: Option<Duration>,
    pub last_answer: Option<Duration>,
    pub last_done: Option<Duration>,
}

struct Entry {
    push: Push,
    began: Instant,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal::new(REMEMBERED)
    }
}

impl Journal {
    pub fn new(kept: usize) -> Journal {
        Journal { pushes: Mutex::default(), kept: kept.max(1) }
    }

    /// Notes a push before its streams are woken.
    pub fn begin(&self, push: Push) {
        let Push { seq, cause, classes, streams, debounce, refresh, .. } = &push;
        tracing::debug!(push = seq, cause, classes, streams, ?debounce, ?refresh, "push begins");
        let mut pushes = self.pushes();
        if pushes.len() == self.kept {
            pushes.pop_front();
        }
        let push = Push { at: Some(push.at.unwrap_or_else(SystemTime::now)), ..push };
        pushes.push_back(Entry { push, began: clock::now() });
    }

    /// The newest push is the last.
    pub fn snapshot(&self) -> Vec<Push> {
        self.pushes().iter().map(|entry| entry.push.clone()).collect()
    }

    /// Answers how long it took to compute what is sent. `None`: that is forgotten.
    pub(crate) fn sent(&self, seq: Seq) -> Option<Duration> {
        self.edit(seq, |push, after| {
            push.sent += 1;
            push.first_sent.get_or_insert(after);
            push.last_sent = Some(after);
            push.refresh
        })
    }

    pub(crate) fn answered(&self, seq: Seq, accepted: bool) {
        self.edit(seq, |push, after| {
            if accepted {
                push.acked += 1;
            } else {
                push.refused += 1;
            }
            push.last_answer = Some(after);
        });
    }

    pub(crate) fn done(&self, seq: Seq) {
        self.edit(seq, |push, after| {
            push.done += 1;
            push.last_done = Some(after);
        });
    }

    /// A push that is forgotten already, or was never noted, has nothing to edit.
    fn edit<T>(&self, seq: Seq, change: impl FnOnce(&mut Push, Duration) -> T) -> Option<T> {
        let mut pushes = self.pushes();
        let index = pushes.binary_search_by_key(&seq, |entry| entry.push.seq).ok()?;
        let after = clock::now().saturating_duration_since(pushes[index].began);
        Some(change(&mut pushes[index].push, after))
    }

    fn pushes(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_push_is_forgotten_first() {
        let journal = Journal::new(2);
        for seq in [1, 4, 6] {
            journal.begin(Push { seq, ..Push::default() });
        }
        journal.sent(1);
        journal.sent(4);
        journal.sent(4);
        journal.answered(4, true);
        journal.answered(4, false);
        journal.sent(5);
        let shown: Vec<_> =
            journal.snapshot().iter().map(|push| (push.seq, push.sent, push.acked, push.refused)).collect();
        assert_eq!(shown, [(4, 2, 1, 1), (6, 0, 0, 0)]);
        let first = &journal.snapshot()[0];
        assert!(first.first_sent <= first.last_sent && first.last_sent <= first.last_answer);
    }
}
