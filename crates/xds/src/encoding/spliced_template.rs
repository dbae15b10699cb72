//! The content of a resource as an instance of a template, and the entry of a response around it, which shares the memory of the template.

use std::sync::Arc;

use bytes::BytesMut;
use prost::encoding::{decode_varint, encode_varint};

use crate::encoding::resource_entry::ResourceEntry;

/// Encoded bytes as literals spliced between ranges of a template.
pub struct SplicedTemplate<'a> {
    pub type_url: &'a str,
    pub template: Arc<[u8]>,
    /// The literals, concatenated.
    pub literals: &'a [u8],
    /// Repeated: the length of a literal, how many bytes of the template are skipped, and how many are copied then.
    pub splices: &'a [[usize; 3]],
}

/// The `resources` entry of a response for an instance of a template. Equal if the bytes are.
#[derive(Clone, Debug)]
pub(crate) struct SplicedEntry {
    template: Arc<[u8]>,
    /// Repeated: the length of a literal, the literal, how many bytes of the template are skipped, and how many are copied then. As bytes,
    /// because every proxy has a few listeners with a hundred splices each, and nearly all of these numbers are below 128.
    splices: Box<[u8]>,
}

impl SplicedTemplate<'_> {
    /// The `resources` entry of a DeltaDiscoveryResponse, its length, and the range in it that is the entry of a DiscoveryResponse.
    pub(crate) fn entry(&self, name: &str, version: &str) -> (SplicedEntry, usize, (u32, u32)) {
        let len = self.literals.len() + self.splices.iter().map(|[.., copied]| copied).sum::<usize>();
        let around = ResourceEntry::new(name, version, self.type_url, len);
        let mut splices = Vec::with_capacity(1024);
        push_splice(&mut splices, &around.before, 0, 0);
        let mut literals = self.literals;
        for [len, skipped, copied] in self.splices {
            let literal;
            (literal, literals) = literals.split_at(*len);
            push_splice(&mut splices, literal, *skipped, *copied);
        }
        push_splice(&mut splices, &around.after, 0, 0);
        (SplicedEntry { template: self.template.clone(), splices: splices.into() }, around.len, around.sotw)
    }
}

fn push_splice(splices: &mut Vec<u8>, literal: &[u8], skipped: usize, copied: usize) {
    encode_varint(literal.len() as u64, splices);
    splices.extend_from_slice(literal);
    encode_varint(skipped as u64, splices);
    encode_varint(copied as u64, splices);
}

const VALID: &str = "splices are read as they were written";

impl SplicedEntry {
    /// Appends a range of the bytes.
    pub(crate) fn write(&self, start: usize, end: usize, out: &mut BytesMut) {
        let mut at = 0;
        for part in self.parts() {
            let (from, to) = (start.saturating_sub(at), end.saturating_sub(at).min(part.len()));
            out.extend_from_slice(part.get(from..to).unwrap_or_default());
            at += part.len();
        }
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (mut rest, mut position) = (&*self.splices, 0);
        let number = |rest: &mut &[u8]| usize::try_from(decode_varint(rest).expect(VALID)).expect(VALID);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let literal;
            let len = number(&mut rest);
            (literal, rest) = rest.split_at(len);
            let from = position + number(&mut rest);
            position = from + number(&mut rest);
            Some([literal, &self.template[from..position]])
        })
        .flatten()
    }

    /// The memory that is not shared with other instances.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.splices.len()
    }
}

impl PartialEq for SplicedEntry {
    fn eq(&self, other: &SplicedEntry) -> bool {
        let same = Arc::ptr_eq(&self.template, &other.template) && self.splices == other.splices;
        same || self.parts().flatten().eq(other.parts().flatten())
    }
}

impl Eq for SplicedEntry {}

#[cfg(test)]
mod tests {
    use wire::google::protobuf::Any;

    use super::*;
    use crate::{Resource, Variant};

    #[test]
    fn an_instance_has_the_bytes_of_a_resource_encoded_whole() {
        for len in [300, 5_000, 100_000] {
            let template: Vec<u8> = (0..len).map(|at: u32| at as u8).collect();
            let (literals, splices) = (b"one, two, three", [[5, 0, 10], [5, 0, 0], [0, 0, 200], [5, 3, 27]]);
            let value = [
                &literals[..5],
                &template[..10],
                &literals[5..10],
                &template[10..210],
                &literals[10..],
                &template[213..240],
            ]
            .concat();
            let splices = [&splices[..], &[[0, 0, template.len() - 240]]].concat();
            let value = [value, template[240..].to_vec()].concat();
            let type_url = "type.googleapis.com/a.B";
            let content = SplicedTemplate { type_url, template: template.into(), literals, splices: &splices };
            for name in ["", "virtualInbound", &"long".repeat(100)] {
                let any = Any { type_url: type_url.to_owned(), value: value.clone().into() };
                let whole = Resource::new(name.into(), "version".into(), &any, Vec::new());
                let instance = Resource::from_template(name.into(), "version".into(), &content, Vec::new());
                for variant in [Variant::Delta, Variant::Sotw] {
                    assert_eq!(instance.entry(variant), whole.entry(variant), "{len} {name}");
                    assert_eq!(instance.len(variant), whole.len(variant));
                }
            }
        }
    }
}
