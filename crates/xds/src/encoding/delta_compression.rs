//! Delta compression in memory: bytes as a base and the differences from it, so that resources that differ in a few places share the rest.
//! The bytes are opaque.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::BytesMut;
use prost::encoding::decode_varint;

use crate::TypeUrl;

/// The shortest match; a splice takes about four bytes.
const MIN_MATCH: usize = 16;
/// The distance of indexed positions of a base.
const STRIDE: usize = 8;
/// Positions with the same hash that are compared.
const MAX_PROBES: usize = 8;
/// Bases of one group.
const MAX_BASES: usize = 4;
/// A base that so many use may get a successor.
const MANY_USERS: usize = 16;

/// Equal if the bytes are.
#[derive(Clone, Debug)]
pub(crate) struct DeltaCompressed {
    base: Arc<[u8]>,
    /// Repeated: the length of a literal, the literal, how many bytes of the base follow, and the signed distance of these from the end of
    /// the previous ones.
    splices: Box<[u8]>,
}

/// A type and a group of similar resources in it. `None`: the metadata of nodes.
type GroupKey = (Option<TypeUrl>, Box<str>);

#[derive(Default)]
struct Bases {
    /// Bases in use, the newest last.
    groups: HashMap<GroupKey, Vec<Base>>,
    /// The number of groups at which unused ones are dropped.
    sweep_at: usize,
}

/// Bytes that others are compared with.
struct Base {
    bytes: Weak<[u8]>,
    index: Arc<BaseIndex>,
}

static BASES: LazyLock<Mutex<Bases>> = LazyLock::new(Mutex::default);

impl DeltaCompressed {
    /// `group`: of resources of the type that are probably similar.
    pub(crate) fn new(kind: TypeUrl, group: &str, bytes: &[u8]) -> DeltaCompressed {
        DeltaCompressed::compress((Some(kind), group.into()), bytes)
    }

    /// `splices`: repeated: a literal, how many bytes of the base are skipped, and how many are copied then.
    pub(crate) fn from_splices<'a>(
        base: Arc<[u8]>,
        splices: impl Iterator<Item = (&'a [u8], usize, usize)>,
    ) -> DeltaCompressed {
        let mut writer = SpliceWriter::with_capacity(1024);
        for (literal, skipped, len) in splices {
            writer.push(literal, writer.position + skipped, len);
        }
        DeltaCompressed { splices: writer.bytes.into(), base }
    }

    pub(crate) fn of_node(metadata: &[u8]) -> DeltaCompressed {
        DeltaCompressed::compress((None, "".into()), metadata)
    }

    fn compress(group: GroupKey, bytes: &[u8]) -> DeltaCompressed {
        let usable = |base: &Base| Some((base.bytes.upgrade()?, base.index.clone()));
        let bases: Vec<_> = bases().groups.get(&group).into_iter().flatten().rev().filter_map(usable).collect();
        let mut best: Option<DeltaCompressed> = None;
        for (base, index) in bases {
            let compressed = DeltaCompressed::against(base, &index, bytes);
            let is_better = best.as_ref().is_none_or(|best| compressed.splices.len() < best.splices.len());
            best = if is_better { Some(compressed) } else { best };
            // A later base may fit better, but the search costs more than it saves.
            if best.as_ref().is_some_and(|best| best.splices.len() <= bytes.len() / 8) {
                break;
            }
        }
        best.filter(|best| best.is_close(bytes.len())).unwrap_or_else(|| DeltaCompressed::new_base(group, bytes))
    }

    /// Makes the bytes a base of their group.
    fn new_base(group: GroupKey, bytes: &[u8]) -> DeltaCompressed {
        let base: Arc<[u8]> = bytes.into();
        let new = Base { bytes: Arc::downgrade(&base), index: Arc::new(BaseIndex::of(&base)) };
        let mut all = bases();
        all.sweep();
        let bases = all.groups.entry(group).or_default();
        bases.retain(Base::is_used);
        if bases.len() == MAX_BASES {
            bases.remove(0);
        }
        bases.push(new);
        drop(all);
        let mut splices = SpliceWriter::default();
        splices.push(&[], 0, bytes.len());
        DeltaCompressed { base, splices: splices.bytes.into() }
    }

    /// A base that many use and that fits badly should be replaced by another.
    fn is_close(&self, len: usize) -> bool {
        let size = self.splices.len();
        size <= len / 8 || size <= len / 2 && Arc::strong_count(&self.base) <= MANY_USERS
    }

