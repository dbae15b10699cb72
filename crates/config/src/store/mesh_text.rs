//! Mesh config and networks, which are texts inside a ConfigMap or a file: parsed only when the text changed; the last good
//! version is kept when it becomes invalid.

use std::sync::Arc;

use super::{Change, Name, Snapshot};
use crate::diagnostic::{Diagnostic, Location, ObjectId};
use crate::kind::Kind;

/// A text with one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeshText {
    /// For diagnostics.
    pub file: String,
    pub text: String,
}

/// Value and warnings, or errors.
type Reading<T> = Result<(T, Vec<Diagnostic>), Vec<Diagnostic>>;

/// One message and the text that it was last parsed from.
#[derive(Default)]
pub(super) struct TextState {
    /// `None`: nothing was parsed yet, the defaults apply.
    last: Option<(Option<ObjectId>, MeshText)>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl TextState {
    /// Updates `current` from the text.
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
        let (change, diagnostics) = match parse(text, file) {
            Ok((value, diagnostics)) if value == **current => (Change::Telling, diagnostics),
            Ok((value, diagnostics)) => {
                *current = Arc::new(value);
                (Change::Content, diagnostics)
            }
            Err(diagnostics) => (Change::Telling, diagnostics.into_iter().map(with_previous_in_use).collect()),
        };
        self.diagnostics =
            diagnostics.into_iter().map(|diagnostic| Diagnostic { object: object.clone(), ..diagnostic }).collect();
        self.last = Some(source);
        change
    }
}

fn with_previous_in_use(diagnostic: Diagnostic) -> Diagnostic {
    Diagnostic { what: format!("{}; the previous one stays in use", diagnostic.what), ..diagnostic }
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
