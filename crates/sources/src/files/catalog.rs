//! Which file defines which object, and what that means for the store when a file changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::note::{Location, Note, ObjectId};
use config::object::AnyObject;
use config::store::Update;

use super::held::Held;
use super::reading::{Content, Reading};
use super::relative::Relative;

/// Of several files that define an object, the first path in byte order wins.
#[derive(Default)]
pub(super) struct Catalog {
    files: BTreeMap<Relative, Held>,
    definers: BTreeMap<ObjectId, BTreeSet<Relative>>,
}

/// What was in force before, of all that may have changed since.
#[derive(Default)]
pub(super) struct Change {
    before: BTreeMap<ObjectId, Option<AnyObject>>,
    /// Files whose notes may have changed.
    pub(super) noted: BTreeSet<Relative>,
}

impl Catalog {
    pub(super) fn files(&self) -> &BTreeMap<Relative, Held> {
        &self.files
    }

    pub(super) fn holds_below(&self, folder: &Relative) -> bool {
        self.files.range(folder.clone()..).next().is_some_and(|(path, _)| path.is_below(folder))
    }

    pub(super) fn put(&mut self, path: &Relative, reading: Reading, change: &mut Change) {
        if let (Content::Same, Some(held)) = (&reading.content, self.files.get_mut(path)) {
            return held.take(reading);
        }
        let mut held = self.remove(path, change).unwrap_or_else(|| Held::new(path.shown()));
        held.take(reading);
        for id in held.objects.keys() {
            self.remember(id, change);
            self.definers.entry(id.clone()).or_default().insert(path.clone());
        }
        self.files.insert(path.clone(), held);
    }

    pub(super) fn remove(&mut self, path: &Relative, change: &mut Change) -> Option<Held> {
        change.noted.insert(path.clone());
        let ids: Vec<ObjectId> = self.files.get(path)?.objects.keys().cloned().collect();
        for id in &ids {
            self.remember(id, change);
            if let Some(definers) = self.definers.get_mut(id) {
                definers.remove(path);
                if definers.is_empty() {
                    self.definers.remove(id);
                }
            }
        }
        self.files.remove(path)
    }

    /// Deletions and new versions, by object; nothing for an object that is as it was.
    pub(super) fn updates(&self, change: Change) -> Vec<Update> {
        let updates = change.before.into_iter().filter_map(|(id, before)| match (before, self.in_force(&id)) {
            (Some(before), Some(now)) if is_same(&before, now) => None,
            (_, Some(now)) => Some(Update::Put(now.clone())),
            (Some(_), None) => Some(Update::Delete(id)),
            (None, None) => None,
        });
        updates.collect()
    }

    pub(super) fn notes(&self, path: &Relative) -> Vec<Note> {
        let Some(held) = self.files.get(path) else { return Vec::new() };
        let mut notes = held.notes.clone();
        for (id, object) in &held.objects {
            if let Some(winner) = self.in_force(id).filter(|_| !self.wins(path, id)) {
                notes.push(shadowed(object, winner));
            }
        }
        bounded(notes, &held.shown)
    }

    fn wins(&self, path: &Relative, id: &ObjectId) -> bool {
        self.definers.get(id).and_then(BTreeSet::first) == Some(path)
    }

    fn in_force(&self, id: &ObjectId) -> Option<&AnyObject> {
        self.files.get(self.definers.get(id)?.first()?)?.objects.get(id)
    }

    fn remember(&self, id: &ObjectId, change: &mut Change) {
        change.noted.extend(self.definers.get(id).into_iter().flatten().cloned());
        change.before.entry(id.clone()).or_insert_with(|| self.in_force(id).cloned());
    }
}

/// A new place alone is sent too: notes must name the right line. To the store it is no change of content.
fn is_same(before: &AnyObject, now: &AnyObject) -> bool {
    before.meta().at == now.meta().at && before == now
}

fn shadowed(object: &AnyObject, winner: &AnyObject) -> Note {
    let place = winner.meta().at.as_ref().map_or_else(|| "another file".to_owned(), ToString::to_string);
    let note = Note::warning(format!(
        "is defined at {place} too; that one is used (the first path wins), this one is not; remove one of them"
    ));
    let note = note.on(object.id());
    match &object.meta().at {
        Some(at) => note.at(at.clone()),
        None => note,
    }
}

/// A file may hold a mistake on each of a million lines, and every snapshot carries the notes.
fn bounded(mut notes: Vec<Note>, shown: &Arc<str>) -> Vec<Note> {
    const MOST: usize = 1000;
    let more = notes.len().saturating_sub(MOST);
    if more > 0 {
        notes.sort_by_key(|note| note.severity);
        notes.truncate(MOST);
        let at = Location { file: shown.clone(), line: 1, column: 1 };
        notes.push(Note::warning(format!("{more} more notes on this file are not shown")).at(at));
    }
    notes
}
