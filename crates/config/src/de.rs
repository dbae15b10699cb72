//! Deserialization of trees into Rust types, through serde. Knows the JSON rules of protobuf and of Kubernetes; the types are in `kinds`.
//!
//! A type read by these rules should not use `flatten` or `untagged`: serde then hides from us which fields it knows.

mod access;
mod number;
mod path;

use std::cell::RefCell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeOwned, Expected, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use self::access::{Fields, OneOf, Pairs};
use crate::diagnostic::{Diagnostic, Location};
use crate::tree::{Node, Position, Value, quoted};
use crate::yaml::{Scalars, documents};

pub(crate) use self::access::unknown_field;
pub(crate) use self::path::{Found, Path, place};

/// The JSON rules of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Unknown fields are skipped: we read a small part of each kind.
    Kubernetes,
    /// As Kubernetes, and no message may quote a value.
    Secret,
    /// Unknown fields get a warning; `snake_case` names, numbers in quotes and enums by number are accepted.
    Protobuf,
}

/// An error or warning on a field, before its object is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    pub at: Position,
    pub what: String,
}

impl FieldError {
    /// The field is that one, or a part of it.
    pub(crate) fn is_within(&self, outer: &str) -> bool {
        is_within(&self.field, outer)
    }
}

/// Of paths as they are displayed.
pub(crate) fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

pub struct Outcome<T> {
    /// If there are errors: the value without the parts that cannot be read, for further checks only. `None`: nothing is left.
    pub value: Option<T>,
    pub errors: Vec<FieldError>,
    pub warnings: Vec<FieldError>,
}

impl<T> Outcome<T> {
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Outcome<U> {
        Outcome { value: self.value.map(convert), errors: self.errors, warnings: self.warnings }
    }

    /// The value if all of it could be read.
    pub fn complete(self) -> Result<T, Vec<FieldError>> {
        self.value.filter(|_| self.errors.is_empty()).ok_or(self.errors)
    }
}

/// Parts of one value that are left out. Each costs another pass over it.
const MOST_ERRORS: usize = 20;

/// Reads a tree whose root is called `root` in messages. serde ends at the first error, so that the tree is read again without the part in
/// error until the rest is readable.
pub fn read<T: DeserializeOwned>(node: &Node, root: &str, rules: Rules) -> Outcome<T> {
    let mut context = Context { rules, warnings: RefCell::default(), unreadable: Vec::new() };
    let mut errors = Vec::new();
    loop {
        let error = match T::deserialize(Reader { node, path: &Path::root(root), context: &context }) {
            Ok(value) => return Outcome { value: Some(value), errors, warnings: context.warnings.into_inner() },
            Err(error) => error,
        };
        let place = error.place.unwrap_or_else(|| ErrorPlace { field: root.to_owned(), at: node.at, node });
        // What lacks a part that could not be read is no error of its own.
        let is_consequence = errors.iter().any(|known: &FieldError| known.is_within(&place.field));
        if !is_consequence {
            errors.push(FieldError { field: place.field, at: place.at, what: error.what });
        }
        context.unreadable.push(place.node);
        if std::ptr::eq(place.node, node) || context.unreadable.len() == MOST_ERRORS {
            return Outcome { value: None, errors, warnings: context.warnings.into_inner() };
        }
        context.warnings.borrow_mut().clear();
    }
}

/// Reads a text that is one message and no object, such as a mesh config. An empty text is an empty message.
pub fn read_text<T: DeserializeOwned>(
    file: &str,
    text: &str,
    scalars: Scalars,
) -> Result<(T, Vec<Diagnostic>), Vec<Diagnostic>> {
    let fail = |at: Position, field: &str, what: &str| vec![Diagnostic::error(what).field(field).at(at.in_file(file))];
    let mut trees = documents(text, scalars);
    let node = match trees.next() {
        None => Node { at: Position::START, value: Value::Mapping([].into()) },
        Some(first) => first.map_err(|fault| fail(fault.at, "", &fault.what))?,
    };
    match trees.next() {
        None => {}
        Some(Ok(second)) => return Err(fail(second.at, "", "a second document; only one is read here")),
        Some(Err(fault)) => return Err(fail(fault.at, "", &fault.what)),
    }
    let mut outcome = read(&node, "", Rules::Protobuf);
    let warnings = std::mem::take(&mut outcome.warnings).into_iter();
    let warnings = warnings.map(|p| Diagnostic::warning(p.what).field(p.field).at(p.at.in_file(file))).collect();
    let errors = |list: Vec<FieldError>| list.iter().flat_map(|p| fail(p.at, &p.field, &p.what)).collect::<Vec<_>>();
    Ok((outcome.complete().map_err(errors)?, warnings))
}

impl Position {
    pub(crate) fn in_file(self, file: &str) -> Location {
        Location { file: file.into(), line: self.line, column: self.column }
    }
}

