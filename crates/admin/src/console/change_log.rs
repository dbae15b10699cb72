//! Rows of a table that is followed live: each with the round in which it last changed, so that a listener is sent only what is new to it, after
//! a reconnect too. Encoded once for all listeners. No clock, no task.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::access::Access;

/// Removed rows that are remembered. A listener that is further behind starts again.
const MAX_REMOVED: usize = 10_000;

#[derive(Default)]
pub(super) struct ChangeLog {
    rows: HashMap<Arc<str>, Row>,
    changes: BTreeSet<(u64, Arc<str>)>,
    removed: VecDeque<(u64, Arc<str>, Option<Arc<str>>)>,
    /// A listener that has seen less than this round does not know of all removed rows.
    complete_from: u64,
    round: u64,
}

struct Row {
    changed: u64,
    seen: u64,
    fingerprint: u64,
    /// `None`: it is not of one namespace.
    namespace: Option<Arc<str>>,
    json: Arc<str>,
}

/// What a listener lacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// It must forget what it has.
    pub(super) starts_again: bool,
    pub(super) rows: Vec<Arc<str>>,
    pub(super) removed: Vec<Arc<str>>,
}

impl Difference {
    pub(super) fn is_empty(&self) -> bool {
        !self.starts_again && self.rows.is_empty() && self.removed.is_empty()
    }
}

impl ChangeLog {
    /// `round`: greater than all before.
    pub(super) fn begin(&mut self, round: u64) {
        self.round = round;
    }

    /// A row as it is in this round. `encode` is called only if the fingerprint is new.
    pub(super) fn put(&mut self, key: &str, fingerprint: u64, encode: impl FnOnce() -> (Option<Arc<str>>, String)) {
        let round = self.round;
        if let Some(row) = self.rows.get_mut(key) {
            row.seen = round;
            if row.fingerprint == fingerprint {
                return;
            }
        }
        let (namespace, json) = encode();
        let key: Arc<str> = self.rows.get_key_value(key).map_or_else(|| key.into(), |(key, _)| key.clone());
        let row = Row { changed: round, seen: round, fingerprint, namespace, json: json.into() };
        if let Some(before) = self.rows.insert(key.clone(), row) {
            self.changes.remove(&(before.changed, key.clone()));
        }
        self.changes.insert((round, key));
    }

    /// A row of no namespace, which is as quick to encode as to compare.
    pub(super) fn put_text(&mut self, key: &str, json: String) {
        let mut hasher = DefaultHasher::new();
        json.hash(&mut hasher);
        self.put(key, hasher.finish(), || (None, json));
    }

    /// Removes the rows that were not put in this round. Returns whether anything changed in it.
    pub(super) fn end(&mut self) -> bool {
        let round = self.round;
        let gone: Vec<Arc<str>> =
            self.rows.iter().filter(|(_, row)| row.seen != round).map(|(key, _)| key.clone()).collect();
        for key in &gone {
            let Some(row) = self.rows.remove(key) else { continue };
            self.changes.remove(&(row.changed, key.clone()));
            self.removed.push_back((round, key.clone(), row.namespace));
        }
        while self.removed.len() > MAX_REMOVED {
            self.complete_from = self.removed.pop_front().map_or(0, |(round, _, _)| round);
        }
        !gone.is_empty() || self.changes.last().is_some_and(|(changed, _)| *changed == round)
    }

    /// What happened after the round `seen`. `None`: the listener has nothing yet.
    pub(super) fn since(&self, seen: Option<u64>, access: &Access) -> Difference {
        let starts_again = seen.is_none_or(|seen| seen < self.complete_from);
        let visible = |namespace: &Option<Arc<str>>| match (access, namespace) {
            (Access::All, _) => true,
            (_, Some(namespace)) => access.sees(namespace),
            (_, None) => false,
        };
        let from = if starts_again { 0 } else { seen.map_or(0, |seen| seen + 1) };
        let changed = self.changes.range((from, Arc::from(""))..).filter_map(|(_, key)| self.rows.get(key));
        let rows = changed.filter(|row| visible(&row.namespace)).map(|row| row.json.clone()).collect();
        let removed = match starts_again {
            true => Vec::new(),
            // A row may have come back.
            false => {
                let gone = self.removed.iter().rev().take_while(|(round, _, _)| *round >= from);
                let gone = gone.filter(|(_, key, namespace)| visible(namespace) && !self.rows.contains_key(key));
                gone.map(|(_, key, _)| key.clone()).collect()
            }
        };
        Difference { starts_again, rows, removed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(log: &mut ChangeLog, number: u64, rows: &[(&str, u64)]) -> bool {
        log.begin(number);
        for (key, fingerprint) in rows {
            let namespace = key.split('.').nth(1).map(Arc::from);
            log.put(key, *fingerprint, || (namespace, format!("{key}={fingerprint}")));
        }
        log.end()
    }

    fn rows(difference: &Difference) -> Vec<&str> {
        difference.rows.iter().map(|row| &**row).collect()
    }

    #[test]
    fn a_listener_is_sent_what_changed_since_its_round() {
        let mut log = ChangeLog::default();
        assert!(round(&mut log, 1, &[("a.x", 1), ("b.y", 1)]));
        assert!(!round(&mut log, 2, &[("a.x", 1), ("b.y", 1)]));
        assert!(round(&mut log, 3, &[("a.x", 2)]));
        let all = log.since(None, &Access::All);
        assert!(all.starts_again && rows(&all) == ["a.x=2"] && all.removed.is_empty());
        let difference = log.since(Some(1), &Access::All);
        assert!(!difference.starts_again && rows(&difference) == ["a.x=2"]);
        assert_eq!(difference.removed, [Arc::from("b.y")]);
        assert!(log.since(Some(3), &Access::All).is_empty());
    }

    #[test]
    fn a_tenant_gets_rows_of_its_namespace_only() {
        let mut log = ChangeLog::default();
        round(&mut log, 1, &[("a.x", 1), ("b.y", 1), ("overview", 1)]);
        let tenant = Access::Namespace("x".into());
        assert_eq!(rows(&log.since(None, &tenant)), ["a.x=1"]);
        round(&mut log, 2, &[("a.x", 1)]);
        assert!(log.since(Some(1), &tenant).is_empty());
    }

    #[test]
    fn a_row_that_came_back_is_not_removed() {
        let mut log = ChangeLog::default();
        round(&mut log, 1, &[("a.x", 1)]);
        round(&mut log, 2, &[]);
        round(&mut log, 3, &[("a.x", 1)]);
        let difference = log.since(Some(1), &Access::All);
        assert!(rows(&difference) == ["a.x=1"] && difference.removed.is_empty());
    }

    #[test]
    fn who_is_too_far_behind_starts_again() {
        let mut log = ChangeLog::default();
        let many: Vec<String> = (0..=MAX_REMOVED).map(|number| format!("{number}.x")).collect();
        round(&mut log, 1, &many.iter().map(|key| (key.as_str(), 1)).collect::<Vec<_>>());
        round(&mut log, 2, &[("a.x", 1)]);
        assert!(log.since(Some(1), &Access::All).starts_again);
        assert!(!log.since(Some(2), &Access::All).starts_again);
    }
}
