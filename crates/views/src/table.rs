//! Resources of one type, each with the sequence at which it last changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use xds::{Changes, Resource, Seq, Tally};

use crate::sorted::{Named, Sorted};

/// So many names that are gone are remembered in any case; of a larger table as many as it holds.
const REMEMBERED: usize = 1024;

/// Names are few if they are this part of a table, or less.
const FEW: usize = 4;

/// Immutable but for a memory of answers: the streams of a class ask the same few questions.
#[derive(Debug, Default)]
pub(crate) struct Table {
    held: Sorted<Held>,
    /// As far back as is remembered.
    gone: Sorted<Gone>,
    /// What went up to here is forgotten: a stream that is behind it must compare what it holds.
    pub(crate) forgotten: Seq,
    /// When it last changed, and when the cause of that arrived.
    pub(crate) seq: Seq,
    began: Option<Instant>,
    /// `None`: they are too many to say.
    latest: Option<Arc<Latest>>,
    answers: Mutex<Answers<Seq>>,
    /// Of all that is here, once somebody asked.
    tally: OnceLock<Box<Tally>>,
}

/// What streams are being told, by what they asked.
pub(crate) type Answers<Q> = Vec<(Q, Weak<Changes>)>;

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

/// A name that is gone, and when it went.
#[derive(Debug, Clone)]
struct Gone {
    name: Arc<str>,
    went: Seq,
}

/// What is held under each name from now on. `None`: nothing.
type News = BTreeMap<Arc<str>, Option<Held>>;

impl Named for Held {
    fn name(&self) -> &Arc<str> {
        &self.resource.name
    }
}

impl Named for Gone {
    fn name(&self) -> &Arc<str> {
        &self.name
    }
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
        let (news, changed) = self.news(seq, made, dropped);
        if news.is_empty() {
            return None;
        }
        if changed.is_empty() {
            let (gone, latest) = (self.gone.clone(), self.latest.clone());
            let Self { forgotten, seq, began, .. } = *self;
            return Some(Self {
                held: self.held.with(news),
                gone,
                forgotten,
                seq,
                began,
                latest,
                answers: Mutex::default(),
                tally: OnceLock::new(),
            });
        }
        let went = changed.iter().map(|name| {
            let is_gone = news.get(name).is_some_and(Option::is_none);
            (name.clone(), is_gone.then(|| Gone { name: name.clone(), went: seq }))
        });
        let (mut gone, mut forgotten) = (self.gone.with(went), self.forgotten);
        let held = self.held.with(news);
        if gone.len() > held.len().max(REMEMBERED) {
            let mut times: Vec<_> = gone.iter().map(|gone| gone.went).collect();
            times.sort_unstable();
            forgotten = times[times.len() / 2];
            let recent = gone.iter().filter(|gone| gone.went > forgotten);
            gone = Sorted::default().with(recent.map(|gone| (gone.name.clone(), Some(gone.clone()))));
        }
        let latest =
            self.latest_with(changed, seq).filter(|latest| latest.names.len() <= held.len() / FEW).map(Arc::new);
        Some(Self { held, gone, forgotten, seq, began, latest, answers: Mutex::default(), tally: OnceLock::new() })
    }

    /// What is held otherwise, or no more, and which names of that streams are told of.
    fn news(
        &self,
        seq: Seq,
        made: impl IntoIterator<Item = Arc<Resource>>,
        dropped: impl IntoIterator<Item = Arc<str>>,
    ) -> (News, BTreeSet<Arc<str>>) {
        let (mut news, mut changed) = (News::new(), BTreeSet::new());
        let known = |news: &News, name: &Arc<str>| match news.get(name) {
            Some(new) => new.clone(),
            None => self.held.get(name).cloned(),
        };
        for resource in made {
            let mut since = seq;
            // Equal content stops the wave: nothing is sent for it. What it is made from is told all the same.
            match known(&news, &resource.name).filter(|old| old.resource.version == resource.version) {
                Some(old) if old.resource.made_from == resource.made_from => continue,
                Some(old) => since = old.changed,
                None => drop(changed.insert(resource.name.clone())),
            }
            news.insert(resource.name.clone(), Some(Held { resource, changed: since }));
        }
        for name in dropped {
            if known(&news, &name).is_some() {
                changed.insert(name.clone());
                news.insert(name, None);
            }
        }
        (news, changed)
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
        let dropped: Vec<_> =
            self.held.iter().map(Named::name).filter(|name| !names.contains(*name)).cloned().collect();
        self.updated(seq, began, made, dropped)
    }

    /// What is here and what ever was: a slow stream may still hold either.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held.iter().map(Named::name).chain(self.gone.iter().map(Named::name))
    }

    /// How many names are here or ever were.
    pub(crate) fn len(&self) -> usize {
        self.held.len() + self.gone.len()
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.held.iter().map(|held| &held.resource)
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

    pub(crate) fn tally(&self) -> Tally {
        **self.tally.get_or_init(|| Box::new(Tally::of(self.resources()).at(self.seq)))
    }

    /// Drops answers that nobody is being told any more.
    pub(crate) fn rest(&self) {
        forget(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner));
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
        let gone = names.iter().filter(|name| self.gone.get(name).is_some_and(|gone| gone.went > since));
        (held.map(|held| held.resource.clone()).collect(), gone.cloned().collect())
    }

    fn all_since(&self, since: Seq, full: bool) -> (Vec<Arc<Resource>>, Vec<Arc<str>>) {
        let held = self.held.iter().filter(|held| full || held.changed > since);
        let gone = self.gone.iter().filter(|gone| !full && gone.went > since);
        (held.map(|held| held.resource.clone()).collect(), gone.map(|gone| gone.name.clone()).collect())
    }
}

/// An answer lasts as long as some stream is being told it. They are few.
pub(crate) fn remembered<Q: PartialEq>(
    answers: &mut Answers<Q>,
    question: Q,
    make: impl FnOnce() -> Changes,
) -> Arc<Changes> {
    let known = answers.iter().find(|(asked, _)| *asked == question);
    if let Some(held) = known.and_then(|(_, answer)| answer.upgrade()) {
        return held;
    }
    answers.retain(|(_, answer)| answer.strong_count() > 0);
    let made = Arc::new(make());
    answers.push((question, Arc::downgrade(&made)));
    made
}

/// Drops those that nobody is being told any more.
pub(crate) fn forget<Q>(answers: &mut Answers<Q>) {
    answers.retain(|(_, answer)| answer.strong_count() > 0);
    answers.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::google::protobuf::Any;

    fn resource(name: &str, version: &str) -> Arc<Resource> {
        Arc::new(Resource::new(name.into(), version.into(), &Any::default(), Vec::new()))
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
        let from = |object: &str| Resource::new("a".into(), "1".into(), &Any::default(), vec![object.into()]);
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
