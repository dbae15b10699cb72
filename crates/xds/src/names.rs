//! Sets of names that streams subscribe to. Equal sets share their memory: the proxies of a namespace ask for the same thousand names.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use xxhash_rust::xxh3::xxh3_128;

/// Cheap to clone. Changing one makes another.
#[derive(Clone)]
pub struct Names(Arc<Set>);

struct Set {
    /// Each once.
    sorted: Vec<Arc<str>>,
    digest: Digest,
}

/// Equal sets have equal digests, whatever their order. Not proof against malice: what depends on it concerns only whoever chose the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Digest(u128);

/// Every set that somebody holds.
static SHARED: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Pool {
    sets: HashMap<Digest, Weak<Set>>,
    /// At this size those that nobody holds any more are dropped.
    full: usize,
}

impl Digest {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Digest {
        let sum = names.into_iter().fold(0, |sum: u128, name| sum.wrapping_add(xxh3_128(name.as_bytes())));
        Digest(sum)
    }

    /// Of names with the version of each.
    pub(crate) fn of_versions<'a>(items: impl IntoIterator<Item = (&'a str, &'a str)>) -> Digest {
        let one =
            |(name, version): (&str, &str)| xxh3_128(name.as_bytes()).rotate_left(1) ^ xxh3_128(version.as_bytes());
        Digest(items.into_iter().fold(0, |sum: u128, item| sum.wrapping_add(one(item))))
    }
}

impl Names {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
        let mut sorted: Vec<&str> = names.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let digest = Digest::of(sorted.iter().copied());
        SHARED.lock().unwrap_or_else(PoisonError::into_inner).shared(&sorted, digest)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.sorted.iter()
    }

    pub fn len(&self) -> usize {
        self.0.sorted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.sorted.is_empty()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<str>> {
        self.0.sorted.binary_search_by(|held| (**held).cmp(name)).ok().map(|index| &self.0.sorted[index])
    }

    pub(crate) fn digest(&self) -> Digest {
        self.0.digest
    }

    /// Where it is in memory.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Pool {
    fn shared(&mut self, sorted: &[&str], digest: Digest) -> Names {
        let sets = &mut self.sets;
        let held = sets.get(&digest).and_then(Weak::upgrade);
        if let Some(held) = held.filter(|held| held.sorted.iter().map(|name| &**name).eq(sorted.iter().copied())) {
            return Names(held);
        }
        if sets.len() >= self.full {
            sets.retain(|_, set| set.strong_count() > 0);
            self.full = 64.max(sets.len() * 2);
        }
        let set = Arc::new(Set { sorted: sorted.iter().map(|name| Arc::from(*name)).collect(), digest });
        sets.insert(digest, Arc::downgrade(&set));
        Names(set)
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Names {
        Names::of(names)
    }
}

impl Default for Names {
    fn default() -> Names {
        Names::of([])
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Names) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.sorted == other.0.sorted
    }
}

impl Eq for Names {}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.0.sorted).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_are_one_in_memory() {
        let (one, two) = (Names::of(["b", "a", "b"]), Names::of(["a", "b"]));
        assert!(Arc::ptr_eq(&one.0, &two.0));
        assert_eq!(one.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
        assert!(one.contains("a") && !one.contains("c"));
        assert_ne!(one, Names::of(["a"]));
    }

    #[test]
    fn sets_that_nobody_holds_are_forgotten() {
        let mut pool = Pool::default();
        for number in 0..10_000_u32 {
            let name = number.to_string();
            pool.shared(&[&name], Digest::of([name.as_str()]));
        }
        assert!(pool.sets.len() <= 64);
    }
}
