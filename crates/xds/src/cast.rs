//! Content of a resource that is said by a model, and the entry of a response around it.

use std::sync::Arc;

use crate::{entry::Entry, likeness::Likeness};

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
        let content = self.own.len() + self.steps.iter().map(|[.., taken]| taken).sum::<usize>();
        let around = Entry::new(name, version, self.type_url, content);
        let mut own = self.own;
        let said = self.steps.iter().map(|[next, left_out, taken]| {
            let said;
            (said, own) = own.split_at(*next);
            (said, *left_out, *taken)
        });
        let steps = std::iter::once((&around.before[..], 0, 0)).chain(said).chain([(&around.after[..], 0, 0)]);
        (Likeness::stepped(self.model.clone(), steps), around.len, around.sotw)
    }
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
                let at_once = Resource::new(name.into(), "version".into(), &any, Vec::new());
                let cast = Resource::cast(name.into(), "version".into(), &cast, Vec::new());
                for variant in [Variant::Delta, Variant::Sotw] {
                    assert_eq!(cast.entry(variant), at_once.entry(variant), "{len} {name}");
                    assert_eq!(cast.len(variant), at_once.len(variant));
                }
            }
        }
    }
}
