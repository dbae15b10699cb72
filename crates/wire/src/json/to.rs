//! Bytes to JSON. Never fails: an Any that cannot be expanded is kept as base64.

use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};
use serde_json::{Map, Value as Json};

use super::text;
use crate::pool;

/// The nesting level below which an Any is not expanded, so that recursion through Any ends. Real configuration stays below 30.
const MAX_ANY_DEPTH: usize = 40;

pub(super) fn any(type_url: &str, bytes: &[u8], depth: usize) -> Json {
    if type_url.is_empty() && bytes.is_empty() {
        return Json::Object(Map::new());
    }
    let name = type_url.rsplit('/').next().unwrap_or(type_url);
    let mut out = Map::new();
    out.insert("@type".to_owned(), type_url.into());
    let Some(descriptor) = pool().get_message_by_name(name) else {
        out.insert("value".to_owned(), text::base64(bytes).into());
        return Json::Object(out);
    };
    match DynamicMessage::decode(descriptor, bytes) {
        Ok(opened) if depth < MAX_ANY_DEPTH => match special(&opened, depth) {
            Some(value) => drop(out.insert("value".to_owned(), value)),
            None => add_fields(&mut out, &opened, depth),
        },
        _ => drop(out.insert("@bytes".to_owned(), text::base64(bytes).into())),
    }
    Json::Object(out)
}

/// A message of a generated type, which the pool contains.
pub(super) fn plain(name: &str, bytes: &[u8]) -> Json {
    let descriptor = pool().get_message_by_name(name).expect("types and pool come from one descriptor set");
    DynamicMessage::decode(descriptor, bytes).map_or(Json::Null, |opened| message(&opened, 0))
}

fn message(message: &DynamicMessage, depth: usize) -> Json {
    special(message, depth).unwrap_or_else(|| {
        let mut out = Map::new();
        add_fields(&mut out, message, depth);
        Json::Object(out)
    })
}

fn add_fields(out: &mut Map<String, Json>, message: &DynamicMessage, depth: usize) {
    for (field, value) in message.fields() {
        out.insert(field.json_name().to_owned(), field_value(&field, value, depth + 1));
    }
}

fn field_value(field: &FieldDescriptor, value: &Value, depth: usize) -> Json {
    match value {
        Value::List(items) => items.iter().map(|item| single(&field.kind(), item, depth)).collect(),
        Value::Map(entries) => {
            let Kind::Message(entry) = field.kind() else { return Json::Null };
            let kind = entry.map_entry_value_field().kind();
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            entries.into_iter().map(|(key, value)| (key_text(key), single(&kind, value, depth + 1))).collect()
        }
        value => single(&field.kind(), value, depth),
    }
}

fn single(kind: &Kind, value: &Value, depth: usize) -> Json {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::I32(value) => (*value).into(),
        Value::U32(value) => (*value).into(),
        // JSON readers use doubles, which cannot hold every 64-bit integer.
        Value::I64(value) => value.to_string().into(),
        Value::U64(value) => value.to_string().into(),
        Value::F32(value) => text::short_number(*value),
        Value::F64(value) => text::number(*value),
        Value::String(value) => value.as_str().into(),
        Value::Bytes(value) => text::base64(value).into(),
        Value::EnumNumber(number) => kind.as_enum().map_or(Json::Null, |values| enum_name(values, *number)),
        Value::Message(inner) => message(inner, depth),
        Value::List(_) | Value::Map(_) => Json::Null,
    }
}

fn enum_name(values: &EnumDescriptor, number: i32) -> Json {
    if values.full_name() == "google.protobuf.NullValue" {
        return Json::Null;
    }
    values.get_value(number).map_or_else(|| number.into(), |value| value.name().into())
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

/// The JSON of a type with a special form. Empty is not among them: it is `{}` like any message without fields.
fn special(message: &DynamicMessage, depth: usize) -> Option<Json> {
    let descriptor = message.descriptor();
    match descriptor.full_name().strip_prefix("google.protobuf.")? {
        "Any" => Some(inner_any(message, depth)),
        "Duration" => Some(text::duration(integer(message, 1), nanos(message)).into()),
        "Timestamp" => Some(text::timestamp(integer(message, 1), nanos(message)).into()),
        "Value" => {
            Some(message.fields().next().map_or(Json::Null, |(kind, value)| field_value(&kind, value, depth + 1)))
        }
        "Struct" | "ListValue" | "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value"
        | "UInt32Value" | "BoolValue" | "StringValue" | "BytesValue" => first_field(message, &descriptor, depth),
        _ => None,
    }
}

fn inner_any(message: &DynamicMessage, depth: usize) -> Json {
    let (url, bytes) = (message.get_field_by_number(1), message.get_field_by_number(2));
    let url = url.as_deref().and_then(Value::as_str).unwrap_or_default();
    any(url, bytes.as_deref().and_then(Value::as_bytes).map_or(&[], |bytes| bytes), depth + 1)
}

fn first_field(message: &DynamicMessage, descriptor: &MessageDescriptor, depth: usize) -> Option<Json> {
    let field = descriptor.get_field(1)?;
    Some(field_value(&field, &message.get_field(&field), depth + 1))
}

fn integer(message: &DynamicMessage, number: u32) -> i64 {
    let value = message.get_field_by_number(number);
    value.and_then(|value| value.as_i64().or_else(|| value.as_i32().map(i64::from))).unwrap_or(0)
}

fn nanos(message: &DynamicMessage) -> i32 {
    i32::try_from(integer(message, 2)).expect("nanos is an int32 in both types")
}
