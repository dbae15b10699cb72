//! Whom a change concerns, until they are told of it. What it is they find in their views, which are there already.

use std::sync::Arc;
use std::time::Instant;
use std::vec::IntoIter;

use xds::{Kinds, Seq};

use crate::member::Member;

/// Whoever is not told hears of it with the next change.
#[must_use]
pub struct News {
    seq: Seq,
    since: Instant,
    /// With what there is news of.
    untold: IntoIter<(Arc<Member>, Kinds)>,
}

impl News {
    /// In the order of their memory, which is that of their arrival: they run in the order in which they are told, and what lies beside is
    /// fetched along.
    pub(crate) fn new(seq: Seq, mut members: Vec<(Arc<Member>, Kinds)>) -> News {
        members.sort_unstable_by_key(|(member, _)| Arc::as_ptr(member));
        News { seq, since: Instant::now(), untold: members.into_iter() }
    }

    pub fn is_empty(&self) -> bool {
        self.untold.len() == 0
    }

    /// Tells the next few. Answers whether there are more.
    pub fn tell(&mut self, few: usize) -> bool {
        for (member, kinds) in self.untold.by_ref().take(few) {
            member.news.ring_for(self.seq, kinds, self.since);
        }
        !self.is_empty()
    }

    pub fn tell_all(mut self) {
        self.tell(usize::MAX);
    }
}
