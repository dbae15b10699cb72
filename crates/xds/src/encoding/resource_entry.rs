//! The `resources` entry of a response around the content of a resource, for both variants.

use bytes::Bytes;
use protobuf::{encode_with, field_len};

/// Field numbers of both response messages, of a Resource and of an Any: the content of each is field 2.
const RESOURCES: u32 = 2;
const RESOURCE: u32 = 2;
const VALUE: u32 = 2;
const NAME: u32 = 3;

/// The entry of a DeltaDiscoveryResponse, with its tag and length, without the content.
pub(crate) struct ResourceEntry {
    pub(crate) before: Bytes,
    pub(crate) after: Bytes,
    /// With the content.
    pub(crate) len: usize,
    /// The range in it that is the entry of a DiscoveryResponse: `Resource.resource` has the number of `resources`.
    pub(crate) sotw: (u32, u32),
}

impl ResourceEntry {
    pub(crate) fn new(name: &str, version: &str, type_url: &str, content: usize) -> ResourceEntry {
        let after = encode_with(|out| out.text(NAME, name));
        let mut any = 0;
        let before = encode_with(|out| {
            if content > 0 {
                out.header(VALUE, content);
            }
            out.text(1, type_url);
            out.header(RESOURCE, out.written() + content);
            any = out.written() + content;
            out.text(1, version);
            out.header(RESOURCES, out.written() + content + after.len());
        });
        let end = before.len() + content;
        let place = |at: usize| u32::try_from(at).expect("protobuf messages are shorter than 2 GiB");
        ResourceEntry { len: end + after.len(), sotw: (place(end - any), place(end)), before, after }
    }
}

/// The length of the field that `after` holds.
pub(crate) fn name_len(name: &str) -> usize {
    if name.is_empty() { 0 } else { field_len(NAME, name.len()) }
}