struct Context {
    rules: Rules,
    warnings: RefCell<Vec<FieldError>>,
    /// Nodes of the tree, which are read as if they were not there. Only their addresses are used.
    unreadable: Vec<*const Node>,
}

impl Context {
    /// `false`: as good as absent.
    fn reads(&self, node: &Node) -> bool {
        self.unreadable.is_empty() || !self.unreadable.iter().any(|other| std::ptr::eq(*other, node))
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a Node,
    path: &'a Path<'a>,
    context: &'a Context,
}

/// `place` is set by the innermost reader that the error passes.
#[derive(Debug)]
struct Error {
    what: String,
    place: Option<ErrorPlace>,
}

#[derive(Debug)]
struct ErrorPlace {
    field: String,
    at: Position,
    /// What to leave out to get past the error. Only its address is used.
    node: *const Node,
}

impl Reader<'_> {
    fn placed(self, error: Error) -> Error {
        self.child_error(error, self.path, self.node)
    }

    fn error(self, what: impl Into<String>) -> Error {
        self.placed(Error { what: what.into(), place: None })
    }

    fn unexpected(self, expected: &dyn Expected) -> Error {
        let expected = in_plain_words(expected.to_string());
        let quotable = matches!(self.node.value, Value::Bool(_) | Value::Integer(_) | Value::Float(_));
        let hint = if quotable && expected == "a string" { "; put it in quotes" } else { "" };
        self.error(format!("expected {expected}, found {}{hint}", self.found()))
    }

    /// Describes the found value for an error message.
    fn found(self) -> String {
        match &self.node.value {
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) if self.context.rules == Rules::Secret => {
                "a number or boolean".to_owned()
            }
            Value::Text(_) if self.context.rules == Rules::Secret => "a text".to_owned(),
            _ => self.node.described(),
        }
    }

    fn is_protobuf(self) -> bool {
        self.context.rules == Rules::Protobuf
    }
}

/// Names of Rust types, in the terms of YAML.
fn in_plain_words(expected: String) -> String {
    match expected.as_str() {
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        other if other.starts_with("struct ") => "a mapping".to_owned(),
        _ => expected,
    }
}

macro_rules! integers {
    ($($method:ident => $visit:ident: $type:ty),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = number::integer(self, <$type>::MIN.into(), <$type>::MAX.into())?;
            let number = <$type>::try_from(number).map_err(|_| self.unexpected(&visitor))?;
            visitor.$visit(number).map_err(|error| self.placed(error))
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    /// For values without a schema: nulls stay.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(_) => return self.deserialize_seq(visitor),
            Value::Mapping(entries) => visitor.visit_map(Pairs::with_nulls(self, entries)),
        };
        result.map_err(|error| self.placed(error))
    }

    integers! {
        deserialize_i8 => visit_i8: i8,
        deserialize_i16 => visit_i16: i16,
        deserialize_i32 => visit_i32: i32,
        deserialize_i64 => visit_i64: i64,
        deserialize_u8 => visit_u8: u8,
        deserialize_u16 => visit_u16: u16,
        deserialize_u32 => visit_u32: u32,
        deserialize_u64 => visit_u64: u64,
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(number::float(self)?).map_err(|error| self.placed(error))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Bool(value) => visitor.visit_bool(value).map_err(|error| self.placed(error)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Text(text) => visitor.visit_str(text).map_err(|error| self.placed(error)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let result = match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        };
        result.map_err(|error| self.placed(error))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self).map_err(|error| self.placed(error))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::List(items) => {
                visitor.visit_seq(access::Items::new(self, items)).map_err(|error| self.placed(error))
            }
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Mapping(entries) => {
                visitor.visit_map(Pairs::without_nulls(self, entries)).map_err(|error| self.placed(error))
            }
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Mapping(entries) => {
                visitor.visit_map(Fields::new(self, entries, fields)).map_err(|error| self.placed(error))
            }
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let chosen = OneOf::new(self, variants)?;
        visitor.visit_enum(chosen).map_err(|error| self.placed(error))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(what: T) -> Error {
        Error { what: what.to_string(), place: None }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Error {
        let expected = in_plain_words(expected.to_string());
        Error::custom(format_args!("expected {expected}, found {}", described(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Error {
        Error::invalid_type(found, expected)
    }

    fn missing_field(field: &'static str) -> Error {
        Error::custom(format_args!("{field} is missing; it must be given"))
    }

    fn duplicate_field(field: &'static str) -> Error {
        Error::custom(format_args!("{field} is given twice, in two spellings; remove one"))
    }
}

/// As `Node::described`, for a value that a visitor did not expect.
fn described(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Signed(number) => format!("the number {number}"),
        Unexpected::Unsigned(number) => format!("the number {number}"),
        Unexpected::Float(number) => format!("the number {number}"),
        Unexpected::Str(text) => format!("the text {}", quoted(text)),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a mapping".to_owned(),
        other => other.to_string(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
