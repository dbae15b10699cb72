//! Messages as proto3 JSON and back, every Any opened, over the descriptor pool. Fields that a descriptor does not know are not shown.
//!
//! An Any whose type is not in the pool becomes `{"@type": url, "value": base64}`. One whose type is known but whose bytes do not
//! decode, or that is buried too deep to open, becomes `{"@type": url, "@bytes": base64}`. Both are read back to the same bytes.

mod error;
mod from;
mod scalar;
mod text;
mod to;

use prost::{Message, Name};
use serde_json::{Map, Value};

use crate::google::protobuf::Any;
pub use error::{Error, Patch, Problem};

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

/// A message that a user wrote for proxies that may be younger than the descriptors here: fields and names of enum values that are not
/// known are passed over.
pub fn patch<M: Name>(fields: &Map<String, Value>, patch: Patch) -> Result<Vec<u8>, Error> {
    from::patch(&M::full_name(), fields, patch)
}

#[cfg(test)]
mod tests;
