//! The content of a resource as an instance of a template, and the entry of a response around it.

use std::sync::Arc;

use crate::encoding::{delta_compression::DeltaCompressed, resource_entry::ResourceEntry};

/// Encoded bytes as literals spliced between ranges of a template.
pub struct SplicedTemplate<'a> {
    pub type_url: &'a str,
    pub template: Arc<[u8]>,
    /// The literals, concatenated.
    pub literals: &'a [u8],
    /// Repeated: the length of a literal, how many bytes of the template are skipped, and how many are copied then.
    pub splices: &'a [[usize; 3]],
}

impl SplicedTemplate<'_> {
    /// The `resources` entry of a DeltaDiscoveryResponse, its length, and the range in it that is the entry of a DiscoveryResponse.
    pub(crate) fn entry(&self, name: &str, version: &str) -> (DeltaCompressed, usize, (u32, u32)) {
        let len = self.literals.len() + self.splices.iter().map(|[.., copied]| copied).sum::<usize>();
        let around = ResourceEntry::new(name, version, self.type_url, len);
        let mut literals = self.literals;
        let content = self.splices.iter().map(|[len, skipped, copied]| {
            let literal;
            (literal, literals) = literals.split_at(*len);
            (literal, *skipped, *copied)
        });
        let splices = std::iter::once((&around.before[..], 0, 0)).chain(content).chain([(&around.after[..], 0, 0)]);
        (DeltaCompressed::from_splices(self.template.clone(), splices), around.len, around.sotw)
    }
}

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
