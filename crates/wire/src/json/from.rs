//! JSON to bytes, encoded from the JSON tree in the order of the generated types, so that equal JSON gives equal bytes. Scalars are in
//! `scalar`.

use std::collections::{BTreeMap, BTreeSet};

use prost::encoding::encode_key;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value as Json};

use super::error::{Error, JsonPath, PatchMode, Problem};
use super::scalar::{self, Encoded};
use super::text;
use crate::pool;

/// Type URL and content.
pub(super) fn any(value: &Json) -> Result<(String, Vec<u8>), Error> {
    let top = JsonPath::top();
    let fields = value.as_object().ok_or_else(|| top.wrong("an object with \"@type\"", value))?;
    read_any(fields, top)
}

pub(super) fn encode_patch(name: &str, fields: &Map<String, Json>, patch: PatchMode) -> Result<Vec<u8>, Error> {
    let message = pool().get_message_by_name(name).expect("the pool has every generated type");
    object(&message, fields, JsonPath::of_patch(patch).inside()?)
}

fn read_any(fields: &Map<String, Json>, at: JsonPath<'_>) -> Result<(String, Vec<u8>), Error> {
    let type_url = match fields.get("@type") {
        Some(url) => url.as_str().ok_or_else(|| at.field("@type").wrong("a type URL", url))?,
        None => return Err(at.error(Problem::NoType)),
    };
    let sole = |name: &str| fields.get(name).filter(|_| fields.len() == 2);
    let bytes = if let Some(bytes) = sole("@bytes") {
        scalar::bytes(bytes, &at.field("@bytes"))?
    } else if let Some(message) = pool().get_message_by_name(type_url.rsplit('/').next().unwrap_or(type_url)) {
        typed_body(&message, fields, at)?
    } else if let Some(bytes) = sole("value").filter(|bytes| bytes.is_string()) {
        scalar::bytes(bytes, &at.field("value"))?
    } else {
        return Err(at.field("@type").error(Problem::UnknownType(type_url.to_owned())));
    };
    Ok((type_url.to_owned(), bytes))
}

/// The content beside `@type`: the fields, or `value` for a type with a special JSON form.
fn typed_body(message: &MessageDescriptor, fields: &Map<String, Json>, at: JsonPath<'_>) -> Result<Vec<u8>, Error> {
    let within = at.inside()?;
    if message.full_name() == "google.protobuf.Empty" && fields.get("value").is_some_and(is_empty_object) {
        return Ok(Vec::new());
    }
    if !has_special_json(message.full_name()) {
        return object(message, fields, within);
    }
    if let Some(other) = fields.keys().find(|key| !matches!(key.as_str(), "@type" | "value")) {
        let problem = Problem::UnknownField { message: message.full_name().to_owned(), field: other.clone() };
        return Err(at.error(problem));
    }
    special(message, fields.get("value").unwrap_or(&Json::Null), within.field("value"))
}

fn is_empty_object(value: &Json) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

fn message(message: &MessageDescriptor, value: &Json, at: JsonPath<'_>) -> Result<Vec<u8>, Error> {
    let at = at.inside()?;
    if has_special_json(message.full_name()) {
        return special(message, value, at);
    }
    let fields = value.as_object().ok_or_else(|| at.wrong(format!("an object ({})", message.full_name()), value))?;
    if let Some(field) = fields.keys().find(|key| *key == "@type") {
        let problem = Problem::UnknownField { message: message.full_name().to_owned(), field: field.clone() };
        return Err(at.error(problem));
    }
    object(message, fields, at)
}

