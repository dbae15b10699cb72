//! Long byte slices stay as they are, short ones are copied together: the chunks in which a response is written. Nothing of what the bytes are.

use std::{collections::VecDeque, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};

use crate::{Resource, Variant};

/// Slices at least this long are sent without a copy. Shorter ones are copied together: each chunk is a DATA frame of its own.
pub(crate) const MIN_SHARED: usize = 16 << 10;
/// The most that is copied together.
pub(crate) const MAX_COPIED: usize = 32 << 10;
/// The largest chunk: what the connection was given cannot be taken back when a proxy stops reading.
pub(crate) const MAX_CHUNK: usize = 64 << 10;

/// The length of the entries of all.
pub(crate) fn total_len(resources: &[Arc<Resource>], variant: Variant) -> usize {
    resources.iter().map(|resource| resource.len(variant)).sum()
}

/// How many bytes of their entries are copied.
pub(crate) fn copied_len(resources: &[Arc<Resource>], variant: Variant) -> usize {
    resources.iter().map(|resource| resource.len(variant)).filter(|len| *len < MIN_SHARED).sum()
}

/// The entries of all behind `first`.
pub(crate) fn join_entries(first: &[u8], resources: &[Arc<Resource>], variant: Variant) -> VecDeque<Bytes> {
    let mut writer = ChunkWriter::new(first, copied_len(resources, variant));
    resources.iter().for_each(|resource| writer.write_entry(resource, variant));
    writer.finish()
}

/// Joins bytes: long ones as they are, the others copied together.
pub(crate) struct ChunkWriter {
    pieces: VecDeque<Bytes>,
    open: BytesMut,
    /// How many bytes are still to be copied.
    rest: usize,
}

impl ChunkWriter {
    /// `rest`: how many of the bytes that follow are copied.
    pub(crate) fn new(first: &[u8], rest: usize) -> ChunkWriter {
        ChunkWriter { pieces: VecDeque::new(), open: BytesMut::from(first), rest }
    }

    pub(crate) fn write_entry(&mut self, resource: &Resource, variant: Variant) {
        if self.prepare_copy(resource.len(variant)) {
            resource.write(variant, &mut self.open);
        } else {
            self.pieces.push_back(resource.entry(variant));
        }
    }

    pub(crate) fn write(&mut self, piece: &Bytes) {
        if self.prepare_copy(piece.len()) {
            self.open.extend_from_slice(piece);
        } else {
            self.pieces.push_back(piece.clone());
        }
    }

    /// Makes room for the next bytes. Returns whether they are copied.
    fn prepare_copy(&mut self, len: usize) -> bool {
        let copied = len < MIN_SHARED;
        if !self.open.is_empty() && (!copied || self.open.len() + len > MAX_COPIED) {
            self.pieces.push_back(std::mem::take(&mut self.open).freeze());
        }
        if copied {
            if self.open.capacity() - self.open.len() < len {
                self.open.reserve(self.rest.min(MAX_COPIED));
            }
            self.rest -= len;
        }
        copied
    }

    pub(crate) fn finish(mut self) -> VecDeque<Bytes> {
        if !self.open.is_empty() {
            self.pieces.push_back(self.open.freeze());
        }
        self.pieces
    }
}

/// Takes the next short pieces as one chunk, or a part of a long one without a copy.
pub(crate) fn next_chunk(pieces: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let mut first = pieces.pop_front()?;
    if first.len() > MAX_CHUNK {
        pieces.push_front(first.split_off(MAX_CHUNK));
        return Some(first);
    }
    let fits = |len: usize, next: Option<&Bytes>| {
        next.is_some_and(|next| next.len() < MIN_SHARED && len + next.len() <= MAX_COPIED)
    };
    if first.len() >= MIN_SHARED || !fits(first.len(), pieces.front()) {
        return Some(first);
    }
    let rest = pieces.iter().map(Bytes::len).scan(first.len(), |sum, len| {
        *sum += len;
        (len < MIN_SHARED && *sum <= MAX_COPIED).then_some(*sum)
    });
    let mut chunk = BytesMut::with_capacity(rest.last().unwrap_or(first.len()));
    chunk.put(first);
    while fits(chunk.len(), pieces.front()) {
        chunk.extend(pieces.pop_front());
    }
    Some(chunk.freeze())
}
