//! `initial_resource_versions`: versions that a proxy holds from an earlier stream. They stay in the encoded request: mostly they are exactly
//! the current ones, and a digest shows that. Single versions are looked up in an index, which is built when it is needed.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::Bytes;

use crate::protocol::{
    digest::{Digest, NameHash, NameHashState},
    names::Charge,
};

/// Of one resource: where its name and its version stand in the request.
#[derive(Clone, Debug)]
pub(crate) struct InitialVersion {
    pub(crate) name: Range<u32>,
    pub(crate) version: Range<u32>,
}

/// Positions in the list. Of two names with one hash only one is found: the other counts as unknown, and its resource is sent again.
type Index = HashMap<NameHash, u32, NameHashState>;

/// Cheap to clone. One pointer, because nearly every watch has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct InitialVersions(Option<Box<List>>);

#[derive(Clone, Debug)]
struct List {
    message: Bytes,
    /// In the order of the request. A name may occur twice; the last one counts.
    versions: Arc<Vec<InitialVersion>>,
    longest_name: usize,
    /// Without forgotten versions. `None`: it was not needed yet, and none is forgotten.
    index: Option<Arc<Index>>,
    /// Some versions were forgotten.
    forgotten: bool,
    /// What the bytes of the message count for, which are kept until the reply. `None`: nothing yet.
    charge: Option<Arc<Charge>>,
}

impl InitialVersions {
    /// The ranges are text in the message.
    pub(crate) fn new(message: &Bytes, versions: Vec<InitialVersion>) -> InitialVersions {
        if versions.is_empty() {
            return InitialVersions(None);
        }
        let longest_name = versions.iter().map(|version| version.name.len()).max().unwrap_or_default();
        let (message, versions) = (message.clone(), Arc::new(versions));
        InitialVersions(Some(Box::new(List {
            message,
            versions,
            longest_name,
            index: None,
            forgotten: false,
            charge: None,
        })))
    }

    /// Counts the bytes that are kept until the reply.
    pub(crate) fn charge<E>(&mut self, count: impl FnOnce(usize) -> Result<Charge, E>) -> Result<(), E> {
        if let Some(list) = &mut self.0 {
            let bytes = list.message.len() + list.versions.len() * size_of::<InitialVersion>();
            list.charge = Some(Arc::new(count(bytes)?));
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Duplicate names count twice.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.versions.len())
    }

    /// The length of the longest name, in bytes.
    pub(crate) fn longest_name(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.longest_name)
    }

    /// Of names and versions. `None`: some versions were forgotten.
    pub(crate) fn digest(&self) -> Option<Digest> {
        let forgotten = self.0.as_ref().is_some_and(|list| list.forgotten);
        (!forgotten).then(|| Digest::of_versions(self.iter()))
    }

    /// Names and versions, in the order of the request.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|list| {
            list.versions.iter().map(|version| (list.text(&version.name), list.text(&version.version)))
        })
    }

    /// Each at least once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|list| list.names())
    }

    /// Has to be called before `has`.
    pub(crate) fn build_index(&mut self) {
        if let Some(list) = &mut self.0 {
            list.build_index();
        }
    }

    /// Builds the index of the known names. Returns the others.
    pub(crate) fn index_known(&mut self, is_known: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let (mut index, mut unknown) = (Index::default(), Vec::new());
        for (name, position) in self.names().zip(0..) {
            if is_known(name) {
                index.insert(NameHash::of(name), position);
            } else {
                unknown.push(Arc::from(name));
            }
        }
        if let Some(list) = &mut self.0 {
            list.index.get_or_insert_with(|| Arc::new(index));
        }
        unknown
    }

    /// The proxy holds this version. `false` before `build_index`.
    pub(crate) fn has(&self, name: &str, version: &str) -> bool {
        let Some(list) = &self.0 else { return false };
        let Some(index) = list.index.as_ref().filter(|index| !index.is_empty()) else { return false };
        let held = index.get(&NameHash::of(name)).map(|position| &list.versions[*position as usize]);
        held.is_some_and(|held| list.text(&held.name) == name && list.text(&held.version) == version)
    }

    pub(crate) fn forget<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let mut names = names.into_iter().peekable();
        // Without a name no index is needed: the digest of all versions still holds.
        let Some(list) = self.0.as_mut().filter(|_| names.peek().is_some()) else { return };
        let index = Arc::make_mut(list.build_index());
        let before = index.len();
        for name in names {
            index.remove(&NameHash::of(name));
        }
        list.forgotten |= index.len() < before;
    }

    pub(crate) fn forget_versions(&mut self) {
        if let Some(list) = &mut self.0 {
            (list.index, list.forgotten) = (Some(Arc::default()), true);
        }
    }

    /// Both are of one stream, and so come from one request: a version that was forgotten in either is forgotten.
    pub(crate) fn add(&mut self, other: InitialVersions) {
        match (&mut self.0, other.0) {
            (None, other) => self.0 = other,
            (Some(list), Some(mut other)) if other.forgotten => {
                let known = other.build_index().clone();
                Arc::make_mut(list.build_index()).retain(|name, _| known.contains_key(name));
                list.forgotten = true;
            }
            _ => {}
        }
    }
}

impl List {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|version| self.text(&version.name))
    }

    fn build_index(&mut self) -> &mut Arc<Index> {
        if self.index.is_none() {
            let mut index = Index::with_capacity_and_hasher(self.versions.len(), NameHashState::default());
            index.extend(self.names().map(NameHash::of).zip(0..));
            self.index = Some(Arc::new(index));
        }
        self.index.as_mut().expect("it was built above")
    }

    fn text(&self, range: &Range<u32>) -> &str {
        str::from_utf8(&self.message[range.start as usize..range.end as usize]).expect("the ranges are text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `s0` in version `v0`, and so on.
    fn versions(count: usize) -> InitialVersions {
        let (mut text, mut list) = (String::new(), Vec::new());
        let mut add = |part: String| {
            let start = text.len() as u32;
            text.push_str(&part);
            start..text.len() as u32
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