fn object(message: &MessageDescriptor, fields: &Map<String, Json>, at: JsonPath<'_>) -> Result<Vec<u8>, Error> {
    let name = || message.full_name().to_owned();
    let mut parts: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut chosen = BTreeSet::new();
    for (key, value) in fields.iter().filter(|(key, _)| *key != "@type") {
        let Some(field) = message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key)) else {
            if at.patch.is_some() {
                continue;
            }
            return Err(at.error(Problem::UnknownField { message: name(), field: key.clone() }));
        };
        if value.is_null() && !accepts_null(&field) {
            continue;
        }
        if !chosen.insert(field.number()) {
            return Err(at.error(Problem::Twice { message: name(), field: field.name().to_owned() }));
        }
        let mut bytes = Vec::new();
        add_field(&mut bytes, &field, value, at.field(key))?;
        if parts.insert(position(&field), bytes).is_some() {
            let oneof = field.containing_oneof().map_or_else(String::new, |oneof| oneof.name().to_owned());
            return Err(at.error(Problem::SecondOfOneof { message: name(), oneof, field: key.clone() }));
        }
    }
    Ok(parts.into_values().flatten().collect())
}

/// prost encodes a oneof at the position of its lowest field number.
fn position(field: &FieldDescriptor) -> u32 {
    let first = field.containing_oneof().and_then(|oneof| oneof.fields().map(|field| field.number()).min());
    first.unwrap_or_else(|| field.number())
}

fn accepts_null(field: &FieldDescriptor) -> bool {
    !field.is_list() && !field.is_map() && is_null_kind(&field.kind())
}

fn is_null_kind(kind: &Kind) -> bool {
    match kind {
        Kind::Message(message) => message.full_name() == "google.protobuf.Value",
        Kind::Enum(values) => values.full_name() == "google.protobuf.NullValue",
        _ => false,
    }
}

fn add_field(out: &mut Vec<u8>, field: &FieldDescriptor, value: &Json, at: JsonPath<'_>) -> Result<(), Error> {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => add_map(out, field.number(), &entry, value, at),
        kind if field.is_list() => {
            let items = value.as_array().ok_or_else(|| at.wrong("a list", value))?;
            let items = items.iter().enumerate().filter(|(_, item)| !is_ignored(&kind, item, &at));
            let encoded: Result<Vec<_>, _> = items.map(|(i, item)| single(&kind, item, at.index(i))).collect();
            add_list(out, field, &encoded?);
            Ok(())
        }
        kind if is_ignored(&kind, value, &at) => Ok(()),
        kind => {
            let encoded = single(&kind, value, at)?;
            if field.supports_presence() || !encoded.is_default {
                add(out, field.number(), &encoded);
            }
            Ok(())
        }
    }
}

/// An unknown enum value name, which newer proxies may know.
fn is_ignored(kind: &Kind, value: &Json, at: &JsonPath<'_>) -> bool {
    let Kind::Enum(values) = kind else { return false };
    at.patch.is_some() && value.as_str().is_some_and(|name| values.get_value_by_name(name).is_none())
}

fn single(kind: &Kind, value: &Json, at: JsonPath<'_>) -> Result<Encoded, Error> {
    if value.is_null() && !is_null_kind(kind) {
        return Err(at.wrong("a value", value));
    }
    match kind {
        Kind::Message(inner) => Ok(Encoded::delimited(&message(inner, value, at)?)),
        kind => scalar::encode(kind, value, &at),
    }
}

fn add(out: &mut Vec<u8>, number: u32, encoded: &Encoded) {
    encode_key(number, encoded.wire, out);
    out.extend_from_slice(&encoded.bytes);
}

fn add_list(out: &mut Vec<u8>, field: &FieldDescriptor, items: &[Encoded]) {
    if field.is_packed() && !items.is_empty() {
        let body: Vec<u8> = items.iter().flat_map(|item| item.bytes.iter().copied()).collect();
        add(out, field.number(), &Encoded::delimited(&body));
    } else {
        items.iter().for_each(|item| add(out, field.number(), item));
    }
}

fn add_map(
    out: &mut Vec<u8>,
    number: u32,
    entry: &MessageDescriptor,
    value: &Json,
    at: JsonPath<'_>,
) -> Result<(), Error> {
    let fields = value.as_object().ok_or_else(|| at.wrong("an object", value))?;
    let (keys, values) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
    let mut entries = BTreeMap::new();
    for (key, value) in fields {
        let at = at.key(key);
        let (ordered, encoded_key) = scalar::map_key(&keys, key, &at)?;
        let encoded = single(&values, value, at.inside()?)?;
        if entries.insert(ordered, (encoded_key, encoded)).is_some() {
            let problem = Problem::Twice { message: entry.full_name().to_owned(), field: key.clone() };
            return Err(at.error(problem));
        }
    }
    for (key, value) in entries.values() {
        let mut body = Vec::new();
        for (number, part) in [(1, key), (2, value)] {
            if !part.is_default {
                add(&mut body, number, part);
            }
        }
        add(out, number, &Encoded::delimited(&body));
    }
    Ok(())
}

