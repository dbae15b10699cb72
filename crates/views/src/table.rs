//! Resources of one type, each with the sequence at which it last changed.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use imbl::OrdMap;
use xds::{Changes, Resource, Seq};

/// So many names that are gone are remembered in any case; of a larger table as many as it holds.
const REMEMBERED: usize = 1024;

/// Names are few if they are this part of a table, or less.
const FEW: usize = 4;

/// Immutable but for a memory of answers: the streams of a class ask the same few questions.
#[derive(Debug, Default)]
pub(crate) struct Table {
    held: OrdMap<Arc<str>, Held>,
    /// Names that are gone, with when they went, as far back as is remembered.
    gone: OrdMap<Arc<str>, Seq>,
    /// What went up to here is forgotten: a stream that is behind it must compare what it holds.
    pub(crate) forgotten: Seq,
    /// When it last changed, and when the cause of that arrived.
    pub(crate) seq: Seq,
    began: Option<Instant>,
    /// `None`: they are too many to say.
    latest: Option<Arc<Latest>>,
    answers: Mutex<HashMap<Seq, Weak<Changes>>>,
}

/// Names that came, went or changed after a sequence. Mostly they are few, and whoever asks was told of all that was before: the rest of
/// a large table need not be looked at.
#[derive(Debug)]
struct Latest {
    after: Seq,
    names: BTreeSet<Arc<str>>,
}

#[derive(Debug, Clone)]
struct Held {
    resource: Arc<Resource>,
    changed: Seq,
}

impl Table {
    /// The table after some of its resources were made anew and some were dropped. `None`: all is what it was.
    pub(crate) fn updated(
        &self,
        seq: Seq,
        began: Option<Instant>,
        made: impl IntoIterator<Item = Arc<Resource>>,
        dropped: impl IntoIterator<Item = Arc<str>>,
    ) -> Option<Self> {
        let (mut held, mut gone) = (self.held.clone(), self.gone.clone());
        let (mut changed, mut blamed) = (BTreeSet::new(), false);
        for resource in made {
            match held.get(&resource.name) {
                // Equal content stops the wave: nothing is sent for it. What it is made from is told all the same.
                Some(old) if old.resource.version == resource.version => {
                    if old.resource.made_from != resource.made_from {
                        let since = old.changed;
                        held.insert(resource.name.clone(), Held { resource, changed: since });
                        blamed = true;
                    }
                }
                _ => {
                    gone.remove(&resource.name);
                    changed.insert(resource.name.clone());
                    held.insert(resource.name.clone(), Held { resource, changed: seq });
                }
            }
        }
        for name in dropped {
            if held.remove(&name).is_some() {
                changed.insert(name.clone());
                gone.insert(name, seq);
            }
        }
        if changed.is_empty() {
            let Self { forgotten, seq, began, .. } = *self;
            let latest = self.latest.clone();
            return blamed.then(|| Self { held, gone, forgotten, seq, began, latest, answers: Mutex::default() });
        }
        let mut forgotten = self.forgotten;
        if gone.len() > held.len().max(REMEMBERED) {
            let mut times: Vec<_> = gone.values().copied().collect();
            times.sort_unstable();
            forgotten = times[times.len() / 2];
            gone = gone.into_iter().filter(|(_, went)| *went > forgotten).collect();
        }
        let latest =
            self.latest_with(changed, seq).filter(|latest| latest.names.len() <= held.len() / FEW).map(Arc::new);
        Some(Self { held, gone, forgotten, seq, began, latest, answers: Mutex::default() })
    }

    /// A table may change several times at one sequence.
    fn latest_with(&self, mut names: BTreeSet<Arc<str>>, seq: Seq) -> Option<Latest> {
        if self.seq < seq {
            return Some(Latest { after: self.seq, names });
        }
        let known = self.latest.as_ref()?;
        names.extend(known.names.iter().cloned());
        Some(Latest { after: known.after, names })
    }

    /// The table after all of its resources were made anew: what is not among them is gone.
    pub(crate) fn replaced(&self, seq: Seq, began: Option<Instant>, made: Vec<Arc<Resource>>) -> Option<Self> {
        let names: BTreeSet<_> = made.iter().map(|resource| resource.name.clone()).collect();
        let dropped: Vec<_> = self.held.keys().filter(|name| !names.contains(*name)).cloned().collect();
        self.updated(seq, began, made, dropped)
    }

    /// What is here and what ever was: a slow stream may still hold either.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held.keys().chain(self.gone.keys())
    }

    /// How many names are here or ever were.
    pub(crate) fn len(&self) -> usize {
        self.held.len() + self.gone.len()
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.held.values().map(|held| &held.resource)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.held.get(name).map(|held| &held.resource)
    }

    /// Whoever was told everything up to `since` holds this version.
    pub(crate) fn was_told(&self, since: Seq, resource: &Resource) -> bool {
        let held = self.held.get(&resource.name);
        held.is_some_and(|held| held.changed <= since && held.resource.version == resource.version)
    }

    pub(crate) fn since(&self, since: Seq) -> Arc<Changes> {
        // A panic while holding it cannot leave a half answer: answers are inserted whole.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        remembered(&mut answers, since, || self.changes(since))
    }

    fn changes(&self, since: Seq) -> Changes {
        let full = since == 0 || since < self.forgotten;
        if !full && since >= self.seq {
            return Changes { seq: self.seq, began: self.began, ..Changes::default() };
        }
        let (changed, removed) = match &self.latest {
            Some(latest) if !full && since >= latest.after => self.named_since(&latest.names, since),
            _ => self.all_since(since, full),
        };
        Changes { seq: self.seq, changed, removed, full, began: self.began, ..Changes::default() }
    }

    fn named_since(&self, names: &BTreeSet<Arc<str>>, since: Seq) -> (Vec<Arc<Resource>>, Vec<Arc<str>>) {
        let held = names.iter().filter_map(|name| self.held.get(name)).filter(|held| held.changed > since);
        let gone = names.iter().filter(|name| self.gone.get(*name).is_some_and(|went| *went > since));
        (held.map(|held| held.resource.clone()).collect(), gone.cloned().collect())
    }

    fn all_since(&self, since: Seq, full: bool) -> (Vec<Arc<Resource>>, Vec<Arc<str>>) {
        let held = self.held.values().filter(|held| full || held.changed > since);
        let gone = self.gone.iter().filter(|&(_, &went)| !full && went > since);
        (held.map(|held| held.resource.clone()).collect(), gone.map(|(name, _)| name.clone()).collect())
    }
}

