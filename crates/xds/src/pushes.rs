//! Pushes that a stream has heard of and does not hold yet.

use std::collections::VecDeque;

use crate::Seq;

/// As many pushes as a journal remembers: nobody asks for the progress of older ones.
pub(crate) const REMEMBERED: usize = 100;

/// Oldest first. Mostly there is one, which takes no memory of its own.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    first: Option<Seq>,
    more: VecDeque<Seq>,
}

impl Pushes {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn push(&mut self, seq: Seq) {
        if self.first.is_none() {
            self.first = Some(seq);
            return;
        }
        self.more.push_back(seq);
        if self.more.len() == REMEMBERED {
            self.first = self.more.pop_front();
        }
    }
}

impl IntoIterator for Pushes {
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
    fn the_newest_stay() {
        let mut pushes = Pushes::default();
        assert!(pushes.is_empty());
        (1..=250).for_each(|seq| pushes.push(seq));
        assert!(pushes.into_iter().eq(151..=250));
    }
}
