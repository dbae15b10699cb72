//! Digests of sets of names, and of names with their versions.

use std::{
    hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState},
    sync::LazyLock,
};

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// Equal sets have equal digests, whatever their order. Sets with equal digests are treated as equal: the seed is secret and differs in each
/// process, so that a client cannot construct a collision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Digest(u128);

/// Hash of one name, with the same seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameHash(u64);

impl NameHash {
    pub(crate) fn of(name: &str) -> NameHash {
        NameHash(xxh3_64_with_seed(name.as_bytes(), *SEED))
    }
}

/// For maps by `NameHash`, which needs no second hash.
pub(crate) type NameHashState = BuildHasherDefault<NameHasher>;

#[derive(Default)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a name hash is one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

fn hash(bytes: &[u8]) -> u128 {
    xxh3_128_with_seed(bytes, *SEED)
}

impl Digest {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Digest {
        let sum = names.into_iter().fold(0, |sum: u128, name| sum.wrapping_add(hash(name.as_bytes())));
        Digest(sum)
    }

    /// Of names with the version of each.
    pub(crate) fn of_versions<'a>(items: impl IntoIterator<Item = (&'a str, &'a str)>) -> Digest {
        let one = |(name, version): (&str, &str)| hash(name.as_bytes()).rotate_left(1) ^ hash(version.as_bytes());
        Digest(items.into_iter().fold(0, |sum: u128, item| sum.wrapping_add(one(item))))
    }

    /// Of the union of disjoint sets.
    pub(crate) fn sum(parts: impl IntoIterator<Item = Digest>) -> Digest {
        Digest(parts.into_iter().fold(0, |sum: u128, Digest(part)| sum.wrapping_add(part)))
    }

    /// Of this set with some names added that it lacks, and some removed that it has.
    pub(crate) fn with_changes(self, Digest(added): Digest, Digest(removed): Digest) -> Digest {
        Digest(self.0.wrapping_add(added).wrapping_sub(removed))
    }
}