    fn against(base: Arc<[u8]>, index: &BaseIndex, bytes: &[u8]) -> DeltaCompressed {
        let (mut splices, mut at, mut done) = (SpliceWriter::with_capacity(bytes.len() / 8), 0, 0);
        while at < bytes.len() {
            let Some((mut from, mut len)) = index.find_match(&base, &bytes[at..], splices.position) else {
                at += 1;
                continue;
            };
            let before = bytes[done..at].iter().rev().zip(base[..from].iter().rev());
            let more = before.take_while(|(one, two)| one == two).count();
            (at, from, len) = (at - more, from - more, len + more);
            splices.push(&bytes[done..at], from, len);
            at += len;
            done = at;
        }
        if done < at {
            splices.push(&bytes[done..], splices.position, 0);
        }
        DeltaCompressed { splices: splices.bytes.into(), base }
    }

    /// Appends a range of the bytes.
    pub(crate) fn write(&self, start: usize, end: usize, out: &mut BytesMut) {
        let mut at = 0;
        for part in self.parts() {
            let (from, to) = (start.saturating_sub(at), end.saturating_sub(at).min(part.len()));
            out.extend_from_slice(part.get(from..to).unwrap_or_default());
            at += part.len();
        }
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (mut rest, mut position) = (&*self.splices, 0);
        let number = |rest: &mut &[u8]| usize::try_from(decode_varint(rest).expect(VALID)).expect(VALID);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let literal;
            let len = number(&mut rest);
            (literal, rest) = rest.split_at(len);
            let (len, distance) = (number(&mut rest), number(&mut rest));
            let from = if distance & 1 == 0 { position + (distance >> 1) } else { position - (distance >> 1) };
            position = from + len;
            Some([literal, &self.base[from..position]])
        })
        .flatten()
    }

    /// The memory that is not shared with others.
    pub(crate) fn memory_bytes(&self) -> usize {
        let alone = Arc::strong_count(&self.base) == 1;
        self.splices.len() + if alone { self.base.len() } else { 0 }
    }
}

impl Base {
    fn is_used(&self) -> bool {
        self.bytes.strong_count() > 0
    }
}

impl Bases {
    fn sweep(&mut self) {
        if self.groups.len() >= self.sweep_at {
            self.groups.retain(|_, bases| bases.iter().any(Base::is_used));
            self.sweep_at = 64.max(self.groups.len() * 2);
        }
    }
}

const VALID: &str = "splices are read as they were written";

impl PartialEq for DeltaCompressed {
    fn eq(&self, other: &DeltaCompressed) -> bool {
        let same = Arc::ptr_eq(&self.base, &other.base) && self.splices == other.splices;
        same || self.parts().flatten().eq(other.parts().flatten())
    }
}

impl Eq for DeltaCompressed {}

// A panic while the lock is held leaves no partial entry behind.
fn bases() -> MutexGuard<'static, Bases> {
    BASES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct SpliceWriter {
    bytes: Vec<u8>,
    /// Where in the base the last splice ended.
    position: usize,
}

impl SpliceWriter {
    fn with_capacity(bytes: usize) -> SpliceWriter {
        SpliceWriter { bytes: Vec::with_capacity(bytes), position: 0 }
    }

    fn push(&mut self, literal: &[u8], from: usize, len: usize) {
        self.push_varint(literal.len());
        self.bytes.extend_from_slice(literal);
        self.push_varint(len);
        self.push_varint(from.abs_diff(self.position) << 1 | usize::from(from < self.position));
        self.position = from + len;
    }

    /// Nearly all of them have one byte.
    fn push_varint(&mut self, mut number: usize) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}

/// Positions of a base by a hash of the bytes there.
struct BaseIndex {
    /// The newest position of each hash, in strides, plus one; 0: none.
    heads: Vec<u32>,
    /// The previous position with the same hash.
    previous: Vec<u32>,
}

impl BaseIndex {
    fn of(base: &[u8]) -> BaseIndex {
        let count = base.len() / STRIDE;
        let mut index =
            BaseIndex { heads: vec![0; (count * 2).next_power_of_two()], previous: Vec::with_capacity(count) };
        for (at, seed) in base.array_windows().step_by(STRIDE).enumerate() {
            let slot = index.slot(seed);
            index.previous.push(index.heads[slot]);
            index.heads[slot] = u32::try_from(at + 1).expect("a resource is shorter than 4 GiB");
        }
        index
    }

