//! A message together with the objects that it was made from.

use std::collections::BTreeSet;

use config::note::ObjectId;
use model::{Patch, PatchId};

#[derive(Debug, Clone, PartialEq)]
pub struct Made<T> {
    pub value: T,
    pub made_from: BTreeSet<ObjectId>,
    /// What changed it afterwards, or added it.
    pub patched: BTreeSet<PatchId>,
}

impl<T> Made<T> {
    pub fn new(value: T, made_from: impl IntoIterator<Item = ObjectId>) -> Self {
        Self { value, made_from: made_from.into_iter().collect(), patched: BTreeSet::new() }
    }

    /// Made from nothing that a user wrote: the same in every mesh.
    pub fn built_in(value: T) -> Self {
        Self::new(value, [])
    }

    /// Made from the value of a patch.
    pub(crate) fn added(value: T, patch: &Patch) -> Self {
        Self { patched: BTreeSet::from([patch.id.clone()]), ..Self::built_in(value) }
    }
}