pub(super) fn has_special_json(name: &str) -> bool {
    matches!(
        name.strip_prefix("google.protobuf.").unwrap_or(""),
        "Any"
            | "Duration"
            | "Timestamp"
            | "Struct"
            | "ListValue"
            | "Value"
            | "DoubleValue"
            | "FloatValue"
            | "Int64Value"
            | "UInt64Value"
            | "Int32Value"
            | "UInt32Value"
            | "BoolValue"
            | "StringValue"
            | "BytesValue"
    )
}

fn special(message: &MessageDescriptor, value: &Json, at: JsonPath<'_>) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    match message.name() {
        "Any" => {
            let fields = value.as_object().ok_or_else(|| at.wrong("an object with \"@type\"", value))?;
            if !fields.is_empty() {
                let (type_url, bytes) = read_any(fields, at)?;
                add_present(&mut out, 1, &Encoded::delimited(type_url.as_bytes()));
                add_present(&mut out, 2, &Encoded::delimited(&bytes));
            }
        }
        "Duration" => add_time(&mut out, text::parse_duration, value, &at, "a duration such as \"1.5s\"")?,
        "Timestamp" => {
            add_time(&mut out, text::parse_timestamp, value, &at, "a time such as \"2026-01-31T12:00:00Z\"")?;
        }
        "Value" => return dynamic_value(value, at),
        // Struct, ListValue and the wrappers: their JSON is that of their first field.
        _ => {
            let field = message.get_field(1).expect("a well-known type has its first field");
            add_field(&mut out, &field, value, at)?;
        }
    }
    Ok(out)
}

fn add_present(out: &mut Vec<u8>, number: u32, encoded: &Encoded) {
    if !encoded.is_default {
        add(out, number, encoded);
    }
}

fn add_time(
    out: &mut Vec<u8>,
    parse: impl Fn(&str) -> Option<(i64, i32)>,
    value: &Json,
    at: &JsonPath<'_>,
    expected: &str,
) -> Result<(), Error> {
    let (seconds, nanos) = value.as_str().and_then(parse).ok_or_else(|| at.wrong(expected, value))?;
    // Zeroes are written, so that they replace the fields of the message that this is merged into.
    let write = if at.patch == Some(PatchMode::Merged) { add } else { add_present };
    write(out, 1, &Encoded::signed(seconds));
    write(out, 2, &Encoded::signed(nanos.into()));
    Ok(())
}

/// google.protobuf.Value: one field for each JSON type.
fn dynamic_value(value: &Json, at: JsonPath<'_>) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    match value {
        Json::Null => add(&mut out, 1, &Encoded::varint(0)),
        Json::Number(number) => {
            let double = number.as_f64().ok_or_else(|| at.wrong("a number", value))?;
            add(&mut out, 2, &Encoded::fixed64(double.to_le_bytes()));
        }
        Json::String(text) => add(&mut out, 3, &Encoded::delimited(text.as_bytes())),
        Json::Bool(flag) => add(&mut out, 4, &Encoded::varint((*flag).into())),
        Json::Object(_) => add(&mut out, 5, &dynamic_part("google.protobuf.Struct", value, at)?),
        Json::Array(_) => add(&mut out, 6, &dynamic_part("google.protobuf.ListValue", value, at)?),
    }
    Ok(out)
}

fn dynamic_part(name: &str, value: &Json, at: JsonPath<'_>) -> Result<Encoded, Error> {
    let descriptor = pool().get_message_by_name(name).expect("the pool has the well-known types");
    Ok(Encoded::delimited(&message(&descriptor, value, at)?))
}