    /// Where the base has these bytes, and how many of them. Matches mostly come in the same order: of several positions the first
    /// behind `after` is taken, without comparing the lengths of all.
    fn find_match(&self, base: &[u8], bytes: &[u8], after: usize) -> Option<(usize, usize)> {
        let seed = bytes.first_chunk()?;
        let mut next = self.heads[self.slot(seed)];
        let mut found = None;
        for _ in 0..MAX_PROBES {
            let Some(position) = (next as usize).checked_sub(1) else { break };
            next = self.previous[position];
            let from = position * STRIDE;
            if base[from..].first_chunk() == Some(seed) && (found.is_none() || from >= after) {
                found = Some(from);
            }
        }
        found.map(|from| (from, common_prefix_len(&base[from..], bytes)))
    }

    fn slot(&self, seed: &[u8; MIN_MATCH]) -> usize {
        let seed = u128::from_le_bytes(*seed);
        let mixed = (seed as u64 ^ ((seed >> 64) as u64).rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (self.heads.len() - 1)
    }
}

fn common_prefix_len(one: &[u8], two: &[u8]) -> usize {
    let (ones, twos) = (one.as_chunks::<MIN_MATCH>().0, two.as_chunks::<MIN_MATCH>().0);
    let blocks = ones.iter().zip(twos).take_while(|(one, two)| one == two).count() * MIN_MATCH;
    blocks + one[blocks..].iter().zip(&two[blocks..]).take_while(|(one, two)| one == two).count()
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

    fn compress(group: &str, bytes: &[u8]) -> DeltaCompressed {
        DeltaCompressed::new(TypeUrl::Listener, group, bytes)
    }

    fn check(compressed: &DeltaCompressed, bytes: &[u8]) {
        let len = bytes.len();
        let mut out = BytesMut::from(&b"before"[..]);
        compressed.write(0, usize::MAX, &mut out);
        compressed.write(len / 3, len - len / 4, &mut out);
        assert_eq!(out, [b"before", bytes, &bytes[len / 3..len - len / 4]].concat());
    }

    #[test]
    fn decompresses_to_the_same_bytes_whatever_the_base() {
        let bases = [bytes(1, 5_000), vec![7; 1_000], b"abcdefghijklmnopqrstuvwxyz".repeat(50), Vec::new(), vec![1]];
        for (seed, base) in bases.iter().enumerate() {
            let base: Arc<[u8]> = base.as_slice().into();
            for len in [0, 1, 15, 16, 17, 5_000] {
                let own = bytes(seed as u64 + 2, len);
                let edited = [&base[base.len() / 2..], &own, &base[..base.len() / 3], &own[len / 2..]].concat();
                check(&DeltaCompressed::against(base.clone(), &BaseIndex::of(&base), &edited), &edited);
                check(&DeltaCompressed::against(base.clone(), &BaseIndex::of(&base), &own), &own);
            }
        }
    }

    #[test]
    fn bytes_that_differ_in_places_share_the_rest() {
        let one = bytes(1, 20_000);
        let mut two = one.clone();
        two.splice(300..300, *b"another name");
        two.splice(12_000..12_005, *b"name");
        let (first, second) = (compress("differ", &one), compress("differ", &two));
        check(&first, &one);
        check(&second, &two);
        assert!(Arc::ptr_eq(&first.base, &second.base));
        assert!(second.memory_bytes() < 64, "{} bytes", second.memory_bytes());
        assert_ne!(first, second);
        let same = DeltaCompressed::against(Arc::from(two.as_slice()), &BaseIndex::of(&two), &two);
        assert_eq!(second, same, "equal bytes with other splices");
    }

    #[test]
    fn a_base_that_fits_many_badly_is_replaced() {
        let mut old = bytes(3, 8_000);
        let mut crowd: Vec<_> =
            (0..100).map(|number| compress("crowd", &[&old, &bytes(number + 10, 20)[..]].concat())).collect();
        old.splice(4_000..6_000, bytes(4, 2_000));
        let next = |number: u64| compress("crowd", &[&old, &bytes(number + 10, 20)[..]].concat());
        crowd.iter_mut().zip(0..).for_each(|(member, number)| *member = next(number));
        let own: usize = crowd.iter().map(|member| member.splices.len()).sum();
        assert!(own < 6_000, "{own} bytes");
        assert!(Arc::ptr_eq(&crowd[1].base, &crowd[99].base));
    }

    #[test]
    fn unused_bases_are_dropped() {
        let only = compress("unused", &bytes(99, 3_000));
        let base = Arc::downgrade(&only.base);
        drop(only);
        assert!(base.upgrade().is_none());
        for number in 0..200_u64 {
            let suffix: String = number.to_string().bytes().map(|digit| char::from(digit + 50)).collect();
            compress(&format!("unused{suffix}"), &bytes(number, 100));
        }
        let left = bases().groups.keys().filter(|(_, group)| group.starts_with("unused")).count();
        assert!(left <= 64, "{left} groups");
    }
}
