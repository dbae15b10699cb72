//! Mesh config and networks, which are texts inside a ConfigMap or a file: read again only when the text changed, and kept when it
//! turns bad.

use std::sync::Arc;

use super::{Change, Name, Snapshot};
use crate::kind::Kind;
use crate::note::{Location, Note, ObjectId};

/// A text that is one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeshText {
    /// Named in notes.
    pub file: String,
    pub text: String,
}

/// Value and warnings, or errors.
type Reading<T> = Result<(T, Vec<Note>), Vec<Note>>;

/// One message and where it was last read.
#[derive(Default)]
pub(super) struct Live {
    /// `None`: nothing was read yet, the defaults hold.
    last: Option<(Option<ObjectId>, MeshText)>,
    pub(super) notes: Vec<Note>,
}

impl Live {
    /// Brings `current` up to date with the text.
    pub(super) fn refresh<T: PartialEq>(
        &mut self,
        source: (Option<ObjectId>, MeshText),
        current: &mut Arc<T>,
        parse: impl Fn(&str, &str) -> Reading<T>,
    ) -> Change {
        if self.last.as_ref() == Some(&source) {
            return Change::None;
        }
        let (object, MeshText { file, text }) = &source;
        let (change, notes) = match parse(text, file) {
            Ok((value, notes)) if value == **current => (Change::Telling, notes),
            Ok((value, notes)) => {
                *current = Arc::new(value);
                (Change::Content, notes)
            }
            Err(notes) => (Change::Telling, notes.into_iter().map(kept).collect()),
        };
        self.notes = notes.into_iter().map(|note| Note { object: object.clone(), ..note }).collect();
        self.last = Some(source);
        change
    }
}

fn kept(note: Note) -> Note {
    Note { what: format!("{}; what was in use before stays", note.what), ..note }
}

/// The text under a key of the ConfigMap `istio`; empty, which means the defaults, if there is none.
pub(super) fn in_config_map(snapshot: &Snapshot, namespace: &Arc<str>, key: &str) -> (Option<ObjectId>, MeshText) {
    let name = Name { namespace: namespace.clone(), name: "istio".into() };
    let Some(map) = snapshot.config_maps.get(&name) else { return (None, MeshText::default()) };
    let id = ObjectId { kind: Kind::ConfigMap, namespace: name.namespace, name: name.name };
    let file = match &map.meta.at {
        Some(Location { file, .. }) => format!("{file}[data.{key}]"),
        None => format!("data.{key}"),
    };
    let text = map.spec.data.get(key).cloned().unwrap_or_default();
    (Some(id), MeshText { file, text })
}
