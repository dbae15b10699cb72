//! JSON as templates see it: records with Go's field names, zero values for what is not set, and the getters of protobuf.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::{Dialect, Field, FieldKind, Schema, enum_values};
use crate::template::{IntegerType, Record, Value};

/// A struct, or a pointer to one.
#[derive(Debug)]
pub(crate) struct SchemaRecord {
    schema: &'static Schema,
    /// `None`: a nil pointer.
    json: Option<Rc<Json>>,
    pointer: bool,
    /// Fields that were asked for: the annotations of a pod may be large, and templates ask for them often.
    fields: RefCell<HashMap<&'static str, Value>>,
}

impl SchemaRecord {
    pub(crate) fn value(schema: &'static Schema, json: Json) -> Value {
        SchemaRecord::shared(schema, Some(Rc::new(json)), schema.dialect == Dialect::Protobuf)
    }

    fn shared(schema: &'static Schema, json: Option<Rc<Json>>, pointer: bool) -> Value {
        Value::Record(Rc::new(SchemaRecord { schema, json, pointer, fields: RefCell::default() }))
    }

    /// The value of a field of this record, without the checks for nil.
    fn made(&self, field: &'static Field) -> Value {
        if let Some(known) = self.fields.borrow().get(field.go) {
            return known.clone();
        }
        let json = self.json.as_deref();
        let value = if field.inline {
            // The same JSON, by another schema.
            let schema = field.kind.schema(self.schema.dialect);
            schema.map_or(Value::Missing, |schema| SchemaRecord::shared(schema, self.json.clone(), false))
        } else {
            let found = json.and_then(|json| json.get(field.json)).filter(|found| !found.is_null());
            field_value(&field.kind, found, self.schema.dialect)
        };
        self.fields.borrow_mut().insert(field.go, value.clone());
        value
    }

    /// The field by which a oneof is set, as a record that holds it alone.
    fn oneof(&self, name: &str) -> Option<Value> {
        if !self.schema.fields.iter().any(|field| field.oneof == name) {
            return None;
        }
        let json = self.json.as_deref();
        let set = self
            .schema
            .fields
            .iter()
            .find(|field| field.oneof == name && json.is_some_and(|json| json.get(field.json).is_some()));
        Some(set.map_or(Value::Null, |_| SchemaRecord::shared(self.schema, self.json.clone(), true)))
    }
}

impl Record for SchemaRecord {
    fn type_name(&self) -> String {
        let package = match self.schema.dialect {
            Dialect::Kubernetes => "v1",
            Dialect::Protobuf => "v1alpha1",
        };
        format!("{}{package}.{}", if self.pointer { "*" } else { "" }, self.schema.name)
    }

    fn is_nil(&self) -> bool {
        self.pointer && self.json.is_none()
    }

    fn field(&self, name: &str) -> Option<Result<Value, String>> {
        if self.schema.dialect == Dialect::Protobuf {
            if name == "String" {
                return Some(Ok(Value::text(&self.display())));
            }
            // A getter of a nil message returns the zero value.
            let got = name
                .strip_prefix("Get")
                .and_then(|name| self.schema.go_field(name).map(|field| self.made(field)).or_else(|| self.oneof(name)));
            if let Some(value) = got {
                return Some(Ok(value));
            }
        }
        let oneof = self.schema.fields.iter().any(|field| field.oneof == name);
        let field = self.schema.go_field(name).filter(|field| field.oneof.is_empty());
        if field.is_none() && !oneof {
            return None;
        }
        if self.is_nil() {
            return Some(Err(format!("nil pointer evaluating {}.{name}", self.type_name())));
        }
        match field {
            Some(field) => Some(Ok(self.made(field))),
            None => self.oneof(name).map(Ok),
        }
    }

    fn to_json(&self) -> Json {
        self.json.as_deref().cloned().unwrap_or(Json::Null)
    }

    fn display(&self) -> String {
        self.json.as_deref().map_or_else(|| "<nil>".to_owned(), Json::to_string)
    }
}

