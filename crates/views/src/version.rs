//! Versions: a hash of the content, equal on every replica for equal bytes.

use std::sync::Arc;

use data_encoding::BASE32_NOPAD;
use wire::google::protobuf::Any;
use xxhash_rust::xxh3::Xxh3;

pub(crate) fn version(any: &Any) -> Arc<str> {
    version_of(&any.type_url, [&any.value[..]])
}

/// The same from pieces of the value.
pub(crate) fn version_of<'a>(type_url: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Arc<str> {
    let mut hash = Xxh3::new();
    hash.update(type_url.as_bytes());
    pieces.into_iter().for_each(|piece| hash.update(piece));
    Arc::from(BASE32_NOPAD.encode(&hash.digest128().to_be_bytes()).to_ascii_lowercase())
}
