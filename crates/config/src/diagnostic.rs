//! Diagnostics: what is wrong with an object, where, and what to do. They are data; the caller prints them.

use std::fmt;
use std::sync::Arc;

use crate::kind::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something was left out: an object, a file, a mesh config.
    Error,
    /// The object is in use, without the named part.
    Warning,
}

/// Ordered by severity, then location, so that a sorted list follows the files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Diagnostic {
    pub severity: Severity,
    /// `None`: not from a file.
    pub at: Option<Location>,
    /// `None`: about a text that holds no object (yet).
    pub object: Option<ObjectId>,
    /// Path of the field, such as `spec.http[0].timeout`; empty if it is about the whole object.
    pub field: String,
    pub what: String,
}

impl Diagnostic {
    pub fn error(what: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, at: None, object: None, field: String::new(), what: what.into() }
    }

    pub fn warning(what: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(what) }
    }

    #[must_use]
    pub fn on(mut self, object: ObjectId) -> Diagnostic {
        self.object = Some(object);
        self
    }

    #[must_use]
    pub fn field(mut self, path: impl Into<String>) -> Diagnostic {
        self.field = path.into();
        self
    }

    #[must_use]
    pub fn at(mut self, at: Location) -> Diagnostic {
        self.at = Some(at);
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.severity)?;
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.what)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// The identity of one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub kind: Kind,
    /// Empty for kinds without a namespace.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without `write!`: every resource lists the objects that it was made from, and formatting costs several times the copy.
        f.write_str(self.kind.name())?;
        f.write_str(" ")?;
        if !self.namespace.is_empty() {
            f.write_str(&self.namespace)?;
            f.write_str("/")?;
        }
        f.write_str(&self.name)
    }
}

/// A position in a file; lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_from_the_place_to_the_reason() {
        let object = ObjectId { kind: Kind::VirtualService, namespace: "shop".into(), name: "cart".into() };
        let diagnostic = Diagnostic::error("\"5\" is not a duration; write it like 1.5s")
            .on(object)
            .field("spec.http[0].timeout")
            .at(Location { file: "shop.yaml".into(), line: 12, column: 5 });
        assert_eq!(
            diagnostic.to_string(),
            "error: shop.yaml:12:5: VirtualService shop/cart: spec.http[0].timeout: \"5\" is not a duration; write it like 1.5s"
        );
        assert_eq!(Diagnostic::warning("no objects").to_string(), "warning: no objects");
    }

    #[test]
    fn an_object_without_a_namespace_has_no_slash() {
        let node = ObjectId { kind: Kind::Node, namespace: "".into(), name: "node-1".into() };
        assert_eq!(node.to_string(), "Node node-1");
    }
}
