//! A message together with the objects that it was made from.

use std::collections::BTreeSet;

use config::note::ObjectId;

#[derive(Debug, Clone, PartialEq)]
pub struct Made<T> {
    pub value: T,
    pub made_from: BTreeSet<ObjectId>,
}

impl<T> Made<T> {
    pub fn new(value: T, made_from: impl IntoIterator<Item = ObjectId>) -> Self {
        Self { value, made_from: made_from.into_iter().collect() }
    }

    /// Made from nothing that a user wrote: the same in every mesh.
    pub fn built_in(value: T) -> Self {
        Self::new(value, [])
    }
}
