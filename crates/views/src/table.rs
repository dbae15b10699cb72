//! The resources of one type that a class holds, each with the sequence at which it last changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use xds::{Changes, Resource, Seq};

/// Immutable but for a memory of answers: streams of a class ask the same few questions.
#[derive(Debug, Default)]
pub(crate) struct Table {
    held: BTreeMap<Arc<str>, Held>,
    /// Names that are gone, with when they went.
    gone: BTreeMap<Arc<str>, Seq>,
    /// What the answers below reach up to.
    seq: Seq,
    began: Option<Instant>,
    answers: Mutex<HashMap<Seq, Arc<Changes>>>,
}

#[derive(Debug, Clone)]
struct Held {
    resource: Arc<Resource>,
    changed: Seq,
}

impl Table {
    /// The table after a refresh. Equal versions keep their sequence: nothing is sent for them.
    pub(crate) fn next(
        &self,
        seq: Seq,
        began: Option<Instant>,
        resources: impl IntoIterator<Item = Arc<Resource>>,
    ) -> Self {
        let mut held = BTreeMap::new();
        for resource in resources {
            let kept = self.held.get(&resource.name).filter(|old| old.resource.version == resource.version);
            let entry = kept.cloned().unwrap_or(Held { resource, changed: seq });
            held.insert(entry.resource.name.clone(), entry);
        }
        let mut gone = self.gone.clone();
        gone.retain(|name, _| !held.contains_key(name));
        gone.extend(self.held.keys().filter(|name| !held.contains_key(*name)).map(|name| (name.clone(), seq)));
        Self { held, gone, seq, began, answers: Mutex::default() }
    }

    /// Something was added, changed or removed at this sequence.
    pub(crate) fn changed_at(&self, seq: Seq) -> bool {
        self.held.values().any(|held| held.changed == seq) || self.gone.values().any(|&went| went == seq)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held.keys()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.held.get(name).map(|held| &held.resource)
    }

    pub(crate) fn since(&self, since: Seq) -> Arc<Changes> {
        // A panic while holding it cannot leave a half answer: answers are inserted whole.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.entry(since).or_insert_with(|| Arc::new(self.changes(since))).clone()
    }

    fn changes(&self, since: Seq) -> Changes {
        Changes {
            seq: self.seq,
            changed: self.held.values().filter(|held| held.changed > since).map(|held| held.resource.clone()).collect(),
            removed: match since {
                0 => Vec::new(),
                _ => self.gone.iter().filter(|&(_, &went)| went > since).map(|(name, _)| name.clone()).collect(),
            },
            full: since == 0,
            began: self.began,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::google::protobuf::Any;

    fn resource(name: &str, version: &str) -> Arc<Resource> {
        Arc::new(Resource::new(name.into(), version.into(), Any::default(), Vec::new()))
    }

    fn check(table: &Table, since: Seq, changed: &[&str], removed: &[&str]) {
        let answer = table.since(since);
        let names: Vec<_> = answer.changed.iter().map(|resource| &*resource.name).collect();
        let gone: Vec<_> = answer.removed.iter().map(|name| &**name).collect();
        assert_eq!((names.as_slice(), gone.as_slice()), (changed, removed), "since {since}");
    }

    #[test]
    fn equal_content_is_no_change() {
        let first = Table::default().next(1, None, [resource("a", "1"), resource("b", "1")]);
        let second = first.next(2, None, [resource("a", "1"), resource("b", "2")]);
        check(&second, 1, &["b"], &[]);
        check(&second, 0, &["a", "b"], &[]);
        assert!(second.changed_at(2) && !second.next(3, None, [resource("a", "1"), resource("b", "2")]).changed_at(3));
    }

    #[test]
    fn what_went_is_told_to_those_who_were_there() {
        let first = Table::default().next(1, None, [resource("a", "1"), resource("b", "1")]);
        let second = first.next(2, None, [resource("a", "1")]);
        let third = second.next(3, None, [resource("a", "1"), resource("c", "1")]);
        check(&third, 1, &["c"], &["b"]);
        check(&third, 2, &["c"], &[]);
        check(&third.next(4, None, [resource("b", "1")]), 1, &["b"], &["a", "c"]);
    }
}
