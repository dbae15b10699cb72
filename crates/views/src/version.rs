//! Resource versions: a content hash, equal on every replica for equal bytes.

use std::sync::Arc;

use data_encoding::BASE32_NOPAD;
use wire::google::protobuf::Any;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Hashes in place: a copy of a secret would have to be wiped.
pub(crate) fn version(any: &Any) -> Arc<str> {
    let mut hash = Xxh3::new();
    hash.update(any.type_url.as_bytes());
    hash.update(&any.value);
    encode_hash(hash.digest128())
}

/// The version of a value in pieces. Hashing many small pieces costs twice as much as concatenating them first.
pub(crate) fn version_of_pieces<'a>(type_url: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Arc<str> {
    let mut content = Vec::with_capacity(16 << 10);
    content.extend_from_slice(type_url.as_bytes());
    pieces.into_iter().for_each(|piece| content.extend_from_slice(piece));
    encode_hash(xxh3_128(&content))
}

fn encode_hash(hash: u128) -> Arc<str> {
    let mut text = BASE32_NOPAD.encode(&hash.to_be_bytes());
    text.make_ascii_lowercase();
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_pieces_equals_that_of_the_whole() {
        for len in [0, 1, 200, 5_000] {
            let value: Vec<u8> = (0..len).map(|at: u32| at as u8).collect();
            let any = Any { type_url: "type.googleapis.com/a.B".into(), value: value.clone().into() };
            let (one, two) = value.split_at(value.len() / 3);
            assert_eq!(version(&any), version_of_pieces(&any.type_url, [one, two]));
        }
    }
}