/// The value of a field. `found`: what is set.
fn field_value(kind: &FieldKind, found: Option<&Json>, dialect: Dialect) -> Value {
    let text = |found: Option<&Json>| found.and_then(Json::as_str).unwrap_or_default().to_owned();
    match kind {
        FieldKind::Text | FieldKind::Time | FieldKind::Quantity => Value::text(&text(found)),
        FieldKind::Bool => Value::Bool(found.and_then(Json::as_bool).unwrap_or_default()),
        FieldKind::Integer(integer) => Value::Integer(integer_of(found), *integer),
        FieldKind::Float => Value::Float(found.and_then(Json::as_f64).unwrap_or_default()),
        FieldKind::Any => found.map_or(Value::Missing, Value::from_json),
        FieldKind::IntOrString => Value::Record(Rc::new(IntOrString(found.cloned().unwrap_or_else(|| 0.into())))),
        FieldKind::Duration => Value::Record(Rc::new(Scalar { name: "*durationpb.Duration", json: found.cloned() })),
        FieldKind::Wrapper => Value::Record(Rc::new(Scalar { name: "*wrapperspb.Value", json: found.cloned() })),
        FieldKind::Enum(name) => {
            let values = enum_values(name);
            let named = found.and_then(Json::as_str).and_then(|text| values.iter().find(|(name, _)| *name == text));
            named
                .or_else(|| values.iter().find(|(_, number)| *number == 0))
                .map_or(Value::int(0), |(name, number)| Value::Enum((*name).into(), *number))
        }
        FieldKind::Struct(_) => {
            let json = found.cloned().unwrap_or_else(|| Json::Object(serde_json::Map::new()));
            record(kind, Some(json), dialect, false)
        }
        FieldKind::Pointer(inner) => match &**inner {
            FieldKind::Struct(_) => record(inner, found.cloned(), dialect, true),
            // A pointer to a scalar is shown as the scalar.
            scalar => found.map_or(Value::Null, |found| field_value(scalar, Some(found), dialect)),
        },
        FieldKind::List(item) => {
            let items = found.and_then(Json::as_array).into_iter().flatten();
            Value::list(items.map(|found| field_value(item, Some(found), dialect)).collect())
        }
        FieldKind::Map(item) => {
            let entries = found.and_then(Json::as_object).into_iter().flatten();
            match &**item {
                FieldKind::Text => {
                    let pairs = entries.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(text(Some(value)))));
                    Value::TextMap(Rc::new(pairs.collect()))
                }
                item => Value::map(
                    entries
                        .map(|(key, value)| (key.as_str().into(), field_value(item, Some(value), dialect)))
                        .collect(),
                ),
            }
        }
    }
}

fn record(kind: &FieldKind, json: Option<Json>, dialect: Dialect, pointer: bool) -> Value {
    let made = |schema| SchemaRecord::shared(schema, json.map(Rc::new), pointer);
    kind.schema(dialect).map_or(Value::Missing, made)
}

/// Protobuf's JSON has 64-bit numbers as strings.
fn integer_of(found: Option<&Json>) -> i64 {
    match found {
        Some(Json::String(text)) => text.parse().unwrap_or_default(),
        Some(other) => other.as_i64().unwrap_or_default(),
        None => 0,
    }
}

/// A message around one value: its getters are safe on nil, its fields are not.
#[derive(Debug)]
struct Scalar {
    name: &'static str,
    /// `None`: a nil pointer.
    json: Option<Json>,
}

impl Record for Scalar {
    fn type_name(&self) -> String {
        self.name.to_owned()
    }

    fn is_nil(&self) -> bool {
        self.json.is_none()
    }

    fn field(&self, name: &str) -> Option<Result<Value, String>> {
        let value = || match &self.json {
            None => Value::Bool(false),
            Some(Json::Number(number)) if number.is_i64() => {
                Value::Integer(number.as_i64().unwrap_or_default(), IntegerType::Int32)
            }
            Some(json) => Value::from_json(json),
        };
        match name {
            "GetValue" => Some(Ok(value())),
            "Value" if self.is_nil() => Some(Err(format!("nil pointer evaluating {}.{name}", self.name))),
            "Value" => Some(Ok(value())),
            "String" => Some(Ok(Value::text(&self.display()))),
            _ => None,
        }
    }

    fn to_json(&self) -> Json {
        self.json.clone().unwrap_or(Json::Null)
    }

    fn display(&self) -> String {
        match &self.json {
            None => "<nil>".to_owned(),
            Some(Json::String(text)) => text.clone(),
            Some(other) => format!("value:{other}"),
        }
    }
}

/// A port by number or name.
#[derive(Debug)]
struct IntOrString(Json);

impl Record for IntOrString {
    fn type_name(&self) -> String {
        "intstr.IntOrString".to_owned()
    }

    fn is_nil(&self) -> bool {
        false
    }

    fn field(&self, name: &str) -> Option<Result<Value, String>> {
        let value = match name {
            "Type" => Value::Integer(i64::from(self.0.is_string()), IntegerType::Int64),
            "IntVal" | "IntValue" => Value::Integer(self.0.as_i64().unwrap_or_default(), IntegerType::Int32),
            "StrVal" => Value::text(self.0.as_str().unwrap_or_default()),
            "String" => Value::text(&self.display()),
            _ => return None,
        };
        Some(Ok(value))
    }

    fn to_json(&self) -> Json {
        self.0.clone()
    }

    fn display(&self) -> String {
        self.0.as_str().map_or_else(|| self.0.to_string(), str::to_owned)
    }
}
