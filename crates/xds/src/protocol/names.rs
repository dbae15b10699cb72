//! Interned sets of subscribed names: equal sets share memory, because the proxies of a namespace subscribe to the same thousand names.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak},
};

use crate::protocol::digest::Digest;

/// Immutable and cheap to clone.
#[derive(Clone)]
pub struct Names(Arc<Set>);

struct Set {
    /// Sorted and unique.
    sorted: Vec<Arc<str>>,
    digest: Digest,
    /// What its bytes count for, as long as it lives.
    charge: OnceLock<Charge>,
}

/// Bytes that are counted until this is dropped.
pub(crate) type Charge = Box<dyn Any + Send + Sync>;

/// What a name takes besides its text: a pointer with a length, and two counts.
const PER_NAME: usize = 32;

/// Every set that is in use.
static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Pool {
    sets: HashMap<Digest, Weak<Set>>,
    /// The number of entries at which unused sets are dropped.
    sweep_at: usize,
}

impl Names {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
        let mut sorted: Vec<&str> = names.into_iter().collect();
        // With duplicates this is the digest of no set.
        let mut digest = Digest::of(sorted.iter().copied());
        if let Some(pooled) = Names::find(digest, sorted.len()) {
            return pooled;
        }
        let sent = sorted.len();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < sent {
            digest = Digest::of(sorted.iter().copied());
        }
        Names::intern(digest, || sorted.iter().map(|name| Arc::from(*name)).collect())
    }

    /// The set with this digest; `sorted` builds it, outside of the lock, if it is not in the pool.
    fn intern(digest: Digest, sorted: impl FnOnce() -> Vec<Arc<str>>) -> Names {
        let pool = || POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let pooled = pool().get(digest);
        Names(pooled.unwrap_or_else(|| {
            let set = Arc::new(Set { sorted: sorted(), digest, charge: OnceLock::new() });
            pool().add(set)
        }))
    }

    fn find(digest: Digest, len: usize) -> Option<Names> {
        let set = POOL.lock().unwrap_or_else(PoisonError::into_inner).get(digest)?;
        (set.sorted.len() == len).then_some(Names(set))
    }

    /// The set with some names added and some removed; a name in both lists is removed. Both lists are sorted and unique. If another stream
    /// made the same change, only the listed names are read; otherwise it is one pass over the set, which shares its strings.
    pub(crate) fn with_changes(&self, more: &[&str], less: &[&str]) -> Names {
        let more: Vec<&str> = more.iter().copied().filter(|name| less.binary_search(name).is_err()).collect();
        let (_, more) = self.split(&more);
        let (less, _) = self.split(less);
        let less: Vec<&str> = less.into_iter().map(|name| &**name).collect();
        let digest = self.0.digest.with_changes(Digest::of(more.iter().copied()), Digest::of(less.iter().copied()));
        if let Some(pooled) = Names::find(digest, self.len() + more.len() - less.len()) {
            return pooled;
        }
        Names::intern(digest, || self.merge(&more, &less))
    }

    /// Names of a sorted list that are in the set, and those that are not. Each is searched behind the previous one, in steps that double
    /// (galloping search): a long list costs one pass, a short one a few comparisons for each name.
    pub(crate) fn split<'a>(&self, list: &[&'a str]) -> (Vec<&Arc<str>>, Vec<&'a str>) {
        let (mut inside, mut outside, mut rest) = (Vec::new(), Vec::new(), &self.0.sorted[..]);
        for &name in list {
            let mut reach = 1;
            while rest.get(reach - 1).is_some_and(|member| **member < *name) {
                reach *= 2;
            }
            let (from, to) = (reach / 2, reach.min(rest.len()));
            rest = &rest[from + rest[from..to].partition_point(|member| **member < *name)..];
            match rest.first() {
                Some(member) if **member == *name => inside.push(member),
                _ => outside.push(name),
            }
        }
        (inside, outside)
    }

    /// `more`: not in the set. `less`: in it. Both sorted.
    fn merge(&self, more: &[&str], less: &[&str]) -> Vec<Arc<str>> {
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

    /// The names that are not before this one.
    pub(crate) fn iter_from(&self, name: &str) -> impl Iterator<Item = &Arc<str>> {
        let start = self.0.sorted.partition_point(|member| **member < *name);
        self.0.sorted[start..].iter()
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
        self.0.sorted.binary_search_by(|member| (**member).cmp(name)).ok().map(|index| &self.0.sorted[index])
    }

    /// Counts the bytes of the set, once: sets that are shared cost nothing more.
    pub(crate) fn charge<E>(&self, count: impl FnOnce(usize) -> Result<Charge, E>) -> Result<(), E> {
        if self.is_empty() || self.0.charge.get().is_some() {
            return Ok(());
        }
        let charge = count(self.0.sorted.iter().map(|name| name.len() + PER_NAME).sum())?;
        // If another stream was faster, this one's is dropped and counts no more.
        let _ = self.0.charge.set(charge);
        Ok(())
    }

    pub(crate) fn digest(&self) -> Digest {
        self.0.digest
    }

    /// Its memory address, which tells shared sets apart.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Pool {
    fn get(&self, digest: Digest) -> Option<Arc<Set>> {
        self.sets.get(&digest)?.upgrade()
    }

    /// Returns the equal set that another stream added meanwhile, if any.
    fn add(&mut self, set: Arc<Set>) -> Arc<Set> {
        if let Some(pooled) = self.get(set.digest) {
            return pooled;
        }
        if self.sets.len() >= self.sweep_at {
            self.sets.retain(|_, set| set.strong_count() > 0);
            self.sweep_at = 64.max(self.sets.len() * 2);
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
    fn equal_sets_share_memory() {
        let (one, two) = (Names::of(["b", "a", "b"]), Names::of(["a", "b"]));
        assert!(Arc::ptr_eq(&one.0, &two.0));
        assert_eq!(one.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
        assert!(one.contains("a") && !one.contains("c"));
        assert_ne!(one, Names::of(["a"]));
    }

    #[test]
    fn equal_changes_lead_to_the_same_shared_set() {
        let old = Names::of(["a", "b", "c"]);
        let check = |more: &[&str], less: &[&str], want: &[&str]| {
            let changed = old.with_changes(more, less);
            assert_eq!(changed, Names::of(want.iter().copied()), "more {more:?}, less {less:?}");
            let again = old.with_changes(more, less);
            assert!(Arc::ptr_eq(&changed.0, &again.0));
        };
        check(&[], &[], &["a", "b", "c"]);
        check(&["a", "d"], &["b", "unknown"], &["a", "c", "d"]);
        check(&["e"], &["a", "e"], &["b", "c"]);
        check(&["0", "aa", "d"], &["a", "c"], &["0", "aa", "b", "d"]);
        check(&[], &["a", "b", "c"], &[]);
    }

    #[test]
    fn split_agrees_with_single_lookups() {
        let members: Vec<String> = (0..200).step_by(3).map(|n| format!("{n:03}")).collect();
        let names = Names::of(members.iter().map(String::as_str));
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
    fn unused_sets_leave_the_pool() {
        let mut pool = Pool::default();
        for number in 0..10_000_u32 {
            let name = number.to_string();
            let digest = Digest::of([name.as_str()]);
            pool.add(Arc::new(Set { sorted: vec![name.into()], digest, charge: OnceLock::new() }));
        }
        assert!(pool.sets.len() <= 64);
    }
}
