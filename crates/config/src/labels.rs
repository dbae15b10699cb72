//! Labels and the selectors that choose by them.

use std::collections::{BTreeMap, HashSet, btree_map};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Cheap to clone: objects, workloads and endpoints share those of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Labels(Arc<BTreeMap<String, String>>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) {
        Arc::make_mut(&mut self.0).insert(key.into(), value.into());
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every label of `wanted` is here, with the same value.
    pub fn contains_all(&self, wanted: &Labels) -> bool {
        wanted.is_subset_of(self)
    }

    pub fn is_subset_of(&self, other: &Labels) -> bool {
        self.len() <= other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Labels {
        Labels(Arc::new(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()))
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = (&'a String, &'a String);
    type IntoIter = btree_map::Iter<'a, String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Keeps equal labels once: those of replicas are equal, and are a third of what a mesh of pods takes.
#[derive(Debug, Default)]
pub struct SharedLabels {
    known: HashSet<Labels>,
    /// How many there were when those that nobody holds were last dropped.
    swept: usize,
}

impl SharedLabels {
    /// Puts equal ones that are there already in their place.
    pub fn share(&mut self, labels: &mut Labels) {
        if let Some(known) = self.known.get(labels) {
            *labels = known.clone();
            return;
        }
        // What is dropped pays for the look: it comes after as many again were added.
        if self.known.len() >= 2 * self.swept.max(FEW) {
            self.known.retain(|known| Arc::strong_count(&known.0) > 1);
            self.swept = self.known.len();
        }
        self.known.insert(labels.clone());
    }
}

/// Not worth a look.
const FEW: usize = 100;

/// Chooses workloads by labels; an empty selector chooses all.
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
    fn equal_labels_are_kept_once() {
        let mut shared = SharedLabels::default();
        let (mut first, mut second, mut other) = (labels("app=a"), labels("app=a"), labels("app=b"));
        [&mut first, &mut second, &mut other].into_iter().for_each(|it| shared.share(it));
        assert!(Arc::ptr_eq(&first.0, &second.0) && !Arc::ptr_eq(&first.0, &other.0));
    }

    #[test]
    fn labels_that_nobody_holds_are_forgotten() {
        let (mut shared, mut held) = (SharedLabels::default(), labels("app=held"));
        shared.share(&mut held);
        for number in 0..20 * FEW {
            shared.share(&mut labels(&format!("app={number}")));
        }
        assert!(shared.known.len() <= 2 * FEW + 1, "{}", shared.known.len());
        assert!(shared.known.contains(&held));
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
