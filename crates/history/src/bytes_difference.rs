//! Bytes as their difference from similar bytes: what they begin and end with in common is not stored, and of the rest only what is nowhere
//! in the base. Two versions of a large resource mostly differ in a few places.

use std::collections::HashMap;

/// The length of the pieces of a base that are searched for.
const PIECE: usize = 32;

#[derive(Debug)]
pub(crate) struct BytesDifference {
    /// In the order of the bytes.
    splices: Box<[Splice]>,
    /// One after the other.
    literals: Box<[u8]>,
}

/// A literal, then a part of the base.
#[derive(Debug)]
struct Splice {
    literal: u32,
    from: u32,
    len: u32,
}

impl BytesDifference {
    /// `None`: the bytes are too long for this form.
    pub(crate) fn between(base: &[u8], bytes: &[u8]) -> Option<BytesDifference> {
        if base.len().max(bytes.len()) > u32::MAX as usize {
            return None;
        }
        let start = common_prefix(base, bytes);
        let end = common_suffix(&base[start..], &bytes[start..]);
        let mut writer = Writer::default();
        writer.push(&[], 0, start);
        let (middle, rest) = (&base[start..base.len() - end], &bytes[start..bytes.len() - end]);
        let literal = writer.push_similar(middle, start, rest);
        writer.push(literal, base.len() - end, end);
        Some(BytesDifference { splices: writer.splices.into(), literals: writer.literals.into() })
    }

    /// `base`: the one that it was made with.
    pub(crate) fn apply(&self, base: &[u8]) -> Vec<u8> {
        let len: usize = self.splices.iter().map(|splice| (splice.literal + splice.len) as usize).sum();
        let (mut bytes, mut literals) = (Vec::with_capacity(len), &*self.literals);
        for Splice { literal, from, len } in &self.splices {
            let (own, rest) = literals.split_at(*literal as usize);
            bytes.extend_from_slice(own);
            bytes.extend_from_slice(&base[*from as usize..(*from + *len) as usize]);
            literals = rest;
        }
        bytes
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.splices) + self.literals.len()
    }
}

#[derive(Default)]
struct Writer {
    splices: Vec<Splice>,
    literals: Vec<u8>,
}

impl Writer {
    fn push(&mut self, literal: &[u8], from: usize, len: usize) {
        if literal.is_empty() && len == 0 {
            return;
        }
        self.literals.extend_from_slice(literal);
        // `between` takes nothing longer.
        let [literal, from, len] = [literal.len(), from, len].map(|number| number as u32);
        self.splices.push(Splice { literal, from, len });
    }

    /// `base`: from this offset. Returns the end of the bytes that is in no part of the base.
    fn push_similar<'a>(&mut self, base: &[u8], offset: usize, bytes: &'a [u8]) -> &'a [u8] {
        let pieces: HashMap<&[u8], usize> =
            base.chunks_exact(PIECE).enumerate().rev().map(|(at, piece)| (piece, at * PIECE)).collect();
        let (mut done, mut at) = (0, 0);
        while at + PIECE <= bytes.len() && !pieces.is_empty() {
            let Some(&found) = pieces.get(&bytes[at..at + PIECE]) else {
                at += 1;
                continue;
            };
            let before = common_suffix(&base[..found], &bytes[done..at]);
            let (from, start) = (found - before, at - before);
            let len = common_prefix(&base[from..], &bytes[start..]);
            self.push(&bytes[done..start], offset + from, len);
            done = start + len;
            at = done;
        }
        &bytes[done..]
    }
}

fn common_prefix(one: &[u8], two: &[u8]) -> usize {
    let (ones, twos) = (one.as_chunks::<PIECE>().0, two.as_chunks::<PIECE>().0);
    let pieces = ones.iter().zip(twos).take_while(|(one, two)| one == two).count() * PIECE;
    pieces + one[pieces..].iter().zip(&two[pieces..]).take_while(|(one, two)| one == two).count()
}

fn common_suffix(one: &[u8], two: &[u8]) -> usize {
    let (ones, twos) = (one.as_rchunks::<PIECE>().1, two.as_rchunks::<PIECE>().1);
    let pieces = ones.iter().rev().zip(twos.iter().rev()).take_while(|(one, two)| one == two).count() * PIECE;
    let rest = |bytes: &[u8]| bytes.len() - pieces;
    let (one, two) = (&one[..rest(one)], &two[..rest(two)]);
    pieces + one.iter().rev().zip(two.iter().rev()).take_while(|(one, two)| one == two).count()
}

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

    /// Returns the size of the difference.
    fn check(base: &[u8], bytes: &[u8]) -> usize {
        let difference = BytesDifference::between(base, bytes).expect("it is short");
        assert!(difference.apply(base) == bytes, "{} and {} bytes", base.len(), bytes.len());
        difference.memory_bytes()
    }

    #[test]
    fn any_bytes_are_restored() {
        let bases = [bytes(1, 5_000), vec![7; 1_000], b"abcdefghijklmnopqrstuvwxyz".repeat(50), Vec::new(), vec![1]];
        for base in &bases {
            for len in [0, 1, 31, 32, 33, 64, 5_000] {
                let own = bytes(9, len);
                check(base, &own);
                check(base, &[&base[base.len() / 2..], &own, &base[..base.len() / 3], &own[len / 2..]].concat());
                check(base, &[base, &own[..]].concat());
                check(base, &[&own[..], base].concat());
                check(base, &base[base.len() / 3..base.len() / 2]);
            }
            for other in &bases {
                check(base, other);
            }
        }
    }

    #[test]
    fn edits_in_several_places_cost_little() {
        let one = bytes(1, 200_000);
        let mut two = one.clone();
        two.splice(300..300, *b"another name");
        two.splice(100_000..100_005, *b"name");
        two.splice(190_000..190_700, *b"");
        assert!(check(&one, &two) < 200, "{} bytes", check(&one, &two));
        assert_eq!(check(&one, &one), size_of::<Splice>());
    }
}
