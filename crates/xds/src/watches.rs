//! The types that one stream watches. Its task moves them, tables read them. What happens to one is in `watch`.

use crate::{TypeUrl, watch::Watch};

/// One place for each type, in push order.
#[derive(Default)]
pub(crate) struct Watches([Option<Box<Watch>>; TypeUrl::ALL.len()]);

impl Watches {
    pub(crate) fn get(&self, kind: TypeUrl) -> Option<&Watch> {
        self.0[kind as usize].as_deref()
    }

    pub(crate) fn get_mut(&mut self, kind: TypeUrl) -> Option<&mut Watch> {
        self.0[kind as usize].as_deref_mut()
    }

    /// `None`: nobody asked for the type yet.
    pub(crate) fn place(&mut self, kind: TypeUrl) -> &mut Option<Box<Watch>> {
        &mut self.0[kind as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Watch> {
        self.0.iter().filter_map(Option::as_deref)
    }
}
