//! Where in a JSON tree the reader is, and what can be wrong there.

use std::fmt;

/// Levels of messages, map entries and opened Anys that are read; prost decodes 100 levels of one message.
const DEEPEST: u8 = 100;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct Error {
    /// `filterChains[0].filters[2].typedConfig`; `(top)` for the outermost value.
    pub path: String,
    pub problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("\"@type\" is missing; write it like type.googleapis.com/package.Message")]
    NoType,
    #[error("the type {0:?} is not known here; only its bytes can be given, as \"value\" in base64")]
    UnknownType(String),
    #[error("{message} has no field {field:?}")]
    UnknownField { message: String, field: String },
    #[error("{message} has the field {field} twice, under two spellings")]
    Twice { message: String, field: String },
    #[error("{message} takes one of its {oneof} fields, and {field} is not the first one here")]
    SecondOfOneof { message: String, oneof: String, field: String },
    #[error("expected {expected}, found {found}")]
    Wrong { expected: String, found: String },
    #[error("nested more than {DEEPEST} levels deep")]
    TooDeep,
}

/// A step on the way down, linked to the one above it; the text is made only for an error.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    above: Option<&'a Place<'a>>,
    step: Step<'a>,
    depth: u8,
    /// `None`: nothing that is not known is let pass.
    pub(super) patch: Option<Patch>,
}

/// What the bytes of a patch are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// They are a message.
    Whole,
    /// Appended to those of a message of the same type they merge into it. A Duration there is replaced, not merged by its fields.
    Merged,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Top,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Place<'a> {
    pub(super) fn top() -> Self {
        Place { above: None, step: Step::Top, depth: 0, patch: None }
    }

    pub(super) fn of_patch(patch: Patch) -> Self {
        Place { patch: Some(patch), ..Self::top() }
    }

    pub(super) fn field(&'a self, name: &'a str) -> Self {
        Place { above: Some(self), step: Step::Field(name), ..*self }
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Place { above: Some(self), step: Step::Index(index), ..*self }
    }

    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Place { above: Some(self), step: Step::Key(key), ..*self }
    }

    /// The same place, one message further in.
    pub(super) fn inside(self) -> Result<Self, Error> {
        if self.depth == DEEPEST {
            return Err(self.error(Problem::TooDeep));
        }
        Ok(Place { depth: self.depth + 1, ..self })
    }

    pub(super) fn error(&self, problem: Problem) -> Error {
        let path = self.to_string();
        Error { path: if path.is_empty() { "(top)".to_owned() } else { path }, problem }
    }

    pub(super) fn wrong(&self, expected: impl Into<String>, found: &serde_json::Value) -> Error {
        self.error(Problem::Wrong { expected: expected.into(), found: shown(found) })
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            Step::Top => Ok(()),
            Step::Field(name) if self.above.is_some_and(|above| above.above.is_some()) => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key:?}]"),
        }
    }
}

/// Long values are cut: an error is one line.
fn shown(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > 60 => {
            format!("{:?} and more", text.chars().take(60).collect::<String>())
        }
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}
