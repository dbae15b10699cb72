//! An encoded `google.protobuf.Struct`, such as node metadata, read without the generated type, which costs many times more.
//!
//! Duplicates are handled like prost does: of duplicate names the last one counts, duplicate messages are merged.

mod count;
mod json;
mod order;
mod read;
mod tree;
mod view;

use bytes::Bytes;
use protobuf::Fields;
use serde_json::Value;

use count::MAX_VALUES;
use read::ValueBuilder as _;
use tree::Tree;
pub use view::{StructView, ValueView};

/// The tags of fields 1 and 2, length-delimited.
const FIELD_1: u32 = Fields::delimited_tag(1);
const FIELD_2: u32 = Fields::delimited_tag(2);

/// The maximum depth of nested messages: prost decodes 100, and the metadata is within a request and its node.
const MAX_DEPTH: u8 = 98;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it is not a google.protobuf.Struct")]
    Malformed,
    #[error("a text in it is not UTF-8")]
    NotText,
    #[error("it is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    #[error("it holds more than {MAX_VALUES} values")]
    TooMany,
}

impl From<protobuf::Error> for Error {
    fn from(error: protobuf::Error) -> Error {
        match error {
            protobuf::Error::Malformed => Error::Malformed,
            protobuf::Error::NotText => Error::NotText,
        }
    }
}

/// As JSON; numbers that JSON does not have are null.
pub fn to_json(message: &[u8]) -> Result<Value, Error> {
    let mut value = Value::Null;
    read::read_struct::<Value>(message, value.fields(), MAX_DEPTH)?;
    Ok(value)
}

/// The Struct with sorted names, as prost encodes it, so that equal Structs have equal bytes. Returns the input if it is sorted already,
/// which is common. Fails if it has too many values.
pub fn sort_names(message: &Bytes) -> Result<Bytes, Error> {
    count::check_count(message, MAX_DEPTH)?;
    if order::is_sorted(message, MAX_DEPTH) {
        return Ok(message.clone());
    }
    let mut fields = Vec::new();
    read::read_struct::<Tree<'_>>(message, &mut fields, MAX_DEPTH)?;
    Ok(tree::encode(&mut fields))
}

/// The string of this name; other values are not decoded. `None`: absent, or not a string.
pub fn string_field<'a>(message: &'a [u8], name: &str) -> Result<Option<&'a str>, Error> {
    let mut found = None;
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            FIELD_1 => {
                let entry = fields.delimited()?;
                if read::entry_name(entry)? == name.as_bytes() {
                    found = Some(read::read_entry::<Tree<'_>>(entry, MAX_DEPTH - 1)?.1);
                }
            }
            other => fields.skip_unknown(other, 1)?,
        }
    }
    Ok(match found {
        Some(Tree::Text(text)) => Some(text),
        _ => None,
    })
}
