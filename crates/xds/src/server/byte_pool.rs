//! Bytes that all addresses share: what each has beyond a reserve of its own. An address gets at most half of what the others leave, so that
//! however many of them take what they can get, room is left for one more.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct BytePool {
    limit: usize,
    /// Of each address.
    reserved: usize,
    bytes: AtomicUsize,
}

impl BytePool {
    pub(crate) fn new(limit: usize, reserved: usize) -> BytePool {
        BytePool { limit, reserved, bytes: AtomicUsize::new(0) }
    }

    /// Adds to what an address has, whether or not there is room. `false`: there is none.
    pub(crate) fn add(&self, of_address: &AtomicUsize, bytes: usize) -> bool {
        let before = of_address.fetch_add(bytes, Ordering::Relaxed);
        let own = self.pooled(before.saturating_add(bytes));
        let added = own - self.pooled(before);
        if added == 0 {
            return true;
        }
        let all = self.bytes.fetch_add(added, Ordering::Relaxed) + added;
        // Another thread may be between the two counters.
        let others = all.saturating_sub(own);
        own <= self.limit.saturating_sub(others) / 2
    }

    pub(crate) fn remove(&self, of_address: &AtomicUsize, bytes: usize) {
        let before = of_address.fetch_sub(bytes, Ordering::Relaxed);
        let removed = self.pooled(before) - self.pooled(before.saturating_sub(bytes));
        self.bytes.fetch_sub(removed, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The part of what an address has that is not reserved for it.
    fn pooled(&self, of_address: usize) -> usize {
        of_address.saturating_sub(self.reserved)
    }
}
