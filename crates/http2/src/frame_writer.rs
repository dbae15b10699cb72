//! The frame writer: a queue of encoded bytes for the socket. Short frames are copied into inline segments, payloads are shared slices;
//! what is queued goes out in one system call where possible. Knows nothing of frame types.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// Up to this length segments are copied into one buffer: one `send` of a slice costs the kernel less than `writev` of several.
const COALESCE_MAX: usize = 4 << 10;

thread_local! {
    static COALESCE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Slices of one vectored write.
const MAX_SLICES: usize = 64;
/// Room for a DATA frame header and a short frame after it.
const INLINE_CAPACITY: usize = 30;
/// Queued bytes at which streams are no longer polled for data. Nearly all of them are shared slices, not copies.
const HIGH_WATER_MARK: usize = 256 << 10;
/// Queued bytes of inline frames at which reading stops. Most are replies (SETTINGS and PING acknowledgements, RST_STREAM): a peer that
/// provokes them without reading them must not fill our memory.
const MAX_INLINE_BACKLOG: usize = 16 << 10;

#[derive(Default)]
pub(crate) struct FrameWriter {
    queue: VecDeque<Segment>,
    len: usize,
    /// The part of `len` in inline segments.
    inline_len: usize,
    /// Written and not flushed, which matters to an `io` with buffers of its own, such as TLS.
    needs_flush: bool,
}

enum Segment {
    Inline { bytes: [u8; INLINE_CAPACITY], from: u8, to: u8 },
    Shared(Bytes),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Inline { bytes, from, to } => &bytes[usize::from(*from)..usize::from(*to)],
            Segment::Shared(bytes) => bytes,
        }
    }

    fn advance(&mut self, by: usize) {
        match self {
            // At most INLINE_CAPACITY.
            Segment::Inline { from, .. } => *from += by as u8,
            Segment::Shared(bytes) => bytes.advance(by),
        }
    }
}

impl FrameWriter {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= HIGH_WATER_MARK
    }

    pub(crate) fn has_inline_backlog(&self) -> bool {
        self.inline_len >= MAX_INLINE_BACKLOG
    }

    /// A frame, or a frame header, of at most `INLINE_CAPACITY` bytes.
    pub(crate) fn push_inline(&mut self, frame: &[u8]) {
        self.len += frame.len();
        self.inline_len += frame.len();
        if let Some(Segment::Inline { bytes, to, .. }) = self.queue.back_mut()
            && let Some(room) = bytes.get_mut(usize::from(*to)..usize::from(*to) + frame.len())
        {
            room.copy_from_slice(frame);
            *to += frame.len() as u8;
            return;
        }
        let mut bytes = [0; INLINE_CAPACITY];
        bytes[..frame.len()].copy_from_slice(frame);
        self.queue.push_back(Segment::Inline { bytes, from: 0, to: frame.len() as u8 });
    }

    pub(crate) fn push_shared(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.queue.push_back(Segment::Shared(bytes));
        }
    }

    /// Writes until the queue is empty or the socket would block.
    pub(crate) fn poll_write<I: AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.len > 0 {
            let written = if self.len <= COALESCE_MAX {
                self.poll_write_coalesced(io, cx)
            } else {
                self.poll_write_vectored(io, cx)
            };
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        if self.needs_flush {
            ready!(Pin::new(io).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_coalesced<I: AsyncWrite + Unpin>(&self, io: &mut I, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        COALESCE_BUFFER.with_borrow_mut(|bytes| {
            bytes.clear();
            self.queue.iter().for_each(|segment| bytes.extend_from_slice(segment.bytes()));
            Pin::new(io).poll_write(cx, bytes)
        })
    }

    fn poll_write_vectored<I: AsyncWrite + Unpin>(&self, io: &mut I, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let filled = slices.iter_mut().zip(&self.queue).map(|(slice, segment)| *slice = IoSlice::new(segment.bytes()));
        let filled = filled.count();
        Pin::new(io).poll_write_vectored(cx, &slices[..filled])
    }

    fn advance(&mut self, mut written: usize) {
        self.len -= written;
        self.needs_flush = true;
        while let Some(first) = self.queue.front_mut().filter(|_| written > 0) {
            let part = written.min(first.bytes().len());
            if matches!(first, Segment::Inline { .. }) {
                self.inline_len -= part;
            }
            first.advance(part);
            if first.bytes().is_empty() {
                self.queue.pop_front();
            }
            written -= part;
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn segments_arrive_in_order_through_partial_writes() {
        let (mut near, mut far) = tokio::io::duplex(7);
        let mut writer = FrameWriter::default();
        let mut want = Vec::new();
        for n in 0..200u8 {
            let frame = vec![n; usize::from(n % 18) + 1];
            want.extend(&frame);
            if n % 3 == 0 { writer.push_shared(frame.into()) } else { writer.push_inline(&frame) }
        }
        assert_eq!(writer.len(), want.len());
        let reader = tokio::spawn(async move {
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.expect("read");
            got
        });
        std::future::poll_fn(|cx| writer.poll_write(&mut near, cx)).await.expect("written");
        assert_eq!((writer.len, writer.inline_len, writer.queue.capacity()), (0, 0, 0));
        drop(near);
        assert_eq!(reader.await.expect("reader ends"), want);
    }
}
