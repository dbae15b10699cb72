//! The bytes of protobuf messages, below prost: one reader of the fields of an encoded message, and one writer. For what prost decodes or encodes at
//! many times the cost: requests with a hundred thousand names, node metadata, objects of which a few fields are read, listeners that differ in
//! some bytes. Knows no message.

mod reader;
mod writer;

pub use reader::{Error, Field, Fields};
pub use writer::{Encode, Writer, encode, encode_with, field, field_len, put_header};
