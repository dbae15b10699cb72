//! What one file gives: its objects in force and its notes. A broken file loses nothing that it gave before.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use config::note::{Location, Note, ObjectId, Severity};
use config::object::{AnyObject, Parsed};

use super::reading::{Content, Digest, Reading};
use super::tree::Stamp;

pub(super) struct Held {
    pub(super) shown: Arc<str>,
    /// `None`: read it again, whatever its stamp.
    pub(super) stamp: Option<Stamp>,
    pub(super) digest: Option<Digest>,
    objects: Box<[AnyObject]>,
    pub(super) notes: Vec<Note>,
}

impl Held {
    pub(super) fn new(shown: Arc<str>) -> Held {
        Held { shown, stamp: None, digest: None, objects: Box::default(), notes: Vec::new() }
    }

    /// By name.
    pub(super) fn objects(&self) -> &[AnyObject] {
        &self.objects
    }

    pub(super) fn object(&self, id: &ObjectId) -> Option<&AnyObject> {
        let at = self.objects.binary_search_by(|object| object.id().cmp(id)).ok()?;
        Some(&self.objects[at])
    }

    pub(super) fn take(&mut self, reading: Reading) {
        (self.stamp, self.digest) = (reading.stamp, reading.digest);
        match reading.content {
            Content::Same => {}
            Content::Parsed(parsed) if parsed.complete => self.take_complete(parsed),
            Content::Parsed(parsed) => self.keep(parsed.notes),
            Content::Unusable(note) => self.keep(vec![note]),
            Content::Blank if self.objects.is_empty() => self.notes.clear(),
            Content::Blank => {
                let at = Location { file: self.shown.clone(), line: 1, column: 1 };
                self.keep(vec![Note::error("is empty; delete the file to remove its objects").at(at)]);
            }
        }
    }

    fn keep(&mut self, mut notes: Vec<Note>) {
        if !self.objects.is_empty() {
            let kept = format!("; the last good version of this file stays in force ({})", counted(self.objects.len()));
            notes.iter_mut().filter(|note| note.severity == Severity::Error).for_each(|note| note.what.push_str(&kept));
        }
        self.notes = notes;
    }

    fn take_complete(&mut self, parsed: Parsed) {
        let mut notes = parsed.notes;
        let mut objects = BTreeMap::new();
        for object in parsed.objects {
            match objects.entry(object.id()) {
                Entry::Vacant(free) => {
                    free.insert(object);
                }
                Entry::Occupied(first) => notes.push(repeated(&object, first.get())),
            }
        }
        let before = std::mem::take(&mut self.objects).into_iter().map(|object| (object.id(), object));
        let missing = before.filter(|(id, _)| !objects.contains_key(id)).collect();
        let kept = kept(missing, &parsed.refused, &mut notes);
        objects.extend(kept);
        self.objects = objects.into_values().collect();
        self.notes = notes;
    }
}

/// Of what the file no longer gives, that which may be missing only because of an error.
fn kept(
    mut missing: BTreeMap<ObjectId, AnyObject>,
    refused: &[ObjectId],
    notes: &mut [Note],
) -> BTreeMap<ObjectId, AnyObject> {
    let refused: HashSet<&ObjectId> = refused.iter().collect();
    let mut kept: BTreeMap<_, _> = missing.extract_if(.., |id, _| refused.contains(&whole(id))).collect();
    let mut nameless = false;
    for note in notes.iter_mut().filter(|note| note.severity == Severity::Error) {
        match &note.object {
            Some(id) if kept.contains_key(id) => note.what.push_str("; its last good version stays in force"),
            // A document without a name could be any of those that are missing.
            None if !missing.is_empty() => {
                nameless = true;
                note.what.push_str("; until this is mended, what this file no longer gives stays in force (");
                note.what.push_str(&counted(missing.len()));
                note.what.push(')');
            }
            _ => {}
        }
    }
    if nameless {
        kept.append(&mut missing);
    }
    kept
}

/// An Endpoints object with several subsets becomes several: `name`, `name/1` and so on.
fn whole(id: &ObjectId) -> ObjectId {
    match id.name.split_once('/') {
        Some((name, _)) => ObjectId { name: name.into(), ..id.clone() },
        None => id.clone(),
    }
}

fn repeated(object: &AnyObject, first: &AnyObject) -> Note {
    let first_at = first.meta().at.as_ref();
    let place = first_at.map_or_else(String::new, |at| format!(" at {at}"));
    let note = Note::warning(format!("is defined before in the same file{place}; the first is used, this one is not"));
    let note = note.on(object.id());
    match &object.meta().at {
        Some(at) => note.at(at.clone()),
        None => note,
    }
}

fn counted(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}
