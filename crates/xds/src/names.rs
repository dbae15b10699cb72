//! Sets of names that streams subscribe to. Equal sets share their memory: the proxies of a namespace ask for the same thousand names.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Cheap to clone. Changing one makes another.
#[derive(Clone)]
pub struct Names(Arc<Set>);

struct Set {
    /// Each once.
    sorted: Vec<Arc<str>>,
    digest: Digest,
}

/// Equal sets have equal digests, whatever their order. Sets with equal digests are taken for equal: nobody outside knows what they are
/// begun with, and so nobody can make others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Digest(u128);

/// Another one in each process.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

fn hash(bytes: &[u8]) -> u128 {
    xxh3_128_with_seed(bytes, *SEED)
}

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
        let sum = names.into_iter().fold(0, |sum: u128, name| sum.wrapping_add(hash(name.as_bytes())));
        Digest(sum)
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Digest {
        Digest(hash(bytes))
    }

    /// Of names with the version of each.
    pub(crate) fn of_versions<'a>(items: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Digest {
        let one = |(name, version): (&[u8], &[u8])| hash(name).rotate_left(1) ^ hash(version);
        Digest(items.into_iter().fold(0, |sum: u128, item| sum.wrapping_add(one(item))))
    }

    /// Of sets that have nothing in common, together.
    pub(crate) fn sum(parts: impl IntoIterator<Item = Digest>) -> Digest {
        Digest(parts.into_iter().fold(0, |sum: u128, Digest(part)| sum.wrapping_add(part)))
    }
}

impl Names {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
        let mut sorted: Vec<&str> = names.into_iter().collect();
        // With names that come twice it is that of no set.
        if let Some(known) = Names::known(Digest::of(sorted.iter().copied()), sorted.len()) {
            return known;
        }
        sorted.sort_unstable();
        sorted.dedup();
        let digest = Digest::of(sorted.iter().copied());
        Names::pooled(digest, || sorted.iter().map(|name| Arc::from(*name)).collect())
    }

    /// The set of this digest, which `sorted` makes where nobody holds it. It is made outside of the lock.
    fn pooled(digest: Digest, sorted: impl FnOnce() -> Vec<Arc<str>>) -> Names {
        let pool = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let held = pool().get(digest);
        Names(held.unwrap_or_else(|| {
            let set = Arc::new(Set { sorted: sorted(), digest });
            pool().add(set)
        }))
    }

    fn known(digest: Digest, len: usize) -> Option<Names> {
        let known = SHARED.lock().unwrap_or_else(PoisonError::into_inner).get(digest)?;
        (known.sorted.len() == len).then_some(Names(known))
    }

    /// The set with some names more and some less; a name of both is in neither. Both lists are sorted and have each name once. Where others
    /// have changed theirs in the same way, only these names are looked at; else it is one pass over the set, which shares its texts.
    pub(crate) fn changed(&self, more: &[&str], less: &[&str]) -> Names {
        let more: Vec<&str> = more.iter().copied().filter(|name| less.binary_search(name).is_err()).collect();
        let (_, more) = self.split(&more);
        let (less, _) = self.split(less);
        let less: Vec<&str> = less.into_iter().map(|name| &**name).collect();
        let (Digest(came), Digest(went)) = (Digest::of(more.iter().copied()), Digest::of(less.iter().copied()));
        let digest = Digest(self.0.digest.0.wrapping_add(came).wrapping_sub(went));
        if let Some(known) = Names::known(digest, self.len() + more.len() - less.len()) {
            return known;
        }
        Names::pooled(digest, || self.merged(&more, &less))
    }

    /// Names of a sorted list that are in the set, and those that are not. Each is looked for behind the one before, in steps that double: a long
    /// list costs one pass, a short one a few looks for each name.
    pub(crate) fn split<'a>(&self, list: &[&'a str]) -> (Vec<&Arc<str>>, Vec<&'a str>) {
        let (mut inside, mut outside, mut rest) = (Vec::new(), Vec::new(), &self.0.sorted[..]);
        for &name in list {
            let mut reach = 1;
            while rest.get(reach - 1).is_some_and(|held| **held < *name) {
                reach *= 2;
            }
            let (from, to) = (reach / 2, reach.min(rest.len()));
            rest = &rest[from + rest[from..to].partition_point(|held| **held < *name)..];
            match rest.first() {
                Some(held) if **held == *name => inside.push(held),
                _ => outside.push(name),
            }
        }
        (inside, outside)
    }

    /// `more`: not in the set. `less`: in it. Both sorted.
    fn merged(&self, more: &[&str], less: &[&str]) -> Vec<Arc<str>> {
        let mut merged = Vec::with_capacity(self.len() + more.len() - less.len());
        let (mut more, mut less) = (more.iter().peekable(), less.iter().peekable());
        for name in self.iter() {
            while let Some(new) = more.next_if(|new| ***new < **name) {
                merged.push(Arc::from(*new));
            }
            if less.next_if(|gone| ***gone == **name).is_none() {
                merged.push(name.clone());
            }
        }
        merged.extend(more.map(|new| Arc::from(*new)));
        merged
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
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Pool {
    fn get(&self, digest: Digest) -> Option<Arc<Set>> {
        self.sets.get(&digest)?.upgrade()
    }

    /// Answers the one that somebody else added meanwhile, if any.
    fn add(&mut self, set: Arc<Set>) -> Arc<Set> {
        if let Some(held) = self.get(set.digest) {
            return held;
        }
        if self.sets.len() >= self.full {
            self.sets.retain(|_, set| set.strong_count() > 0);
            self.full = 64.max(self.sets.len() * 2);
        }
        self.sets.insert(set.digest, Arc::downgrade(&set));
        set
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
    fn a_changed_set_is_the_one_that_others_have() {
        let old = Names::of(["a", "b", "c"]);
        let check = |more: &[&str], less: &[&str], want: &[&str]| {
            let changed = old.changed(more, less);
            assert_eq!(changed, Names::of(want.iter().copied()), "more {more:?}, less {less:?}");
            let again = old.changed(more, less);
            assert!(Arc::ptr_eq(&changed.0, &again.0));
        };
        check(&[], &[], &["a", "b", "c"]);
        check(&["a", "d"], &["b", "nobody"], &["a", "c", "d"]);
        check(&["e"], &["a", "e"], &["b", "c"]);
        check(&["0", "aa", "d"], &["a", "c"], &["0", "aa", "b", "d"]);
        check(&[], &["a", "b", "c"], &[]);
    }

    #[test]
    fn a_list_is_split_as_lookups_would() {
        let held: Vec<String> = (0..200).step_by(3).map(|n| format!("{n:03}")).collect();
        let names = Names::of(held.iter().map(String::as_str));
        for step in [1, 2, 7, 50, 199] {
            let list: Vec<String> = (0..230).step_by(step).map(|n| format!("{n:03}")).collect();
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            let (inside, outside) = names.split(&list);
            let (want, others): (Vec<&str>, Vec<&str>) = list.iter().partition(|name| names.contains(name));
            assert_eq!((inside.into_iter().map(|name| &**name).collect::<Vec<_>>(), outside), (want, others));
        }
        assert_eq!(Names::default().split(&["a"]), (Vec::new(), vec!["a"]));
    }

    #[test]
    fn sets_that_nobody_holds_are_forgotten() {
        let mut pool = Pool::default();
        for number in 0..10_000_u32 {
            let name = number.to_string();
            let digest = Digest::of([name.as_str()]);
            pool.add(Arc::new(Set { sorted: vec![name.into()], digest }));
        }
        assert!(pool.sets.len() <= 64);
    }
}
