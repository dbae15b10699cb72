//! The streams of a connection by their numbers. A connection of a proxy has one, which lies here; only others are searched for.

use std::collections::BTreeMap;

use crate::stream::Stream;

pub(crate) struct Streams<F, B> {
    one: Option<(u32, Box<Stream<F, B>>)>,
    more: BTreeMap<u32, Box<Stream<F, B>>>,
}

impl<F, B> Streams<F, B> {
    pub(crate) fn new() -> Streams<F, B> {
        Streams { one: None, more: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.more.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Stream<F, B>> {
        match &self.one {
            Some((one, stream)) if *one == id => Some(stream),
            _ => self.more.get(&id).map(|stream| &**stream),
        }
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Stream<F, B>> {
        match &mut self.one {
            Some((one, stream)) if *one == id => Some(stream),
            _ => self.more.get_mut(&id).map(|stream| &mut **stream),
        }
    }

    /// Of a number that was not there.
    pub(crate) fn insert(&mut self, id: u32, stream: Box<Stream<F, B>>) {
        if self.one.is_none() {
            self.one = Some((id, stream));
        } else {
            self.more.insert(id, stream);
        }
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Box<Stream<F, B>>> {
        match self.one.take_if(|(one, _)| *one == id) {
            Some((_, stream)) => Some(stream),
            None => self.more.remove(&id),
        }
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.one.iter().map(|(id, _)| *id).chain(self.more.keys().copied()).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream<F, B>> {
        self.one.iter().map(|(_, stream)| &**stream).chain(self.more.values().map(|stream| &**stream))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream<F, B>> {
        let one = self.one.iter_mut().map(|(_, stream)| &mut **stream);
        one.chain(self.more.values_mut().map(|stream| &mut **stream))
    }
}
