//! Versions: a hash of the content, equal on every replica for equal bytes.

use std::sync::Arc;

use data_encoding::BASE32_NOPAD;
use wire::google::protobuf::Any;
use xxhash_rust::xxh3::xxh3_128;

pub(crate) fn version(any: &Any) -> Arc<str> {
    version_of(&any.type_url, [&any.value[..]])
}

/// The same from pieces of the value.
pub(crate) fn version_of<'a>(type_url: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Arc<str> {
    // In one piece: to hash many small ones costs twice as much as to put them together.
    let mut content = Vec::with_capacity(16 << 10);
    content.extend_from_slice(type_url.as_bytes());
    pieces.into_iter().for_each(|piece| content.extend_from_slice(piece));
    let mut version = BASE32_NOPAD.encode(&xxh3_128(&content).to_be_bytes());
    version.make_ascii_lowercase();
    version.into()
}