/// An answer lasts as long as some stream is being told it.
pub(crate) fn remembered<K: Hash + Eq>(
    answers: &mut HashMap<K, Weak<Changes>>,
    question: K,
    make: impl FnOnce() -> Changes,
) -> Arc<Changes> {
    if let Some(held) = answers.get(&question).and_then(Weak::upgrade) {
        return held;
    }
    answers.retain(|_, answer| answer.strong_count() > 0);
    let made = Arc::new(make());
    answers.insert(question, Arc::downgrade(&made));
    made
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

    fn next(table: &Table, seq: Seq, made: &[(&str, &str)]) -> Option<Table> {
        table.replaced(seq, None, made.iter().map(|(name, version)| resource(name, version)).collect())
    }

    #[test]
    fn equal_content_is_no_change() {
        let first = next(&Table::default(), 1, &[("a", "1"), ("b", "1")]).expect("new names");
        let second = next(&first, 2, &[("a", "1"), ("b", "2")]).expect("b changed");
        check(&second, 1, &["b"], &[]);
        check(&second, 0, &["a", "b"], &[]);
        assert!(next(&second, 3, &[("a", "1"), ("b", "2")]).is_none());
    }

    #[test]
    fn blame_follows_the_objects_where_the_content_stays() {
        let first = next(&Table::default(), 1, &[("a", "1")]).expect("a new name");
        let from = |object: &str| Resource::new("a".into(), "1".into(), Any::default(), vec![object.into()]);
        let second = first.updated(2, None, [Arc::new(from("ServiceEntry shop/b"))], []).expect("another object");
        check(&second, 1, &[], &[]);
        assert_eq!(second.get("a").expect("held").made_from, [Arc::from("ServiceEntry shop/b")]);
    }

    #[test]
    fn what_went_is_told_to_those_who_were_there() {
        let first = next(&Table::default(), 1, &[("a", "1"), ("b", "1")]).expect("new names");
        let second = next(&first, 2, &[("a", "1")]).expect("b went");
        let third = next(&second, 3, &[("a", "1"), ("c", "1")]).expect("c came");
        check(&third, 1, &["c"], &["b"]);
        check(&third, 2, &["c"], &[]);
        check(&next(&third, 4, &[("b", "1")]).expect("b is back"), 1, &["b"], &["a", "c"]);
    }

    #[test]
    fn names_that_came_and_went_are_forgotten_at_last() {
        let mut table = next(&Table::default(), 1, &[("a", "1")]).expect("a new name");
        for seq in 2..10_000 {
            table = table
                .updated(seq, None, [resource(&seq.to_string(), "1")], [(seq - 1).to_string().into()])
                .expect("news");
        }
        assert!(table.len() <= 2 * REMEMBERED, "{} names", table.len());
        let recent = table.since(9_990);
        assert_eq!((recent.removed.len(), recent.full), (9, false));
        assert!(table.since(5).full, "it must compare what it holds");
    }

    #[test]
    fn what_is_latest_is_told_without_a_look_at_the_rest() {
        let all: Vec<_> = (0..20).map(|number| resource(&format!("{number:02}"), "1")).collect();
        let first = Table::default().updated(1, None, all, []).expect("new names");
        assert!(first.latest.is_none(), "all is too many to say");
        let second = first.updated(2, None, [resource("03", "2")], [Arc::from("04")]).expect("two changed");
        let third = second.updated(2, None, [resource("02", "2"), resource("04", "2")], []).expect("two more, at once");
        let names = |table: &Table| table.latest.as_ref().map(|latest| latest.names.len());
        assert_eq!((names(&second), names(&third)), (Some(2), Some(3)));
        check(&second, 1, &["03"], &["04"]);
        check(&third, 1, &["02", "03", "04"], &[]);
        let fourth = third.updated(5, None, [], [Arc::from("03")]).expect("one went");
        check(&fourth, 2, &[], &["03"]);
        check(&fourth, 1, &["02", "04"], &["03"]);
        check(&fourth, 5, &[], &[]);
    }

    #[test]
    fn a_part_leaves_the_rest_alone() {
        let first = next(&Table::default(), 1, &[("a", "1"), ("b", "1")]).expect("new names");
        let second = first.updated(2, None, [resource("a", "2")], [Arc::from("x")]).expect("a changed");
        check(&second, 1, &["a"], &[]);
        assert!(second.get("b").is_some());
    }
}
