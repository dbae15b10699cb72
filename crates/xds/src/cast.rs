//! Content of a resource that is said by a model, and the entry of a response around it.

use std::sync::Arc;

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use crate::{
    likeness::Likeness,
    resource::{RESOURCES_TAG, name_len},
};

/// Encoded bytes as those of a model and what is between them.
pub struct Cast<'a> {
    pub type_url: &'a str,
    pub model: Arc<[u8]>,
    /// What is not in the model, one behind the other.
    pub own: &'a [u8],
    /// Again and again: how many own bytes, how many of the model are left out, and how many are taken then.
    pub steps: &'a [[usize; 3]],
}

impl Cast<'_> {
    /// The `resources` entry of a DeltaDiscoveryResponse, its length, and where in it that of a DiscoveryResponse is.
    pub(crate) fn entry(&self, name: &str, version: &str) -> (Likeness, usize, (u32, u32)) {
        let value = self.own.len() + self.steps.iter().map(|[.., taken]| taken).sum::<usize>();
        let any = delimited(self.type_url.len()) + delimited(value);
        let inner = delimited(version.len()) + delimited(any) + name_len(name);
        let mut head = Vec::with_capacity(256);
        head.push(RESOURCES_TAG);
        encode_varint(inner as u64, &mut head);
        put(1, version, &mut head);
        open(2, any, &mut head);
        put(1, self.type_url, &mut head);
        open(2, value, &mut head);
        let mut tail = Vec::with_capacity(64);
        if !name.is_empty() {
            put(3, name, &mut tail);
        }
        let mut own = self.own;
        let said = self.steps.iter().map(|[next, left_out, taken]| {
            let said;
            (said, own) = own.split_at(*next);
            (said, *left_out, *taken)
        });
        let steps = std::iter::once((&head[..], 0, 0)).chain(said).chain([(&tail[..], 0, 0)]);
        let like = Likeness::stepped(self.model.clone(), steps);
        let end = 1 + encoded_len_varint(inner as u64) + inner - tail.len();
        let place = |at: usize| u32::try_from(at).expect("protobuf messages are shorter than 2 GiB");
        (like, end + tail.len(), (place(end - delimited(any)), place(end)))
    }
}

fn open(field: u32, len: usize, out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

fn put(field: u32, text: &str, out: &mut Vec<u8>) {
    open(field, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// Of a field with a number below 16.
fn delimited(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

#[cfg(test)]
mod tests {
    use wire::google::protobuf::Any;

    use super::*;
    use crate::{Resource, Variant};

    #[test]
    fn it_is_the_same_as_one_that_was_encoded_at_once() {
        for len in [300, 5_000, 100_000] {
            let model: Vec<u8> = (0..len).map(|at: u32| at as u8).collect();
            let (own, steps) = (b"one, two, three", [[5, 0, 10], [5, 0, 0], [0, 0, 200], [5, 3, 27]]);
            let value = [&own[..5], &model[..10], &own[5..10], &model[10..210], &own[10..], &model[213..240]].concat();
            let steps = [&steps[..], &[[0, 0, model.len() - 240]]].concat();
            let value = [value, model[240..].to_vec()].concat();
            let type_url = "type.googleapis.com/a.B";
            let cast = Cast { type_url, model: model.into(), own, steps: &steps };
            for name in ["", "virtualInbound", &"long".repeat(100)] {
                let any = Any { type_url: type_url.to_owned(), value: value.clone().into() };
                let at_once = Resource::new(name.into(), "version".into(), any, Vec::new());
                let cast = Resource::cast(name.into(), "version".into(), &cast, Vec::new());
                for variant in [Variant::Delta, Variant::Sotw] {
                    assert_eq!(cast.entry(variant), at_once.entry(variant), "{len} {name}");
                    assert_eq!(cast.len(variant), at_once.len(variant));
                }
            }
        }
    }
}
