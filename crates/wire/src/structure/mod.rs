//! An encoded `google.protobuf.Struct`, such as the metadata of a node, read without the generated type, which costs many times more.
//!
//! What the bytes say is what prost reads in them: of a name that occurs twice the last one counts, messages that occur twice are merged.

mod back;
mod count;
mod fields;
mod json;
mod order;
mod read;
mod tree;
mod view;

use bytes::Bytes;
use serde_json::Value;

use count::MAX_VALUES;
use fields::{FIRST, Fields};
use read::Form as _;
use tree::Tree;
pub use view::{Item, View};

/// Messages inside each other: prost reads 100, and a request and its node are around the metadata.
const DEEPEST: u8 = 98;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it is not a google.protobuf.Struct")]
    Malformed,
    #[error("a text in it is not UTF-8")]
    NotText,
    #[error("it is nested more than {DEEPEST} levels deep")]
    TooDeep,
    #[error("it holds more than {MAX_VALUES} values")]
    TooMany,
}

/// As JSON; numbers that JSON does not have are null.
pub fn json(structure: &[u8]) -> Result<Value, Error> {
    let mut value = Value::Null;
    read::structure::<Value>(structure, value.fields(), DEEPEST)?;
    Ok(value)
}

/// The same with its names in order, as prost encodes it: what is alike is so in memory. Often it is as it came. Fails where it holds too
/// many values.
pub fn sorted(structure: &Bytes) -> Result<Bytes, Error> {
    count::check(structure, DEEPEST)?;
    if order::is_sorted(structure, DEEPEST) {
        return Ok(structure.clone());
    }
    let mut fields = Vec::new();
    read::structure::<Tree<'_>>(structure, &mut fields, DEEPEST)?;
    Ok(tree::encoded(&mut fields, structure.len()))
}

/// The text of this name, without a look into the others. `None`: it is not there, or is no text.
pub fn text<'a>(structure: &'a [u8], name: &str) -> Result<Option<&'a str>, Error> {
    let mut found = None;
    let mut fields = Fields::new(structure);
    while let Some(key) = fields.key()? {
        match key {
            FIRST => {
                let entry = fields.delimited()?;
                if read::name(entry)? == name.as_bytes() {
                    found = Some(read::entry::<Tree<'_>>(entry, DEEPEST - 1)?.1);
                }
            }
            other => fields.pass(other, 1)?,
        }
    }
    Ok(match found {
        Some(Tree::Text(text)) => Some(text),
        _ => None,
    })
}
