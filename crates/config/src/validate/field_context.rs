//! The current field of a check, and its findings. The checks themselves are in the files beside this one.

use std::cell::{Cell, RefCell};

use super::network::port_fault;
use super::quantity::duration_fault;
use crate::de::{Found, Path};
use crate::diagnostic::Severity;
use crate::duration::Duration;
use crate::pattern::{compile, states};
use crate::tree::{Node, Position};

/// A finding on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub grade: Grade,
    pub field: String,
    /// Of the field; if it is not written, of the nearest enclosing value.
    pub at: Position,
    pub what: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// istiod's webhook warns.
    Odd,
    /// istiod's webhook rejects it. An object that bypassed the webhook is translated nevertheless.
    Rejected,
    /// Rejected, and proxies would NACK what is made from it: their routes or listeners would be stuck.
    Unfit,
}

impl Grade {
    pub fn severity(self) -> Severity {
        if self == Grade::Odd { Severity::Warning } else { Severity::Error }
    }
}

/// The findings on one object, and limits against hostile ones.
pub(super) struct Findings {
    list: RefCell<Vec<Finding>>,
    patterns: Cell<usize>,
    pattern_states: Cell<usize>,
}

/// The maximal number of findings on one object.
const MOST_FINDINGS: usize = 100;
/// Regular expressions of one object.
const MOST_PATTERNS: usize = 2000;
/// Of all of them, compiled, which takes half a second at most. A usual expression has less than a hundred.
const MOST_STATES: usize = 2_000_000;

impl Findings {
    pub(super) fn new() -> Findings {
        let (patterns, pattern_states) = (Cell::new(MOST_PATTERNS), Cell::new(MOST_STATES));
        Findings { list: RefCell::default(), patterns, pattern_states }
    }

    /// The error is what to do about too many.
    fn count_pattern(&self, pattern: &str) -> Result<(), String> {
        let left = self.patterns.get().checked_sub(1);
        let left =
            left.ok_or_else(|| format!("{MOST_PATTERNS} regular expressions are enough for one object; split it"))?;
        self.patterns.set(left);
        let left = self.pattern_states.get().checked_sub(states(pattern)).ok_or(
            "the regular expressions of this object need too much memory together; repeat less, or split the object",
        )?;
        self.pattern_states.set(left);
        Ok(())
    }

    pub(super) fn into_list(self) -> Vec<Finding> {
        self.list.into_inner()
    }
}

pub(crate) struct FieldContext<'a> {
    path: Path<'a>,
    /// The whole object. Fields are looked up in it only for findings: most objects have none.
    tree: &'a Node,
    found: &'a Findings,
}

impl<'a> FieldContext<'a> {
    pub(super) fn root(name: &'a str, tree: &'a Node, found: &'a Findings) -> FieldContext<'a> {
        FieldContext { path: Path::root(name), tree, found }
    }

    /// A field of a message, or an entry of a map.
    pub(super) fn field<'b>(&'b self, name: &'b str) -> FieldContext<'b> {
        FieldContext { path: self.path.field(name), tree: self.tree, found: self.found }
    }

    pub(super) fn item(&self, index: usize) -> FieldContext<'_> {
        FieldContext { path: self.path.item(index), tree: self.tree, found: self.found }
    }

    pub(super) fn is_written(&self) -> bool {
        matches!(self.path.find(self.tree), Found::Here(_))
    }

    pub(super) fn error(&self, what: impl Into<String>) {
        self.report(Grade::Rejected, what);
    }

    pub(super) fn unfit(&self, what: impl Into<String>) {
        self.report(Grade::Unfit, what);
    }

    pub(super) fn warn(&self, what: impl Into<String>) {
        self.report(Grade::Odd, what);
    }

    pub(super) fn report(&self, grade: Grade, what: impl Into<String>) {
        let mut list = self.found.list.borrow_mut();
        // The worst finding must not be dropped behind a hundred others: it decides whether the object is used.
        if list.len() >= MOST_FINDINGS && list.iter().any(|finding| finding.grade >= grade) {
            return;
        }
        let (Found::Here(node) | Found::Around(node)) = self.path.find(self.tree);
        list.push(Finding { grade, field: self.path.to_string(), at: node.at, what: what.into() });
    }

    /// An error on the field, if there is a fault.
    pub(super) fn reject(&self, field: &str, fault: Option<String>) {
        if let Some(what) = fault {
            self.field(field).error(what);
        }
    }

    /// As `reject`, for what proxies would NACK.
    pub(super) fn unfit_field(&self, field: &str, fault: Option<String>) {
        if let Some(what) = fault {
            self.field(field).unfit(what);
        }
    }

    pub(super) fn unfit_field_if(&self, field: &str, bad: bool, what: &str) {
        if bad {
            self.field(field).unfit(what);
        }
    }

