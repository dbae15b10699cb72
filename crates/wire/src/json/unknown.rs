//! Fields and enum values in the JSON of a message that no descriptor knows. The reader leaves them out of patches without a word.

use prost_reflect::{Kind, MessageDescriptor};
use serde_json::{Map, Value as Json};

use super::from::has_special_json;
use crate::pool;

/// A name that the type does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// `filters[0].typed_config.stat_prefx`
    pub path: String,
    pub name: String,
    /// The message that has no such field, or the enum that has no such value.
    pub owner: String,
    /// What it has.
    pub known: Vec<String>,
}

/// As deep as the reader goes.
const MAX_DEPTH: usize = 100;

pub(super) fn names(message: &str, fields: &Map<String, Json>) -> Vec<UnknownName> {
    let mut found = Vec::new();
    if let Some(message) = pool().get_message_by_name(message) {
        object(&message, fields, "", MAX_DEPTH, &mut found);
    }
    found
}

fn object(
    message: &MessageDescriptor,
    fields: &Map<String, Json>,
    path: &str,
    depth: usize,
    found: &mut Vec<UnknownName>,
) {
    for (key, value) in fields.iter().filter(|(key, _)| *key != "@type") {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let Some(field) = message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key)) else {
            let known = message.fields().map(|field| field.name().to_owned()).collect();
            found.push(UnknownName { path, name: key.clone(), owner: message.full_name().to_owned(), known });
            continue;
        };
        match (field.kind(), value) {
            (Kind::Message(entry), Json::Object(entries)) if field.is_map() => {
                let kind = entry.map_entry_value_field().kind();
                for (key, value) in entries {
                    single(&kind, value, &format!("{path}[{key:?}]"), depth, found);
                }
            }
            (kind, Json::Array(items)) if field.is_list() => {
                for (index, item) in items.iter().enumerate() {
                    single(&kind, item, &format!("{path}[{index}]"), depth, found);
                }
            }
            (kind, value) => single(&kind, value, &path, depth, found),
        }
    }
}

fn single(kind: &Kind, value: &Json, path: &str, depth: usize, found: &mut Vec<UnknownName>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match (kind, value) {
        (Kind::Message(message), Json::Object(fields)) if message.full_name() == "google.protobuf.Any" => {
            let url = fields.get("@type").and_then(Json::as_str).unwrap_or_default();
            // A type that is not known makes the patch unreadable, which has its own diagnostic.
            let inner = pool().get_message_by_name(url.rsplit('/').next().unwrap_or(url));
            if let Some(inner) = inner.filter(|inner| !has_special_json(inner.full_name())) {
                object(&inner, fields, path, depth, found);
            }
        }
        (Kind::Message(message), Json::Object(fields)) if !has_special_json(message.full_name()) => {
            object(message, fields, path, depth, found);
        }
        (Kind::Enum(values), Json::String(name)) if values.get_value_by_name(name).is_none() => {
            let known = values.values().map(|value| value.name().to_owned()).collect();
            let owner = values.full_name().to_owned();
            found.push(UnknownName { path: path.to_owned(), name: name.clone(), owner, known });
        }
        _ => {}
    }
}
