//! A translated message with its provenance: the objects and patches that it was made from.

use std::collections::BTreeSet;

use config::diagnostic::ObjectId;
use model::{Patch, PatchId};

#[derive(Debug, Clone, PartialEq)]
pub struct Translated<T> {
    pub value: T,
    pub made_from: BTreeSet<ObjectId>,
    /// Patches that changed or added it.
    pub patched: BTreeSet<PatchId>,
}

impl<T> Translated<T> {
    pub fn new(value: T, made_from: impl IntoIterator<Item = ObjectId>) -> Self {
        Self { value, made_from: made_from.into_iter().collect(), patched: BTreeSet::new() }
    }

    /// Made from no user object: the same in every mesh.
    pub fn built_in(value: T) -> Self {
        Self::new(value, [])
    }

    /// Made from the value of a patch.
    pub(crate) fn of_patch(value: T, patch: &Patch) -> Self {
        Self { patched: BTreeSet::from([patch.id.clone()]), ..Self::built_in(value) }
    }
}
