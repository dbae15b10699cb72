//! The watches of one stream, one for each type. The task of the stream changes them, debug pages read them.

use crate::{TypeUrl, protocol::watch::Watch};

/// One slot for each type, in push order.
#[derive(Default)]
pub(crate) struct Watches([Option<Box<Watch>>; TypeUrl::ALL.len()]);

impl Watches {
    pub(crate) fn get(&self, kind: TypeUrl) -> Option<&Watch> {
        self.0[kind as usize].as_deref()
    }

    pub(crate) fn get_mut(&mut self, kind: TypeUrl) -> Option<&mut Watch> {
        self.0[kind as usize].as_deref_mut()
    }

    /// `None`: the type was not subscribed to yet.
    pub(crate) fn slot(&mut self, kind: TypeUrl) -> &mut Option<Box<Watch>> {
        &mut self.0[kind as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Watch> {
        self.0.iter().filter_map(Option::as_deref)
    }
}
