//! The resources of one type in a layer, each with the sequence at which it last changed, and tombstones of removed ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use imbl::OrdMap;
use xds::{Changes, ContentDigest, Resource, Seq};

use crate::sorted_list::{Named, SortedList};

/// The number of tombstones that even a small table keeps; a larger table keeps as many as it has entries.
const MIN_TOMBSTONES: usize = 1024;

/// Recent changes are recorded if they are at most this fraction (1/n) of the table.
const RECENT_FRACTION: usize = 4;

/// Immutable except for a cache of answers: the streams of a class ask for the same few sequences.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: SortedList<TableEntry>,
    /// Compacted up to `compacted_at`.
    tombstones: SortedList<Tombstone>,
    /// Tombstones up to this sequence were dropped: a stream that is behind it gets a full answer.
    pub(crate) compacted_at: Seq,
    /// The sequence of the last change, and when its cause arrived.
    pub(crate) seq: Seq,
    began: Option<Instant>,
    /// `None`: too many names changed.
    recent: Option<Arc<RecentChanges>>,
    answers: Mutex<Answers<Seq>>,
    /// Of all entries, computed on first use.
    content_digest: OnceLock<Box<ContentDigest>>,
    superseded: Mutex<Superseded>,
}

/// Content that the last changes replaced, for proxies that reject the new one.
#[derive(Debug, Clone, Default)]
struct Superseded {
    entries: OrdMap<Arc<str>, TableEntry>,
    /// When the last of the changes arrived.
    at: Option<Instant>,
}

/// Answers that streams still use, by their question.
pub(crate) type Answers<Q> = Vec<(Q, Weak<Changes>)>;

/// Names that changed after a sequence. Usually they are few and the asking stream has everything before, so that the rest of a large table
/// need not be scanned.
#[derive(Debug)]
struct RecentChanges {
    after: Seq,
    names: BTreeSet<Arc<str>>,
}

#[derive(Debug, Clone)]
struct TableEntry {
    resource: Arc<Resource>,
    changed: Seq,
}

/// The name of a removed resource, and when it was removed.
#[derive(Debug, Clone)]
struct Tombstone {
    name: Arc<str>,
    removed_at: Seq,
}

/// The new entry for each name. `None`: removed.
type EntryUpdates = BTreeMap<Arc<str>, Option<TableEntry>>;

impl Named for TableEntry {
    fn name(&self) -> &Arc<str> {
        &self.resource.name
    }
}

