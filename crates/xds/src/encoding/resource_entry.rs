//! The `resources` entry of a response around the content of a resource, for both variants.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Field 2, length-delimited: the `resources` of both response messages.
const RESOURCES_TAG: u8 = 0x12;

/// The entry of a DeltaDiscoveryResponse, with its tag and length, without the content.
pub(crate) struct ResourceEntry {
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
    /// With the content.
    pub(crate) len: usize,
    /// The range in it that is the entry of a DiscoveryResponse: `Resource.resource` is field 2 too.
    pub(crate) sotw: (u32, u32),
}

impl ResourceEntry {
    pub(crate) fn new(name: &str, version: &str, type_url: &str, content: usize) -> ResourceEntry {
        let any = field_len(type_url.len()) + field_len(content);
        let inner = field_len(version.len()) + delimited_len(any) + field_len(name.len());
        let mut before = Vec::with_capacity(160);
        before.push(RESOURCES_TAG);
        encode_varint(inner as u64, &mut before);
        put(1, version, &mut before);
        open(2, any, &mut before);
        put(1, type_url, &mut before);
        if content > 0 {
            open(2, content, &mut before);
        }
        let mut after = Vec::with_capacity(64);
        put(3, name, &mut after);
        let end = before.len() + content;
        let place = |at: usize| u32::try_from(at).expect("protobuf messages are shorter than 2 GiB");
        ResourceEntry { len: end + after.len(), sotw: (place(end - delimited_len(any)), place(end)), before, after }
    }
}

fn open(field: u32, len: usize, out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

/// Nothing, if it is empty.
fn put(field: u32, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        open(field, text.len(), out);
        out.extend_from_slice(text.as_bytes());
    }
}

/// The length of a field of text or bytes, which is left out if it is empty.
pub(crate) fn field_len(len: usize) -> usize {
    if len == 0 { 0 } else { delimited_len(len) }
}

/// The length of a field with a number below 16.
fn delimited_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}
