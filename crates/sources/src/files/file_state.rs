//! State of one file: its objects in force and its diagnostics. A broken file keeps the objects of its last good version.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use config::diagnostic::{Diagnostic, Location, ObjectId, Severity};
use config::object::{AnyObject, Parsed};

use super::reading::{Content, Digest, Reading};
use super::tree::Stamp;

pub(super) struct FileState {
    pub(super) display_name: Arc<str>,
    /// `None`: read it again, whatever its stamp.
    pub(super) stamp: Option<Stamp>,
    pub(super) digest: Option<Digest>,
    objects: Box<[AnyObject]>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl FileState {
    pub(super) fn new(display_name: Arc<str>) -> FileState {
        FileState { display_name, stamp: None, digest: None, objects: Box::default(), diagnostics: Vec::new() }
    }

    /// Sorted by name.
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
            Content::Parsed(parsed) => self.keep(parsed.diagnostics),
            Content::Unusable(diagnostic) => self.keep(vec![diagnostic]),
            Content::Blank if self.objects.is_empty() => self.diagnostics.clear(),
            Content::Blank => {
                let at = Location { file: self.display_name.clone(), line: 1, column: 1 };
                self.keep(vec![Diagnostic::error("is empty; delete the file to remove its objects").at(at)]);
            }
        }
    }

    fn keep(&mut self, mut diagnostics: Vec<Diagnostic>) {
        if !self.objects.is_empty() {
            let retained =
                format!("; the last good version of this file stays in force ({})", object_count(self.objects.len()));
            diagnostics
                .iter_mut()
                .filter(|diagnostic| diagnostic.severity == Severity::Error)
                .for_each(|diagnostic| diagnostic.what.push_str(&retained));
        }
        self.diagnostics = diagnostics;
    }

    fn take_complete(&mut self, parsed: Parsed) {
        let mut diagnostics = parsed.diagnostics;
        let mut objects = BTreeMap::new();
        for object in parsed.objects {
            match objects.entry(object.id()) {
                Entry::Vacant(free) => {
                    free.insert(object);
                }
                Entry::Occupied(first) => diagnostics.push(repeated(&object, first.get())),
            }
        }
        let before = std::mem::take(&mut self.objects).into_iter().map(|object| (object.id(), object));
        let missing = before.filter(|(id, _)| !objects.contains_key(id)).collect();
        let retained = retained_objects(missing, &parsed.rejected, &mut diagnostics);
        objects.extend(retained);
        self.objects = objects.into_values().collect();
        self.diagnostics = diagnostics;
    }
}

/// Objects that the file no longer has, but perhaps only because of an error in it.
fn retained_objects(
    mut missing: BTreeMap<ObjectId, AnyObject>,
    rejected: &[ObjectId],
    diagnostics: &mut [Diagnostic],
) -> BTreeMap<ObjectId, AnyObject> {
    let rejected: HashSet<&ObjectId> = rejected.iter().collect();
    let mut retained: BTreeMap<_, _> = missing.extract_if(.., |id, _| rejected.contains(&whole_object(id))).collect();
    let mut nameless = false;
    for diagnostic in diagnostics.iter_mut().filter(|diagnostic| diagnostic.severity == Severity::Error) {
        match &diagnostic.object {
            Some(id) if retained.contains_key(id) => diagnostic.what.push_str("; its last good version stays in force"),
            // A document without a name could be any of the missing objects.
            None if !missing.is_empty() => {
                nameless = true;
                diagnostic.what.push_str("; until this is fixed, objects missing from this file stay in force (");
                diagnostic.what.push_str(&object_count(missing.len()));
                diagnostic.what.push(')');
            }
            _ => {}
        }
    }
    if nameless {
        retained.append(&mut missing);
    }
    retained
}

/// An Endpoints object with several subsets becomes several objects: `name`, `name/1` and so on.
fn whole_object(id: &ObjectId) -> ObjectId {
    match id.name.split_once('/') {
        Some((name, _)) => ObjectId { name: name.into(), ..id.clone() },
        None => id.clone(),
    }
}

fn repeated(object: &AnyObject, first: &AnyObject) -> Diagnostic {
    let first_at = first.meta().at.as_ref();
    let place = first_at.map_or_else(String::new, |at| format!(" at {at}"));
    let diagnostic =
        Diagnostic::warning(format!("is defined before in the same file{place}; the first is used, this one is not"));
    let diagnostic = diagnostic.on(object.id());
    match &object.meta().at {
        Some(at) => diagnostic.at(at.clone()),
        None => diagnostic,
    }
}

fn object_count(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}
