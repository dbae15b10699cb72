//! Interning: equal values are kept once, as long as they are in use. The process-wide pools are in `intern_str` and `labels`.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

/// For strings that many objects share: names of namespaces, nodes, service accounts, ports.
pub fn intern_str(text: &str) -> Arc<str> {
    static TEXTS: StaticPool<Arc<str>> = LazyLock::new(Mutex::default);
    if text.is_empty() {
        return Arc::default();
    }
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    match texts.known.get(text) {
        Some(known) => known.clone(),
        None => texts.intern(text.into()),
    }
}

/// Deserializes such a string.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(deserializer).map(|text| intern_str(&text))
}

/// Process-wide: values come from sources, proxies and meshes.
pub type StaticPool<T> = LazyLock<Mutex<InternPool<T>>>;

/// The equal value of the pool, else this one.
pub fn intern<T: RefCounted + Clone + Eq + Hash>(pool: &StaticPool<T>, value: T) -> T {
    pool.lock().unwrap_or_else(PoisonError::into_inner).intern(value)
}

#[derive(Debug)]
pub struct InternPool<T> {
    known: HashSet<T>,
    /// Of all values.
    bytes: usize,
    /// The number of values, and their bytes, after the last sweep of unused ones.
    swept: (usize, usize),
}

/// A value that the pool shares with others.
pub trait RefCounted {
    /// Whether the value is in use outside of the pool.
    fn is_referenced(&self) -> bool;
    /// What it takes.
    fn bytes(&self) -> usize;
}

impl<T: ?Sized> RefCounted for Arc<T> {
    fn is_referenced(&self) -> bool {
        Arc::strong_count(self) > 1
    }

    fn bytes(&self) -> usize {
        size_of_val(&**self)
    }
}

impl<T> Default for InternPool<T> {
    fn default() -> InternPool<T> {
        InternPool { known: HashSet::new(), bytes: 0, swept: (0, 0) }
    }
}

/// A pool of fewer values, whose bytes are fewer too, is not swept.
const MIN_SWEEP: usize = 100;
const MIN_SWEPT_BYTES: usize = 256 << 10;

impl<T: RefCounted + Clone + Eq + Hash> InternPool<T> {
    /// The equal value of the pool, else this one.
    pub fn intern(&mut self, value: T) -> T {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        // Amortized: a sweep runs after the pool has doubled, in values or in bytes. A few annotations may be larger than all labels of a mesh.
        let (values, bytes) = self.swept;
        if self.known.len() >= 2 * values.max(MIN_SWEEP) || self.bytes >= 2 * bytes.max(MIN_SWEPT_BYTES) {
            self.known.retain(T::is_referenced);
            self.bytes = self.known.iter().map(T::bytes).sum();
            self.swept = (self.known.len(), self.bytes);
        }
        self.bytes += value.bytes();
        self.known.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_kept_once() {
        assert!(Arc::ptr_eq(&intern_str("a name"), &intern_str("a name")));
    }

    #[test]
    fn what_nobody_holds_is_forgotten() {
        let mut shared = InternPool::default();
        let used: Arc<str> = shared.intern(Arc::from("used"));
        for number in 0..20 * MIN_SWEEP {
            shared.intern(Arc::from(number.to_string()));
        }
        assert!(shared.known.len() <= 2 * MIN_SWEEP + 1, "{}", shared.known.len());
        assert!(shared.known.contains(&used));
    }

    /// A client or a tenant can make each of them as long as a request or an object may be.
    #[test]
    fn a_few_long_values_that_nobody_holds_are_forgotten() {
        let mut shared = InternPool::default();
        let used: Arc<str> = shared.intern(Arc::from("used"));
        for number in 0..20 {
            shared.intern(Arc::from(format!("{number}{}", "x".repeat(200 << 10))));
        }
        assert!(shared.known.len() <= 4 && shared.bytes <= 3 * MIN_SWEPT_BYTES, "{}", shared.bytes);
        assert!(shared.known.contains(&used));
    }
}
