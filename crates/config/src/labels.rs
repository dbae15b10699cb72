//! Labels and label selectors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::intern::{RefCounted, StaticPool, intern};

/// Labels, and annotations. Cheap to clone, and in one allocation: they are most of the memory of a mesh of pods.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[u8]>);

/// Labels of objects and proxies, interned: replicas have equal ones, and so have a Service and its selector.
static READ: StaticPool<Labels> = LazyLock::new(Mutex::default);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.find(key.as_bytes()).map(text)
    }

    /// Copies all labels: use `extended` for several.
    pub fn insert(&mut self, key: &str, value: &str) {
        *self = self.extended([(key, value)]);
    }

    /// With these labels added, which take precedence.
    #[must_use]
    pub fn extended<'a>(&'a self, more: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
        self.iter().chain(more).collect()
    }

    /// In the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().map(|(key, value)| (text(key), text(value)))
    }

    pub fn len(&self) -> usize {
        self.pairs().count()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every label of `wanted` is present with the same value.
    pub fn contains_all(&self, wanted: &Labels) -> bool {
        wanted.is_subset_of(self)
    }

    pub fn is_subset_of(&self, other: &Labels) -> bool {
        self.0.len() <= other.0.len() && self.pairs().all(|(key, value)| other.find(key) == Some(value))
    }

    /// The interned copy.
    #[must_use]
    pub fn shared(self) -> Labels {
        if self.is_empty() { self } else { intern(&READ, self) }
    }

    fn pairs(&self) -> Pairs<'_> {
        Pairs(&self.0)
    }

    fn find(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

impl RefCounted for Labels {
    fn is_referenced(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// The encoding of a key and a value: both lengths, then both strings.
struct Pairs<'a>(&'a [u8]);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, rest) = self.0.split_first_chunk()?;
        let (value, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value) as usize)?;
        self.0 = rest;
        Some((key, value))
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("labels are made of texts")
}

/// Of several values of a key the last counts.
impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Labels {
        let mut pairs: Vec<(K, V)> = pairs.into_iter().collect();
        pairs.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        let length = |(key, value): &(K, V)| 8 + key.as_ref().len() + value.as_ref().len();
        let mut bytes = Vec::with_capacity(pairs.iter().map(length).sum());
        for (at, (key, value)) in pairs.iter().enumerate() {
            let (key, value) = (key.as_ref(), value.as_ref());
            let repeated = pairs.get(at + 1).is_some_and(|(next, _)| next.as_ref() == key);
            // Size limits of files and messages rule out strings of four gigabytes.
            let (Ok(key_length), Ok(value_length)) = (u32::try_from(key.len()), u32::try_from(value.len())) else {
                continue;
            };
            if !repeated {
                bytes.extend_from_slice(&key_length.to_le_bytes());
                bytes.extend_from_slice(&value_length.to_le_bytes());
                bytes.extend_from_slice(key.as_bytes());
                bytes.extend_from_slice(value.as_bytes());
            }
        }
        if bytes.is_empty() { Labels::default() } else { Labels(bytes.into()) }
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
        let read = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(read.into_iter().collect::<Labels>().shared())
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Selects workloads by labels; an empty selector selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    pub match_labels: Labels,
}

impl Selector {
    pub fn matches(&self, labels: &Labels) -> bool {
        labels.contains_all(&self.match_labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Labels {
        text.split(',').filter(|t| !t.is_empty()).map(|pair| pair.split_once('=').unwrap()).collect()
    }

    fn check(selector: &str, subject: &str, expected: bool) {
        assert_eq!(
            Selector { match_labels: labels(selector) }.matches(&labels(subject)),
            expected,
            "{selector} on {subject}"
        );
    }

    #[test]
    fn what_was_put_in_comes_out_in_order() {
        let long = "x".repeat(300);
        let some: Labels = [("b", "old"), ("a", ""), ("", "empty"), ("b", "2"), ("ab", &long)].into_iter().collect();
        assert_eq!(some.iter().collect::<Vec<_>>(), [("", "empty"), ("a", ""), ("ab", &long), ("b", "2")]);
        assert_eq!((some.get("b"), some.get("a"), some.get("c"), some.len()), (Some("2"), Some(""), None, 4));
        let more = some.extended([("c", "\0"), ("a", "new")]);
        assert_eq!((more.get("a"), more.get("c"), more.len()), (Some("new"), Some("\0"), 5));
        assert!(some.is_subset_of(&more.extended([("a", "")])) && !some.is_subset_of(&more));
        assert_eq!(serde_json::to_string(&labels("b=2,a=1")).unwrap(), r#"{"a":"1","b":"2"}"#);
        assert!(Labels::default().is_empty() && !some.is_empty());
    }

    #[test]
    fn equal_labels_are_kept_once() {
        let read = |text: &str| serde_json::from_str::<Labels>(text).unwrap();
        let (first, second, other) = (read(r#"{"app": "a"}"#), read(r#"{"app": "a"}"#), read(r#"{"app": "b"}"#));
        assert!(Arc::ptr_eq(&first.0, &second.0) && !Arc::ptr_eq(&first.0, &other.0));
    }

    #[test]
    fn a_selector_wants_every_label() {
        check("", "", true);
        check("", "app=a", true);
        check("app=a", "app=a,version=v1", true);
        check("app=a,version=v1", "app=a", false);
        check("app=a", "app=b", false);
        check("app=", "version=v1", false);
    }
}
