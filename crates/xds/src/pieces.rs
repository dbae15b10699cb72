//! Encoded bytes cut into pieces by their content: resources that differ in a few places share the rest in memory. What
//! the bytes mean is not looked at.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_64;

/// No shorter piece, but at the end: a handle and its place in the pool take 60 bytes.
const LEAST: usize = 64;
const MOST: usize = 1024;
/// A cut where this many low bits of the rolling sum are zero: every 256 bytes on average beyond the least.
const CUT: u64 = (1 << 8) - 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces(Box<[Arc<[u8]>]>);

/// Pieces that some resource holds, by a hash of their bytes.
static POOL: LazyLock<Mutex<HashMap<u64, Weak<[u8]>>>> = LazyLock::new(Mutex::default);

impl Pieces {
    pub(crate) fn new(mut bytes: &[u8]) -> Pieces {
        // A panic while it is held leaves no half entry behind.
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(cut(bytes));
            pieces.push(pooled(&mut pool, piece));
            bytes = rest;
        }
        Pieces(pieces.into())
    }

    /// A copy of some of the bytes in one piece.
    pub(crate) fn joined(&self, start: usize, end: usize) -> Bytes {
        let len = self.0.iter().map(|piece| piece.len()).sum::<usize>();
        let end = end.min(len);
        let mut out = BytesMut::with_capacity(end - start);
        let mut at = 0;
        for piece in &self.0 {
            let (from, to) = (start.saturating_sub(at), end.saturating_sub(at).min(piece.len()));
            out.extend_from_slice(piece.get(from..to).unwrap_or_default());
            at += piece.len();
        }
        out.freeze()
    }

    /// Of the handles and of what this alone holds.
    pub(crate) fn bytes(&self) -> usize {
        let own = self.0.iter().filter(|piece| Arc::strong_count(piece) == 1);
        size_of_val(&*self.0) + own.map(|piece| piece.len()).sum::<usize>()
    }
}

fn pooled(pool: &mut HashMap<u64, Weak<[u8]>>, piece: &[u8]) -> Arc<[u8]> {
    let key = xxh3_64(piece);
    if let Some(held) = pool.get(&key).and_then(Weak::upgrade).filter(|held| **held == *piece) {
        return held;
    }
    if pool.len() == pool.capacity() {
        pool.retain(|_, held| held.strong_count() > 0);
    }
    let made: Arc<[u8]> = piece.into();
    pool.insert(key, Arc::downgrade(&made));
    made
}

/// Where the first piece ends. It depends on the last 64 bytes before it alone, so that equal stretches are cut alike wherever they stand.
fn cut(bytes: &[u8]) -> usize {
    let end = bytes.len().min(MOST);
    let mut sum = 0u64;
    for (at, byte) in bytes[..end].iter().enumerate() {
        sum = (sum << 1).wrapping_add(SPREAD[usize::from(*byte)]);
        if at + 1 >= LEAST && (sum >> 32) & CUT == 0 {
            return at + 1;
        }
    }
    end
}

/// A number of its own for each byte, with bits set everywhere.
const SPREAD: [u64; 256] = {
    let mut spread = [0; 256];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut at = 0;
    while at < spread.len() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        spread[at] = state;
        at += 1;
    }
    spread
};

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(next).collect()
    }

    #[test]
    fn pieces_join_to_what_was_cut() {
        for len in [0, 1, 63, 64, 65, 5_000, 100_000] {
            let bytes = bytes(len as u64 + 1, len);
            let pieces = Pieces::new(&bytes);
            assert_eq!(pieces.joined(0, len), bytes);
            assert_eq!(pieces.joined(len / 3, len - len / 4), bytes[len / 3..len - len / 4]);
        }
        assert_eq!(Pieces::new(&[7; 10_000]).joined(0, 10_000), [7; 10_000].as_slice());
    }

    #[test]
    fn bytes_that_differ_in_places_share_the_rest() {
        let one = bytes(1, 20_000);
        let mut two = one.clone();
        two.splice(300..300, *b"another name");
        two.splice(12_000..12_005, *b"name");
        let (one, two) = (Pieces::new(&one), Pieces::new(&two));
        let shared = two.0.iter().filter(|piece| one.0.iter().any(|other| Arc::ptr_eq(piece, other)));
        let shared: usize = shared.map(|piece| piece.len()).sum();
        assert!(shared > 15_000, "{shared} of 20,000 bytes");
        assert!(two.bytes() < 8_000, "{} bytes", two.bytes());
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let held = Pieces::new(&bytes(99, 3_000));
        let piece = Arc::downgrade(&held.0[0]);
        drop(held);
        assert!(piece.upgrade().is_none());
    }
}