impl Named for Tombstone {
    fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Table {
    /// The table with some resources replaced and some removed. `None`: nothing changed.
    pub(crate) fn update(
        &self,
        seq: Seq,
        began: Option<Instant>,
        made: impl IntoIterator<Item = Arc<Resource>>,
        dropped: impl IntoIterator<Item = Arc<str>>,
    ) -> Option<Self> {
        let (diff, changed) = self.diff(seq, made, dropped);
        if diff.is_empty() {
            return None;
        }
        if changed.is_empty() {
            let (tombstones, recent) = (self.tombstones.clone(), self.recent.clone());
            let Self { compacted_at, seq, began, .. } = *self;
            return Some(Self {
                entries: self.entries.with(diff),
                tombstones,
                compacted_at,
                seq,
                began,
                recent,
                answers: Mutex::default(),
                content_digest: OnceLock::new(),
                superseded: Mutex::new(self.superseded().clone()),
            });
        }
        let removals = changed.iter().map(|name| {
            let is_gone = diff.get(name).is_some_and(Option::is_none);
            (name.clone(), is_gone.then(|| Tombstone { name: name.clone(), removed_at: seq }))
        });
        let (mut tombstones, mut compacted_at) = (self.tombstones.with(removals), self.compacted_at);
        let entries = self.entries.with(diff);
        if tombstones.len() > entries.len().max(MIN_TOMBSTONES) {
            let mut times: Vec<_> = tombstones.iter().map(|tombstone| tombstone.removed_at).collect();
            times.sort_unstable();
            compacted_at = times[times.len() / 2];
            let recent = tombstones.iter().filter(|tombstone| tombstone.removed_at > compacted_at);
            tombstones =
                SortedList::default().with(recent.map(|tombstone| (tombstone.name.clone(), Some(tombstone.clone()))));
        }
        let recent = self
            .merge_recent(changed, seq)
            .filter(|recent| recent.names.len() <= entries.len() / RECENT_FRACTION)
            .map(Arc::new);
        Some(Self {
            entries,
            tombstones,
            compacted_at,
            seq,
            began,
            recent,
            answers: Mutex::default(),
            content_digest: OnceLock::new(),
            superseded: Mutex::new(self.superseded().clone()),
        })
    }

    /// The entries to replace, and the names among them whose content changed.
    fn diff(
        &self,
        seq: Seq,
        made: impl IntoIterator<Item = Arc<Resource>>,
        dropped: impl IntoIterator<Item = Arc<str>>,
    ) -> (EntryUpdates, BTreeSet<Arc<str>>) {
        let (mut diff, mut changed) = (EntryUpdates::new(), BTreeSet::new());
        let known = |diff: &EntryUpdates, name: &Arc<str>| match diff.get(name) {
            Some(new) => new.clone(),
            None => self.entries.get(name).cloned(),
        };
        for resource in made {
            let mut since = seq;
            // Equal content is not sent again and keeps its sequence; changed provenance alone is recorded.
            match known(&diff, &resource.name).filter(|old| old.resource.version == resource.version) {
                Some(old) if old.resource.provenance == resource.provenance => continue,
                Some(old) => since = old.changed,
                None => drop(changed.insert(resource.name.clone())),
            }
            diff.insert(resource.name.clone(), Some(TableEntry { resource, changed: since }));
        }
        for name in dropped {
            if known(&diff, &name).is_some() {
                changed.insert(name.clone());
                diff.insert(name, None);
            }
        }
        (diff, changed)
    }

    /// A table may change several times at one sequence.
    fn merge_recent(&self, mut names: BTreeSet<Arc<str>>, seq: Seq) -> Option<RecentChanges> {
        if self.seq < seq {
            return Some(RecentChanges { after: self.seq, names });
        }
        let known = self.recent.as_ref()?;
        names.extend(known.names.iter().cloned());
        Some(RecentChanges { after: known.after, names })
    }

    /// The table with all resources replaced: names that are not in `made` are removed.
    pub(crate) fn replace(&self, seq: Seq, began: Option<Instant>, made: Vec<Arc<Resource>>) -> Option<Self> {
        let names: BTreeSet<_> = made.iter().map(|resource| resource.name.clone()).collect();
        let dropped: Vec<_> =
            self.entries.iter().map(Named::name).filter(|name| !names.contains(*name)).cloned().collect();
        self.update(seq, began, made, dropped)
    }

    /// Current and removed names: a slow stream may still hold either.
    pub(crate) fn known_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.iter().map(Named::name).chain(self.tombstones.iter().map(Named::name))
    }

