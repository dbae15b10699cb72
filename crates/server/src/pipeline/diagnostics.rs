//! Diagnostics in the log: each once when it appears, once when it is resolved.

use std::collections::BTreeSet;

use config::diagnostic::{Diagnostic, Severity};
use tracing::{error, info, warn};

/// The most lines at a time; `meltemi check` lists all.
const LINES: usize = 50;

#[derive(Debug, Default)]
pub(crate) struct DiagnosticLog {
    known: BTreeSet<Diagnostic>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogChange {
    pub(crate) appeared: Vec<Diagnostic>,
    pub(crate) resolved: Vec<Diagnostic>,
}

impl DiagnosticLog {
    pub(crate) fn log(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        let LogChange { appeared, resolved } = self.change(diagnostics);
        for diagnostic in appeared.iter().take(LINES) {
            match diagnostic.severity {
                Severity::Error => error!(diagnostic = %diagnostic, "an object has an error"),
                Severity::Warning => warn!(diagnostic = %diagnostic, "an object has a warning"),
            }
        }
        for diagnostic in resolved.iter().take(LINES) {
            info!(diagnostic = %diagnostic, "resolved");
        }
        let left_out = appeared.len().saturating_sub(LINES) + resolved.len().saturating_sub(LINES);
        if left_out > 0 {
            warn!(left_out, "diagnostics were left out of the log; `meltemi check` lists all");
        }
    }

    fn change(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) -> LogChange {
        let now: BTreeSet<Diagnostic> = diagnostics.into_iter().collect();
        let change = LogChange {
            appeared: now.difference(&self.known).cloned().collect(),
            resolved: self.known.difference(&now).cloned().collect(),
        };
        self.known = now;
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &mut DiagnosticLog, diagnostics: &[&str], appeared: &[&str], resolved: &[&str]) {
        let texts = |diagnostics: Vec<Diagnostic>| {
            diagnostics.into_iter().map(|diagnostic| diagnostic.what).collect::<Vec<_>>()
        };
        let change = log.change(diagnostics.iter().map(|what| Diagnostic::warning(*what)));
        assert_eq!((texts(change.appeared), texts(change.resolved)), (texts_of(appeared), texts_of(resolved)));
    }

    fn texts_of(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_diagnostic_is_logged_when_it_appears_and_when_it_is_resolved() {
        let mut log = DiagnosticLog::default();
        check(&mut log, &["a", "b", "a"], &["a", "b"], &[]);
        check(&mut log, &["b", "a"], &[], &[]);
        check(&mut log, &["b", "c"], &["c"], &["a"]);
        check(&mut log, &["a"], &["a"], &["b", "c"]);
    }
}
