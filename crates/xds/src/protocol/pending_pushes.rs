//! Pushes that a stream was notified of and has not completed.

use std::collections::VecDeque;

use crate::Seq;

/// The capacity of the journal: the progress of older pushes is not shown.
pub(crate) const MAX_PUSHES: usize = 100;

/// Oldest first. Mostly there is one, which takes no memory of its own.
#[derive(Debug, Default)]
pub(crate) struct PendingPushes {
    first: Option<Seq>,
    more: VecDeque<Seq>,
}

impl PendingPushes {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn push(&mut self, seq: Seq) {
        if self.first.is_none() {
            self.first = Some(seq);
            return;
        }
        self.more.push_back(seq);
        if self.more.len() == MAX_PUSHES {
            self.first = self.more.pop_front();
        }
    }
}

impl IntoIterator for PendingPushes {
    type Item = Seq;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Seq>, std::collections::vec_deque::IntoIter<Seq>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_pushes() {
        let mut pushes = PendingPushes::default();
        assert!(pushes.is_empty());
        (1..=250).for_each(|seq| pushes.push(seq));
        assert!(pushes.into_iter().eq(151..=250));
    }
}
