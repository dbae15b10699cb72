//! Nonces of responses.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A counter behind a random id of this process, so that a nonce from before a restart never matches.
pub(crate) struct Nonces {
    process: u32,
    next: AtomicU64,
}

impl Nonces {
    pub(crate) fn new() -> Nonces {
        let random = RandomState::new().build_hasher().finish();
        Nonces { process: (random >> 32) as u32, next: AtomicU64::new(1) }
    }

    pub(crate) fn next(&self) -> Arc<str> {
        format!("{:08x}-{:x}", self.process, self.next.fetch_add(1, Ordering::Relaxed)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ_within_and_between_processes() {
        let (one, two) = (Nonces::new(), Nonces::new());
        assert_ne!(one.next(), one.next());
        assert_ne!(one.process, two.process);
    }
}
