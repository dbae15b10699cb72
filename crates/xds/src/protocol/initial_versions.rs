//! `initial_resource_versions`: versions that a proxy holds from an earlier stream. They stay in the encoded request: mostly they are exactly
//! the current ones, and a digest shows that. Single versions are looked up in an index, which is built when it is needed.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::Bytes;

use crate::protocol::digest::{Digest, DigestState};

/// Of one resource: where its name and its version stand in the request.
#[derive(Clone, Debug)]
pub(crate) struct InitialVersion {
    pub(crate) name: Range<usize>,
    pub(crate) version: Range<usize>,
}

/// Positions in the list, by the digest of the name.
type Index = HashMap<Digest, u32, DigestState>;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct InitialVersions {
    message: Bytes,
    /// In the order of the request. A name may occur twice; the last one counts.
    list: Arc<[InitialVersion]>,
    longest_name: usize,
    /// Without forgotten versions. `None`: it was not needed yet, and none is forgotten.
    index: Option<Arc<Index>>,
    /// Some versions were forgotten.
    forgotten: bool,
}

impl InitialVersions {
    /// The ranges are text in the message.
    pub(crate) fn new(message: &Bytes, list: Vec<InitialVersion>) -> InitialVersions {
        if list.is_empty() {
            return InitialVersions::default();
        }
        let longest_name = list.iter().map(|version| version.name.len()).max().unwrap_or_default();
        InitialVersions { message: message.clone(), list: list.into(), longest_name, ..InitialVersions::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Duplicate names count twice.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The length of the longest name, in bytes.
    pub(crate) fn longest_name(&self) -> usize {
        self.longest_name
    }

    /// Of names and versions. `None`: some versions were forgotten.
    pub(crate) fn digest(&self) -> Option<Digest> {
        (!self.forgotten).then(|| Digest::of_versions(self.iter()))
    }

    /// Names and versions, in the order of the request.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|version| (self.text(&version.name), self.text(&version.version)))
    }

    /// Each at least once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|version| self.text(&version.name))
    }

    /// Has to be called before `has`.
    pub(crate) fn build_index(&mut self) -> &mut Arc<Index> {
        let (message, list) = (&self.message, &self.list);
        self.index.get_or_insert_with(|| {
            let mut index = Index::with_capacity_and_hasher(list.len(), DigestState::default());
            let digests = list.iter().map(|version| Digest::of_bytes(&message[version.name.clone()]));
            index.extend(digests.zip(0..));
            Arc::new(index)
        })
    }

    /// The proxy holds this version. `false` before `build_index`.
    pub(crate) fn has(&self, name: &str, version: &str) -> bool {
        let Some(index) = self.index.as_ref().filter(|index| !index.is_empty()) else { return false };
        let position = index.get(&Digest::of_bytes(name.as_bytes()));
        position.is_some_and(|position| self.text(&self.list[*position as usize].version) == version)
    }

    pub(crate) fn forget<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let mut names = names.into_iter().peekable();
        // Without a name no index is needed: the digest of all versions still holds.
        if self.is_empty() || names.peek().is_none() {
            return;
        }
        let index = Arc::make_mut(self.build_index());
        let before = index.len();
        for name in names {
            index.remove(&Digest::of_bytes(name.as_bytes()));
        }
        self.forgotten |= index.len() < before;
    }

    pub(crate) fn forget_versions(&mut self) {
        self.index = Some(Arc::default());
        self.forgotten = !self.is_empty();
    }

    /// Both are of one stream, and so come from one request: a version that was forgotten in either is forgotten.
    pub(crate) fn add(&mut self, mut other: InitialVersions) {
        if self.is_empty() {
            *self = other;
        } else if other.forgotten {
            let known = other.build_index().clone();
            Arc::make_mut(self.build_index()).retain(|name, _| known.contains_key(name));
            self.forgotten = true;
        }
    }

    fn text(&self, range: &Range<usize>) -> &str {
        str::from_utf8(&self.message[range.clone()]).expect("the ranges are text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `s0` in version `v0`, and so on.
    fn versions(count: usize) -> InitialVersions {
        let (mut text, mut list) = (String::new(), Vec::new());
        let mut add = |part: String| {
            text.push_str(&part);
            text.len() - part.len()..text.len()
        };
        for number in 0..count {
            let (name, version) = (add(format!("s{number}")), add(format!("v{number}")));
            list.push(InitialVersion { name, version });
        }
        InitialVersions::new(&text.into(), list)
    }

    #[test]
    fn has_finds_the_version_of_each_name() {
        for count in [0, 1, 500] {
            let mut initial = versions(count);
            assert_eq!((initial.len(), initial.is_empty()), (count, count == 0));
            initial.build_index();
            let pairs: Vec<(String, String)> =
                (0..count).map(|number| (format!("s{number}"), format!("v{number}"))).collect();
            assert!(pairs.iter().all(|(name, version)| initial.has(name, version) && !initial.has(name, "other")));
            assert!(!initial.has("unknown", ""));
        }
        assert_eq!(versions(500).longest_name(), "s499".len());
    }

    #[test]
    fn the_last_version_of_a_duplicate_name_counts() {
        let list = [0..1, 2..3].map(|version| InitialVersion { name: 1..2, version });
        let mut initial = InitialVersions::new(&Bytes::from_static(b"1a2"), list.to_vec());
        initial.build_index();
        assert!(initial.has("a", "2") && !initial.has("a", "1"));
    }

    #[test]
    fn forgetting_names_that_are_not_there_keeps_the_digest() {
        let mut initial = versions(3);
        initial.forget([]);
        initial.forget(["unknown"]);
        assert!(initial.digest().is_some());
        initial.forget(["s0"]);
        assert!(initial.digest().is_none());
    }

    #[test]
    fn a_version_forgotten_in_one_copy_is_forgotten_in_the_union() {
        let initial = versions(3);
        let mut one = initial.clone();
        one.forget(["s0"]);
        assert!(!one.has("s0", "v0") && one.has("s1", "v1"));
        assert!(initial.digest().is_some() && one.digest().is_none());
        let mut both = initial.clone();
        both.add(one);
        assert!(!both.has("s0", "v0") && both.has("s1", "v1"));
        let mut none = initial;
        none.forget_versions();
        both.add(none);
        assert!(!both.has("s1", "v1") && both.names().count() == 3);
    }
}
