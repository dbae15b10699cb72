//! Notes in the log: each once when it appears, once when it is gone.

use std::collections::BTreeSet;

use config::note::{Note, Severity};
use tracing::{error, info, warn};

/// More lines than this at a time tell an operator nothing that `meltemi check` does not tell better.
const LINES: usize = 50;

#[derive(Debug, Default)]
pub(crate) struct NoteLog {
    known: BTreeSet<Note>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) appeared: Vec<Note>,
    pub(crate) gone: Vec<Note>,
}

impl NoteLog {
    pub(crate) fn log(&mut self, notes: impl IntoIterator<Item = Note>) {
        let Change { appeared, gone } = self.change(notes);
        for note in appeared.iter().take(LINES) {
            match note.severity {
                Severity::Error => error!(note = %note, "an object has an error"),
                Severity::Warning => warn!(note = %note, "an object has a warning"),
            }
        }
        for note in gone.iter().take(LINES) {
            info!(note = %note, "resolved");
        }
        let left_out = appeared.len().saturating_sub(LINES) + gone.len().saturating_sub(LINES);
        if left_out > 0 {
            warn!(left_out, "more notes than fit in the log; `meltemi check` shows all");
        }
    }

    fn change(&mut self, notes: impl IntoIterator<Item = Note>) -> Change {
        let now: BTreeSet<Note> = notes.into_iter().collect();
        let change = Change {
            appeared: now.difference(&self.known).cloned().collect(),
            gone: self.known.difference(&now).cloned().collect(),
        };
        self.known = now;
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &mut NoteLog, notes: &[&str], appeared: &[&str], gone: &[&str]) {
        let texts = |notes: Vec<Note>| notes.into_iter().map(|note| note.what).collect::<Vec<_>>();
        let change = log.change(notes.iter().map(|what| Note::warning(*what)));
        assert_eq!((texts(change.appeared), texts(change.gone)), (texts_of(appeared), texts_of(gone)));
    }

    fn texts_of(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_note_is_told_once_when_it_comes_and_once_when_it_goes() {
        let mut log = NoteLog::default();
        check(&mut log, &["a", "b", "a"], &["a", "b"], &[]);
        check(&mut log, &["b", "a"], &[], &[]);
        check(&mut log, &["b", "c"], &["c"], &["a"]);
        check(&mut log, &["a"], &["a"], &["b", "c"]);
    }
}
