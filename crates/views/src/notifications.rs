//! The streams to notify of a refresh. Their views are already published; a notification names the types that changed.

use std::sync::Arc;
use std::time::Instant;
use std::vec::IntoIter;

use xds::{Kinds, Seq};

use crate::member::Member;

/// A stream that is not notified picks up the change with its next notification.
#[must_use]
pub struct PendingNotifications {
    seq: Seq,
    since: Instant,
    /// With the types that changed for each.
    pending: IntoIter<(Arc<Member>, Kinds)>,
}

impl PendingNotifications {
    /// Sorted by address, which is the order in which the streams were opened: tasks run in the order of notification, so neighbours in
    /// memory share cache lines and prefetches.
    pub(crate) fn new(seq: Seq, mut members: Vec<(Arc<Member>, Kinds)>) -> PendingNotifications {
        members.sort_unstable_by_key(|(member, _)| Arc::as_ptr(member));
        PendingNotifications { seq, since: Instant::now(), pending: members.into_iter() }
    }

    pub fn is_empty(&self) -> bool {
        self.pending.len() == 0
    }

    /// Notifies the next `count` streams. Returns whether more are pending.
    pub fn notify_batch(&mut self, count: usize) -> bool {
        for (member, kinds) in self.pending.by_ref().take(count) {
            member.notifier.notify(self.seq, kinds, self.since);
        }
        !self.is_empty()
    }

    pub fn notify_all(mut self) {
        self.notify_batch(usize::MAX);
    }
}
