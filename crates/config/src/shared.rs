//! Equal values kept once, as long as somebody holds them. What is worth it is said by those who share.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

/// A text that many objects have: the name of a namespace, a node, an account, a port.
pub fn shared_text(text: &str) -> Arc<str> {
    static TEXTS: Pool<Arc<str>> = LazyLock::new(Mutex::default);
    if text.is_empty() {
        return Arc::default();
    }
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    match texts.known.get(text) {
        Some(known) => known.clone(),
        None => texts.share(text.into()),
    }
}

/// For fields that are such texts.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(deserializer).map(|text| shared_text(&text))
}

/// For the whole process: sources, proxies and meshes come from everywhere.
pub type Pool<T> = LazyLock<Mutex<Shared<T>>>;

/// The equal one that the pool has already, else this one.
pub fn share<T: Held + Clone + Eq + Hash>(pool: &Pool<T>, value: T) -> T {
    pool.lock().unwrap_or_else(PoisonError::into_inner).share(value)
}

#[derive(Debug)]
pub struct Shared<T> {
    known: HashSet<T>,
    /// How many there were when those that nobody holds were last dropped.
    swept: usize,
}

/// Can tell whether another holds it too.
pub trait Held {
    fn is_held(&self) -> bool;
}

impl<T: ?Sized> Held for Arc<T> {
    fn is_held(&self) -> bool {
        Arc::strong_count(self) > 1
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared { known: HashSet::new(), swept: 0 }
    }
}

/// Not worth a look.
const FEW: usize = 100;

impl<T: Held + Clone + Eq + Hash> Shared<T> {
    fn share(&mut self, value: T) -> T {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        // What is dropped pays for the look: it comes after as many again were added.
        if self.known.len() >= 2 * self.swept.max(FEW) {
            self.known.retain(T::is_held);
            self.swept = self.known.len();
        }
        self.known.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_kept_once() {
        assert!(Arc::ptr_eq(&shared_text("a name"), &shared_text("a name")));
    }

    #[test]
    fn what_nobody_holds_is_forgotten() {
        let mut shared = Shared::default();
        let held: Arc<str> = shared.share(Arc::from("held"));
        for number in 0..20 * FEW {
            shared.share(Arc::from(number.to_string()));
        }
        assert!(shared.known.len() <= 2 * FEW + 1, "{}", shared.known.len());
        assert!(shared.known.contains(&held));
    }
}
