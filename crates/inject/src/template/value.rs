//! Values of templates, with the distinctions that Go's types make visible: integers and floats, maps of strings and of anything,
//! records with fixed fields, and the several kinds of nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// A key that a map does not have, or an untyped nil. Its fields are missing as well.
    Missing,
    /// A null inside a map or list. Its fields are errors.
    Null,
    Bool(bool),
    Integer(i64, IntegerType),
    Float(f64),
    Text(Arc<str>),
    List(Rc<Vec<Value>>),
    /// `map[string]any`. The function `set` changes it in place.
    Map(Rc<RefCell<BTreeMap<Arc<str>, Value>>>),
    /// `map[string]string`.
    TextMap(Rc<BTreeMap<Arc<str>, Arc<str>>>),
    /// A number with a name, like a protobuf enum.
    Enum(Arc<str>, i64),
    Record(Rc<dyn Record>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntegerType {
    Int,
    Int32,
    Int64,
    Uint8,
    Uint32,
}

impl IntegerType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            IntegerType::Int => "int",
            IntegerType::Int32 => "int32",
            IntegerType::Int64 => "int64",
            IntegerType::Uint8 => "uint8",
            IntegerType::Uint32 => "uint32",
        }
    }
}

/// A value with fixed fields: a Go struct or a pointer to one.
pub(crate) trait Record: fmt::Debug {
    fn type_name(&self) -> String;
    /// A nil pointer.
    fn is_nil(&self) -> bool;
    /// A field, or a method without arguments. `None`: the type has neither. `Err`: a nil pointer has no fields.
    fn field(&self, name: &str) -> Option<Result<Value, String>>;
    fn to_json(&self) -> Json;
    /// As `{{ . }}` writes it.
    fn display(&self) -> String;
}

impl Value {
    pub(crate) fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    pub(crate) fn int(number: i64) -> Value {
        Value::Integer(number, IntegerType::Int)
    }

    pub(crate) fn list(items: Vec<Value>) -> Value {
        Value::List(Rc::new(items))
    }

    pub(crate) fn map(entries: BTreeMap<Arc<str>, Value>) -> Value {
        Value::Map(Rc::new(RefCell::new(entries)))
    }

    /// JSON as Go decodes it without a type: every number is a float.
    pub(crate) fn from_json(json: &Json) -> Value {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => Value::Float(number.as_f64().unwrap_or_default()),
            Json::String(text) => Value::text(text),
            Json::Array(items) => Value::list(items.iter().map(Value::from_json).collect()),
            Json::Object(entries) => {
                Value::map(entries.iter().map(|(key, value)| (key.as_str().into(), Value::from_json(value))).collect())
            }
        }
    }

    /// Go's `%T`.
    pub(crate) fn type_name(&self) -> String {
        match self {
            Value::Missing | Value::Null => "<nil>".into(),
            Value::Bool(_) => "bool".into(),
            Value::Integer(_, integer) => integer.name().into(),
            Value::Float(_) => "float64".into(),
            Value::Text(_) => "string".into(),
            Value::List(_) => "[]interface {}".into(),
            Value::Map(_) => "map[string]interface {}".into(),
            Value::TextMap(_) => "map[string]string".into(),
            Value::Enum(..) => "int32".into(),
            Value::Record(record) => record.type_name(),
        }
    }

    /// Go's reflect kind.
    pub(crate) fn kind_name(&self) -> String {
        match self {
            Value::Missing | Value::Null => "invalid".into(),
            Value::List(_) => "slice".into(),
            Value::Map(_) | Value::TextMap(_) => "map".into(),
            Value::Record(record) if record.type_name().starts_with('*') => "ptr".into(),
            Value::Record(_) => "struct".into(),
            other => other.type_name(),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Value::Missing | Value::Null)
    }

    /// What `if` and `and` ask.
    pub(crate) fn truth(&self) -> bool {
        match self {
            Value::Missing | Value::Null => false,
            Value::Bool(value) => *value,
            Value::Integer(number, _) | Value::Enum(_, number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(items) => !items.is_empty(),
            Value::Map(entries) => !entries.borrow().is_empty(),
            Value::TextMap(entries) => !entries.is_empty(),
            Value::Record(record) => !record.is_nil(),
        }
    }
}
