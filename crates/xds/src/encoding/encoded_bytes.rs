//! The memory of encoded resources that are alive in this process, however many streams share them.

use std::sync::atomic::{AtomicUsize, Ordering};

static TOTAL: AtomicUsize = AtomicUsize::new(0);

/// Counts as part of the total until it is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EncodedBytes(usize);

impl EncodedBytes {
    pub(crate) fn new(bytes: usize) -> EncodedBytes {
        TOTAL.fetch_add(bytes, Ordering::Relaxed);
        EncodedBytes(bytes)
    }

    pub(crate) fn total() -> usize {
        TOTAL.load(Ordering::Relaxed)
    }
}

impl Clone for EncodedBytes {
    fn clone(&self) -> EncodedBytes {
        EncodedBytes::new(self.0)
    }
}

impl Drop for EncodedBytes {
    fn drop(&mut self) {
        TOTAL.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_while_they_are_alive() {
        let before = EncodedBytes::total();
        let large = EncodedBytes::new(1 << 40);
        assert!(EncodedBytes::total() >= before.saturating_add(1 << 40) - (1 << 30));
        drop(large);
        assert!(EncodedBytes::total() < 1 << 40);
    }
}
