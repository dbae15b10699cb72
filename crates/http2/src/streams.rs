//! The streams of a connection by identifier. Most connections have one long-lived stream, which is found without a search.

use std::collections::BTreeMap;

use crate::stream::Stream;

pub(crate) struct Streams<F, B> {
    first: Option<(u32, Box<Stream<F, B>>)>,
    others: BTreeMap<u32, Box<Stream<F, B>>>,
}

impl<F, B> Streams<F, B> {
    pub(crate) fn new() -> Streams<F, B> {
        Streams { first: None, others: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Stream<F, B>> {
        match &self.first {
            Some((one, stream)) if *one == id => Some(stream),
            _ => self.others.get(&id).map(|stream| &**stream),
        }
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Stream<F, B>> {
        match &mut self.first {
            Some((one, stream)) if *one == id => Some(stream),
            _ => self.others.get_mut(&id).map(|stream| &mut **stream),
        }
    }

    /// `id` must not be in use.
    pub(crate) fn insert(&mut self, id: u32, stream: Box<Stream<F, B>>) {
        if self.first.is_none() {
            self.first = Some((id, stream));
        } else {
            self.others.insert(id, stream);
        }
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Box<Stream<F, B>>> {
        match self.first.take_if(|(one, _)| *one == id) {
            Some((_, stream)) => Some(stream),
            None => self.others.remove(&id),
        }
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.first.iter().map(|(id, _)| *id).chain(self.others.keys().copied()).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream<F, B>> {
        self.first.iter().map(|(_, stream)| &**stream).chain(self.others.values().map(|stream| &**stream))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream<F, B>> {
        let one = self.first.iter_mut().map(|(_, stream)| &mut **stream);
        one.chain(self.others.values_mut().map(|stream| &mut **stream))
    }
}