    pub(super) fn unfit_here(&self, fault: Option<String>) {
        if let Some(what) = fault {
            self.unfit(what);
        }
    }

    pub(super) fn reject_here(&self, fault: Option<String>) {
        if let Some(what) = fault {
            self.error(what);
        }
    }

    pub(super) fn check_port(&self, field: &str, port: u32) {
        // 0 often means unset, and is harmless then.
        if port == 0 { self.reject(field, port_fault(port)) } else { self.unfit_field(field, port_fault(port)) }
    }

    pub(super) fn check_duration(&self, field: &str, time: Option<Duration>) {
        let Some(time) = time else { return };
        if time < Duration::ZERO {
            self.unfit_field(field, duration_fault(time));
        } else {
            self.reject(field, duration_fault(time));
        }
    }

    /// An error on the field, unless it is a valid regular expression.
    pub(super) fn check_pattern(&self, field: &str, pattern: &str) {
        let fault = self.pattern_fault(field, pattern);
        self.unfit_field(field, fault);
    }

    /// What is wrong with a regular expression. An expression too many is an error on the field and is not looked at.
    pub(super) fn pattern_fault(&self, field: &str, pattern: &str) -> Option<String> {
        if let Err(why) = self.found.count_pattern(pattern) {
            self.field(field).unfit(why);
            return None;
        }
        compile(pattern).err().map(|fault| fault.to_string())
    }

    pub(super) fn reject_if(&self, field: &str, bad: bool, what: &str) {
        if bad {
            self.field(field).error(what);
        }
    }

    pub(super) fn each<T>(
        &self,
        field: &str,
        items: impl IntoIterator<Item = T>,
        mut check: impl FnMut(&FieldContext<'_>, T),
    ) {
        let list = self.field(field);
        for (index, item) in items.into_iter().enumerate() {
            check(&list.item(index), item);
        }
    }

    pub(super) fn if_set<T>(&self, field: &str, value: Option<T>, check: impl FnOnce(&FieldContext<'_>, T)) {
        if let Some(value) = value {
            check(&self.field(field), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::diagnostic::Severity;
    use crate::object::parse_documents;

    fn routes(matches: &str) -> String {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: a}}\nspec: {{hosts: [a], http: [{{match: [{matches}], route: [{{destination: {{host: a}}}}]}}]}}\n"
        )
    }

    #[test]
    fn reports_a_hundred_findings_with_the_worst_among_them() {
        let odd = "{sourceNamespace: a.b}, ".repeat(150);
        let parsed = parse_documents("f", &routes(&format!("{odd}{{uri: {{regex: '('}}}}")));
        assert_eq!((parsed.diagnostics.len(), parsed.rejected.len()), (101, 1));
        assert!(parsed.diagnostics[100].what.ends_with("the object is left out"), "{}", parsed.diagnostics[100]);
        assert!(parsed.diagnostics.iter().all(|diagnostic| diagnostic.severity == Severity::Error));
    }

    #[test]
    fn an_object_of_large_expressions_is_left_out_before_they_are_compiled() {
        let large = (0..300).map(|n| format!("{{uri: {{regex: '/{n}/.{{900}}'}}}}")).collect::<Vec<_>>().join(", ");
        let patch = |n| {
            format!(
                "{{applyTo: CLUSTER, match: {{proxy: {{proxyVersion: '{n}.{{900}}'}}}}, patch: {{operation: REMOVE}}}}"
            )
        };
        let patches = (0..300).map(patch).collect::<Vec<_>>().join(", ");
        let filter = format!(
            "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: a}}\nspec: {{configPatches: [{patches}]}}\n"
        );
        for text in [routes(&large), filter] {
            let parsed = parse_documents("f", &text);
            assert_eq!(parsed.rejected.len(), 1, "{:?}", parsed.diagnostics.first());
            let why = "the regular expressions of this object need too much memory together";
            assert!(parsed.diagnostics.iter().all(|it| it.what.starts_with(why)), "{:?}", parsed.diagnostics.first());
        }
    }

    #[test]
    fn an_object_made_of_bad_headers_or_expressions_takes_no_time() {
        let headers = (0..50_000).map(|n| format!("'h {n}': {{exact: a}}")).collect::<Vec<_>>().join(", ");
        let patterns = (0..3000).map(|n| format!("{{uri: {{regex: 'a{n}'}}}}")).collect::<Vec<_>>().join(", ");
        for text in [routes(&format!("{{headers: {{{headers}}}}}")), routes(&patterns)] {
            let before = Instant::now();
            let parsed = parse_documents("f", &text);
            assert!(!parsed.diagnostics.is_empty() && parsed.diagnostics.len() <= 101, "{}", parsed.diagnostics.len());
            // A generous bound for busy machines.
            assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
        }
    }
}
