//! The position of the JSON reader, and its errors.

use std::fmt;

/// The maximum nesting of messages, map entries and expanded Anys; prost decodes 100 levels of one message.
const MAX_DEPTH: u8 = 100;

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
    #[error("nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
}

/// A path segment, linked to its parent; the text is built only for an error.
#[derive(Clone, Copy)]
pub(super) struct JsonPath<'a> {
    above: Option<&'a JsonPath<'a>>,
    step: PathSegment<'a>,
    depth: u8,
    /// `None`: unknown fields are errors.
    pub(super) patch: Option<PatchMode>,
}

/// The use of a patch's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchMode {
    /// As a message of its own.
    Whole,
    /// To be merged by appending them to a message of the same type. A Duration is replaced, not merged field by field.
    Merged,
}

#[derive(Clone, Copy)]
enum PathSegment<'a> {
    Top,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> JsonPath<'a> {
    pub(super) fn top() -> Self {
        JsonPath { above: None, step: PathSegment::Top, depth: 0, patch: None }
    }

    pub(super) fn of_patch(patch: PatchMode) -> Self {
        JsonPath { patch: Some(patch), ..Self::top() }
    }

    pub(super) fn field(&'a self, name: &'a str) -> Self {
        JsonPath { above: Some(self), step: PathSegment::Field(name), ..*self }
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        JsonPath { above: Some(self), step: PathSegment::Index(index), ..*self }
    }

    pub(super) fn key(&'a self, key: &'a str) -> Self {
        JsonPath { above: Some(self), step: PathSegment::Key(key), ..*self }
    }

    /// The same path, one nesting level deeper.
    pub(super) fn inside(self) -> Result<Self, Error> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(Problem::TooDeep));
        }
        Ok(JsonPath { depth: self.depth + 1, ..self })
    }

    pub(super) fn error(&self, problem: Problem) -> Error {
        let path = self.to_string();
        Error { path: if path.is_empty() { "(top)".to_owned() } else { path }, problem }
    }

    pub(super) fn wrong(&self, expected: impl Into<String>, found: &serde_json::Value) -> Error {
        self.error(Problem::Wrong { expected: expected.into(), found: describe(found) })
    }
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            PathSegment::Top => Ok(()),
            PathSegment::Field(name) if self.above.is_some_and(|above| above.above.is_some()) => write!(f, ".{name}"),
            PathSegment::Field(name) => f.write_str(name),
            PathSegment::Index(index) => write!(f, "[{index}]"),
            PathSegment::Key(key) => write!(f, "[{key:?}]"),
        }
    }
}

/// Truncates long values: an error is one line.
fn describe(value: &serde_json::Value) -> String {
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
