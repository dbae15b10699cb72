//! Which file defines which object, and what that means for the store when a file changes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// In boxes: half of the places in such a map are empty.
    files: BTreeMap<Relative, Box<Held>>,
    winners: HashMap<ObjectId, Relative>,
    /// All files that define what several define.
    rivals: HashMap<ObjectId, BTreeSet<Relative>>,
}

/// What was in force before, of all that may have changed since.
#[derive(Default)]
pub(super) struct Change {
    before: BTreeMap<ObjectId, Option<AnyObject>>,
    /// Files whose notes may have changed.
    pub(super) noted: BTreeSet<Relative>,
}

impl Catalog {
    pub(super) fn files(&self) -> &BTreeMap<Relative, Box<Held>> {
        &self.files
    }

    pub(super) fn holds_below(&self, folder: &Relative) -> bool {
        self.files.range(folder.clone()..).next().is_some_and(|(path, _)| path.is_below(folder))
    }

    pub(super) fn put(&mut self, path: &Relative, reading: Reading, change: &mut Change) {
        if let (Content::Same, Some(held)) = (&reading.content, self.files.get_mut(path)) {
            return held.take(reading);
        }
        let mut held = self.remove(path, change).unwrap_or_else(|| Box::new(Held::new(path.shown())));
        held.take(reading);
        for object in held.objects() {
            self.remember(&object.id(), change);
            self.defined(object.id(), path);
        }
        self.files.insert(path.clone(), held);
    }

    pub(super) fn remove(&mut self, path: &Relative, change: &mut Change) -> Option<Box<Held>> {
        change.noted.insert(path.clone());
        let ids: Vec<ObjectId> = self.files.get(path)?.objects().iter().map(AnyObject::id).collect();
        for id in &ids {
            self.remember(id, change);
            self.no_longer_defined(id, path);
        }
        self.files.remove(path)
    }

    fn defined(&mut self, id: ObjectId, path: &Relative) {
        let winner = match self.winners.entry(id) {
            Entry::Occupied(winner) => winner,
            Entry::Vacant(free) => {
                free.insert(path.clone());
                return;
            }
        };
        let rivals = self.rivals.entry(winner.key().clone()).or_default();
        rivals.extend([winner.get().clone(), path.clone()]);
        if path < winner.get() {
            *winner.into_mut() = path.clone();
        }
    }

    fn no_longer_defined(&mut self, id: &ObjectId, path: &Relative) {
        let Some(rivals) = self.rivals.get_mut(id) else { return drop(self.winners.remove(id)) };
        rivals.remove(path);
        if let Some(first) = rivals.first() {
            self.winners.insert(id.clone(), first.clone());
        }
        if rivals.len() < 2 {
            self.rivals.remove(id);
        }
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
        for object in held.objects() {
            let id = object.id();
            if let Some(winner) = self.in_force(&id).filter(|_| self.winners.get(&id) != Some(path)) {
                notes.push(shadowed(object, winner));
            }
        }
        bounded(notes, &held.shown)
    }

    fn in_force(&self, id: &ObjectId) -> Option<&AnyObject> {
        self.files.get(self.winners.get(id)?)?.object(id)
    }

    fn remember(&self, id: &ObjectId, change: &mut Change) {
        change.noted.extend(self.winners.get(id).cloned());
        change.noted.extend(self.rivals.get(id).into_iter().flatten().cloned());
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
