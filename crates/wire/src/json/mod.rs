//! Proto3 JSON of messages, both ways, by the descriptor pool. Any fields are expanded. Unknown fields are left out.
//!
//! An Any whose type is not in the pool becomes `{"@type": url, "value": base64}`. One whose type is known but whose bytes do not
//! decode, or that is nested too deep, becomes `{"@type": url, "@bytes": base64}`. Both are read back to the same bytes.

mod error;
mod from;
mod scalar;
mod text;
mod to;
mod unknown;

use prost::{Message, Name};
use serde_json::{Map, Value};

use crate::google::protobuf::Any;
pub use error::{Error, PatchMode, Problem};
pub use unknown::UnknownName;

pub fn to_value(any: &Any) -> Value {
    to::any(&any.type_url, &any.value, 0)
}

/// The message without an `@type`.
pub fn message_to_value<M: Message + Name>(message: &M) -> Value {
    to::plain(&M::full_name(), &message.encode_to_vec())
}

/// The bytes are those that the generated type would encode: fields by number, map entries by key.
pub fn from_value(value: &Value) -> Result<Any, Error> {
    from::any(value).map(|(type_url, bytes)| Any { type_url, value: bytes.into() })
}

/// Encodes a message written by a user, for proxies that may be newer than our descriptors: unknown fields and enum values are ignored.
pub fn encode_patch<M: Name>(fields: &Map<String, Value>, patch: PatchMode) -> Result<Vec<u8>, Error> {
    from::encode_patch(&M::full_name(), fields, patch)
}

/// What `encode_patch` ignores.
pub fn unknown_names<M: Name>(fields: &Map<String, Value>) -> Vec<UnknownName> {
    unknown::names(&M::full_name(), fields)
}

#[cfg(test)]
mod tests;
