//! Which file defines which object, and the store updates that follow from a changed file.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use config::diagnostic::{Diagnostic, Location, ObjectId};
use config::object::AnyObject;
use config::store::Update;

use super::file_state::FileState;
use super::reading::{Content, Reading};
use super::relative::RelativePath;

/// Of several files that define an object, the first path in byte order wins.
#[derive(Default)]
pub(super) struct Catalog {
    /// Boxed: on average half of the slots of a B-tree node are empty.
    files: BTreeMap<RelativePath, Box<FileState>>,
    winners: HashMap<ObjectId, RelativePath>,
    /// All defining files, only for objects that several files define.
    duplicates: HashMap<ObjectId, BTreeSet<RelativePath>>,
}

/// The previous versions of objects that a scan may have changed.
#[derive(Default)]
pub(super) struct Change {
    before: BTreeMap<ObjectId, Option<AnyObject>>,
    /// Files whose diagnostics may have changed.
    pub(super) reported: BTreeSet<RelativePath>,
}

impl Catalog {
    pub(super) fn files(&self) -> &BTreeMap<RelativePath, Box<FileState>> {
        &self.files
    }

    /// The files below a folder.
    pub(super) fn below<'a>(&'a self, folder: &'a RelativePath) -> impl Iterator<Item = &'a RelativePath> {
        self.files.range(folder.clone()..).map(|(path, _)| path).take_while(|path| path.is_below(folder))
    }

    pub(super) fn put(&mut self, path: &RelativePath, reading: Reading, change: &mut Change) {
        if let (Content::Same, Some(state)) = (&reading.content, self.files.get_mut(path)) {
            return state.take(reading);
        }
        let mut state = self.remove(path, change).unwrap_or_else(|| Box::new(FileState::new(path.shown())));
        state.take(reading);
        for object in state.objects() {
            self.remember(&object.id(), change);
            self.add_definition(object.id(), path);
        }
        self.files.insert(path.clone(), state);
    }

    pub(super) fn remove(&mut self, path: &RelativePath, change: &mut Change) -> Option<Box<FileState>> {
        change.reported.insert(path.clone());
        let ids: Vec<ObjectId> = self.files.get(path)?.objects().iter().map(AnyObject::id).collect();
        for id in &ids {
            self.remember(id, change);
            self.remove_definition(id, path);
        }
        self.files.remove(path)
    }

    fn add_definition(&mut self, id: ObjectId, path: &RelativePath) {
        let winner = match self.winners.entry(id) {
            Entry::Occupied(winner) => winner,
            Entry::Vacant(free) => {
                free.insert(path.clone());
                return;
            }
        };
        let duplicates = self.duplicates.entry(winner.key().clone()).or_default();
        duplicates.extend([winner.get().clone(), path.clone()]);
        if path < winner.get() {
            *winner.into_mut() = path.clone();
        }
    }

    fn remove_definition(&mut self, id: &ObjectId, path: &RelativePath) {
        let Some(duplicates) = self.duplicates.get_mut(id) else { return drop(self.winners.remove(id)) };
        duplicates.remove(path);
        if let Some(first) = duplicates.first() {
            self.winners.insert(id.clone(), first.clone());
        }
        if duplicates.len() < 2 {
            self.duplicates.remove(id);
        }
    }

    /// Deletions and new versions, by object; none for unchanged objects.
    pub(super) fn updates(&self, change: Change) -> Vec<Update> {
        let updates = change.before.into_iter().filter_map(|(id, before)| match (before, self.in_force(&id)) {
            (Some(before), Some(now)) if is_same(&before, now) => None,
            (_, Some(now)) => Some(Update::Put(now.clone())),
            (Some(_), None) => Some(Update::Delete(id)),
            (None, None) => None,
        });
        updates.collect()
    }

    pub(super) fn diagnostics(&self, path: &RelativePath) -> Vec<Diagnostic> {
        let Some(state) = self.files.get(path) else { return Vec::new() };
        let mut diagnostics = state.diagnostics.clone();
        for object in state.objects() {
            let id = object.id();
            if let Some(winner) = self.in_force(&id).filter(|_| self.winners.get(&id) != Some(path)) {
                diagnostics.push(shadowed(object, winner));
            }
        }
        truncate(diagnostics, &state.display_name)
    }

    fn in_force(&self, id: &ObjectId) -> Option<&AnyObject> {
        self.files.get(self.winners.get(id)?)?.object(id)
    }

    fn remember(&self, id: &ObjectId, change: &mut Change) {
        change.reported.extend(self.winners.get(id).cloned());
        change.reported.extend(self.duplicates.get(id).into_iter().flatten().cloned());
        change.before.entry(id.clone()).or_insert_with(|| self.in_force(id).cloned());
    }
}

/// A change of the location alone is sent too, so that diagnostics name the right line. The store does not count it as a change of content.
fn is_same(before: &AnyObject, now: &AnyObject) -> bool {
    before.meta().at == now.meta().at && before == now
}

fn shadowed(object: &AnyObject, winner: &AnyObject) -> Diagnostic {
    let place = winner.meta().at.as_ref().map_or_else(|| "another file".to_owned(), ToString::to_string);
    let diagnostic = Diagnostic::warning(format!(
        "is defined at {place} too; that one is used (the first path wins), this one is not; remove one of them"
    ));
    let diagnostic = diagnostic.on(object.id());
    match &object.meta().at {
        Some(at) => diagnostic.at(at.clone()),
        None => diagnostic,
    }
}

/// A file may hold a mistake on each of a million lines, and every snapshot carries the diagnostics.
fn truncate(mut diagnostics: Vec<Diagnostic>, shown: &Arc<str>) -> Vec<Diagnostic> {
    const MOST: usize = 1000;
    let more = diagnostics.len().saturating_sub(MOST);
    if more > 0 {
        diagnostics.sort_by_key(|diagnostic| diagnostic.severity);
        diagnostics.truncate(MOST);
        let at = Location { file: shown.clone(), line: 1, column: 1 };
        diagnostics.push(Diagnostic::warning(format!("{more} more diagnostics on this file are not shown")).at(at));
    }
    diagnostics
}
