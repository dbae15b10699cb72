//! Versions: a hash of the content, equal on every replica for equal bytes.

use std::sync::Arc;

use data_encoding::BASE32_NOPAD;
use wire::google::protobuf::Any;
use xxhash_rust::xxh3::Xxh3;

pub(crate) fn version(any: &Any) -> Arc<str> {
    let mut hash = Xxh3::new();
    hash.update(any.type_url.as_bytes());
    hash.update(&any.value);
    Arc::from(BASE32_NOPAD.encode(&hash.digest128().to_be_bytes()).to_ascii_lowercase())
}