    /// The number of current and removed names.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.tombstones.len()
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.entries.iter().map(|entry| &entry.resource)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.entries.get(name).map(|entry| &entry.resource)
    }

    /// With the sequence of its last change.
    pub(crate) fn entry(&self, name: &str) -> Option<(&Arc<Resource>, Seq)> {
        self.entries.get(name).map(|entry| (&entry.resource, entry.changed))
    }

    /// Remembers what the last change replaced in the table `before` it.
    pub(crate) fn keep_superseded(&self, before: &Table) {
        let mut superseded = self.superseded();
        let mut keep = |name: &Arc<str>| match (self.entries.get(name), before.entries.get(name)) {
            // What was replaced twice by one change was never sent.
            (Some(now), Some(old)) if now.changed == self.seq && old.changed < self.seq => {
                superseded.entries.insert(name.clone(), old.clone());
            }
            (None, _) => drop(superseded.entries.remove(name)),
            _ => {}
        };
        match &self.recent {
            Some(recent) => recent.names.iter().for_each(&mut keep),
            None => self.entries.iter().map(Named::name).for_each(&mut keep),
        }
        superseded.at = self.began;
    }

    /// The content that a change replaced, with its sequence.
    pub(crate) fn superseded_entry(&self, name: &str) -> Option<(Arc<Resource>, Seq)> {
        self.superseded().entries.get(name).map(|entry| (entry.resource.clone(), entry.changed))
    }

    /// Forgets what was replaced before this.
    pub(crate) fn drop_superseded(&self, before: Instant) {
        let mut superseded = self.superseded();
        if superseded.at.is_none_or(|at| at < before) {
            *superseded = Superseded::default();
        }
    }

    // Entries are inserted whole, so a panic leaves no half of one.
    fn superseded(&self) -> MutexGuard<'_, Superseded> {
        self.superseded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a stream that has received everything up to `since` holds this version.
    pub(crate) fn has_sent(&self, since: Seq, resource: &Resource) -> bool {
        let entry = self.entries.get(&resource.name);
        entry.is_some_and(|entry| entry.changed <= since && entry.resource.version == resource.version)
    }

    pub(crate) fn since(&self, since: Seq) -> Arc<Changes> {
        // Answers are inserted whole, so a panic leaves no half of one.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        cached_changes(&mut answers, since, || self.changes(since))
    }

    pub(crate) fn content_digest(&self) -> ContentDigest {
        **self.content_digest.get_or_init(|| Box::new(ContentDigest::of(self.resources()).at(self.seq)))
    }

    /// Drops cached answers that no stream uses any more.
    pub(crate) fn evict_unused(&self) {
        evict_unused(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn changes(&self, since: Seq) -> Changes {
        let full = since == 0 || since < self.compacted_at;
        if !full && since >= self.seq {
            return Changes { seq: self.seq, changed_at: self.began, ..Changes::default() };
        }
        let (changed, removed) = match &self.recent {
            Some(recent) if !full && since >= recent.after => self.named_since(&recent.names, since),
            _ => self.all_since(since, full),
        };
        Changes { seq: self.seq, changed, removed, full, changed_at: self.began, ..Changes::default() }
    }

    fn named_since(&self, names: &BTreeSet<Arc<str>>, since: Seq) -> (Vec<Arc<Resource>>, Vec<Arc<str>>) {
        let entries = names.iter().filter_map(|name| self.entries.get(name)).filter(|entry| entry.changed > since);
        let tombstones =
            names.iter().filter(|name| self.tombstones.get(name).is_some_and(|tombstone| tombstone.removed_at > since));
        (entries.map(|entry| entry.resource.clone()).collect(), tombstones.cloned().collect())
    }

    fn all_since(&self, since: Seq, full: bool) -> (Vec<Arc<Resource>>, Vec<Arc<str>>) {
        let entries = self.entries.iter().filter(|entry| full || entry.changed > since);
        let tombstones = self.tombstones.iter().filter(|tombstone| !full && tombstone.removed_at > since);
        (
            entries.map(|entry| entry.resource.clone()).collect(),
            tombstones.map(|tombstone| tombstone.name.clone()).collect(),
        )
    }
}

/// Returns the cached answer as long as a stream uses it. There are few, so the search is linear.
pub(crate) fn cached_changes<Q: PartialEq>(
    answers: &mut Answers<Q>,
    question: Q,
    make: impl FnOnce() -> Changes,
) -> Arc<Changes> {
    let known = answers.iter().find(|(known, _)| *known == question);
    if let Some(answer) = known.and_then(|(_, answer)| answer.upgrade()) {
        return answer;
    }
    answers.retain(|(_, answer)| answer.strong_count() > 0);
    let made = Arc::new(make());
    answers.push((question, Arc::downgrade(&made)));
    made
}

/// Drops cached answers that no stream uses any more.
pub(crate) fn evict_unused<Q>(answers: &mut Answers<Q>) {
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
        let tombstones: Vec<_> = answer.removed.iter().map(|name| &**name).collect();
        assert_eq!((names.as_slice(), tombstones.as_slice()), (changed, removed), "since {since}");
    }

    fn next(table: &Table, seq: Seq, made: &[(&str, &str)]) -> Option<Table> {
        table.replace(seq, None, made.iter().map(|(name, version)| resource(name, version)).collect())
    }

    #[test]
    fn equal_content_is_not_a_change() {
        let first = next(&Table::default(), 1, &[("a", "1"), ("b", "1")]).expect("new names");
        let second = next(&first, 2, &[("a", "1"), ("b", "2")]).expect("b changed");
        check(&second, 1, &["b"], &[]);
        check(&second, 0, &["a", "b"], &[]);
        assert!(next(&second, 3, &[("a", "1"), ("b", "2")]).is_none());
    }

    #[test]
    fn provenance_is_updated_if_the_content_stays() {
        let first = next(&Table::default(), 1, &[("a", "1")]).expect("a new name");
        let from = |object: &str| Resource::new("a".into(), "1".into(), &Any::default(), vec![object.into()]);
        let second = first.update(2, None, [Arc::new(from("ServiceEntry shop/b"))], []).expect("another object");
        check(&second, 1, &[], &[]);
        assert_eq!(second.get("a").expect("it is in the table").provenance, [Arc::from("ServiceEntry shop/b")]);
    }

    #[test]
    fn removals_are_sent_to_streams_that_had_the_resource() {
        let first = next(&Table::default(), 1, &[("a", "1"), ("b", "1")]).expect("new names");
        let second = next(&first, 2, &[("a", "1")]).expect("b removed_at");
        let third = next(&second, 3, &[("a", "1"), ("c", "1")]).expect("c came");
        check(&third, 1, &["c"], &["b"]);
        check(&third, 2, &["c"], &[]);
        check(&next(&third, 4, &[("b", "1")]).expect("b is back"), 1, &["b"], &["a", "c"]);
    }

    #[test]
    fn tombstones_are_compacted() {
        let mut table = next(&Table::default(), 1, &[("a", "1")]).expect("a new name");
        for seq in 2..10_000 {
            table = table
                .update(seq, None, [resource(&seq.to_string(), "1")], [(seq - 1).to_string().into()])
                .expect("a change");
        }
        assert!(table.len() <= 2 * MIN_TOMBSTONES, "{} names", table.len());
        let recent = table.since(9_990);
        assert_eq!((recent.removed.len(), recent.full), (9, false));
        assert!(table.since(5).full, "it must compare what it holds");
    }

    #[test]
    fn recent_changes_are_answered_without_a_scan() {
        let all: Vec<_> = (0..20).map(|number| resource(&format!("{number:02}"), "1")).collect();
        let first = Table::default().update(1, None, all, []).expect("new names");
        assert!(first.recent.is_none(), "all is too many to say");
        let second = first.update(2, None, [resource("03", "2")], [Arc::from("04")]).expect("two changed");
        let third = second.update(2, None, [resource("02", "2"), resource("04", "2")], []).expect("two more, at once");
        let names = |table: &Table| table.recent.as_ref().map(|recent| recent.names.len());
        assert_eq!((names(&second), names(&third)), (Some(2), Some(3)));
        check(&second, 1, &["03"], &["04"]);
        check(&third, 1, &["02", "03", "04"], &[]);
        let fourth = third.update(5, None, [], [Arc::from("03")]).expect("one removed_at");
        check(&fourth, 2, &[], &["03"]);
        check(&fourth, 1, &["02", "04"], &["03"]);
        check(&fourth, 5, &[], &[]);
    }

    #[test]
    fn a_partial_update_leaves_other_entries() {
        let first = next(&Table::default(), 1, &[("a", "1"), ("b", "1")]).expect("new names");
        let second = first.update(2, None, [resource("a", "2")], [Arc::from("x")]).expect("a changed");
        check(&second, 1, &["a"], &[]);
        assert!(second.get("b").is_some());
    }
}
