//! What goes to the socket, in order: small frames side by side, shared slices as they are. It does not know what they say.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// So few bytes are copied together: the system takes one slice for less than several, by a call that is made for sockets.
const SHORT: usize = 4 << 10;

thread_local! {
    static TOGETHER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Slices in one write.
const SLICES: usize = 64;
/// Room for a frame's head and the one after it.
const SMALL: usize = 30;
/// Bytes that wait before answers are asked for more. Nearly all of them are shared.
const FULL: usize = 256 << 10;
/// Bytes of small frames that wait before no more is read that they might answer.
const CROWDED: usize = 16 << 10;

#[derive(Default)]
pub(crate) struct Outlet {
    pieces: VecDeque<Piece>,
    len: usize,
    /// Of which these are small frames.
    small: usize,
    /// What was written is not yet flushed.
    warm: bool,
}

enum Piece {
    Small { bytes: [u8; SMALL], from: u8, to: u8 },
    Shared(Bytes),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Small { bytes, from, to } => &bytes[usize::from(*from)..usize::from(*to)],
            Piece::Shared(bytes) => bytes,
        }
    }

    fn advance(&mut self, by: usize) {
        match self {
            // No more than there are, so it fits.
            Piece::Small { from, .. } => *from += by as u8,
            Piece::Shared(bytes) => bytes.advance(by),
        }
    }
}

impl Outlet {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= FULL
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.small >= CROWDED
    }

    /// A frame of a few bytes.
    pub(crate) fn small(&mut self, frame: &[u8]) {
        self.len += frame.len();
        self.small += frame.len();
        if let Some(Piece::Small { bytes, to, .. }) = self.pieces.back_mut()
            && let Some(room) = bytes.get_mut(usize::from(*to)..usize::from(*to) + frame.len())
        {
            room.copy_from_slice(frame);
            *to += frame.len() as u8;
            return;
        }
        let mut bytes = [0; SMALL];
        bytes[..frame.len()].copy_from_slice(frame);
        self.pieces.push_back(Piece::Small { bytes, from: 0, to: frame.len() as u8 });
    }

    pub(crate) fn shared(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.pieces.push_back(Piece::Shared(bytes));
        }
    }

    /// Until everything is with the socket.
    pub(crate) fn poll<I: AsyncWrite + Unpin>(&mut self, io: &mut I, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.len > 0 {
            let written = if self.len <= SHORT { self.poll_short(io, cx) } else { self.poll_slices(io, cx) };
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        if self.warm {
            ready!(Pin::new(io).poll_flush(cx))?;
            self.warm = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_short<I: AsyncWrite + Unpin>(&self, io: &mut I, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        TOGETHER.with_borrow_mut(|bytes| {
            bytes.clear();
            self.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.bytes()));
            Pin::new(io).poll_write(cx, bytes)
        })
    }

    fn poll_slices<I: AsyncWrite + Unpin>(&self, io: &mut I, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let some = slices.iter_mut().zip(&self.pieces).map(|(slice, piece)| *slice = IoSlice::new(piece.bytes()));
        let some = some.count();
        Pin::new(io).poll_write_vectored(cx, &slices[..some])
    }

    fn advance(&mut self, mut written: usize) {
        self.len -= written;
        self.warm = true;
        while let Some(first) = self.pieces.front_mut().filter(|_| written > 0) {
            let part = written.min(first.bytes().len());
            if matches!(first, Piece::Small { .. }) {
                self.small -= part;
            }
            first.advance(part);
            if first.bytes().is_empty() {
                self.pieces.pop_front();
            }
            written -= part;
        }
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn everything_arrives_in_order_through_a_narrow_pipe() {
        let (mut near, mut far) = tokio::io::duplex(7);
        let mut outlet = Outlet::default();
        let mut want = Vec::new();
        for n in 0..200u8 {
            let frame = vec![n; usize::from(n % 18) + 1];
            want.extend(&frame);
            if n % 3 == 0 { outlet.shared(frame.into()) } else { outlet.small(&frame) }
        }
        assert_eq!(outlet.len(), want.len());
        let reader = tokio::spawn(async move {
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.expect("it is read");
            got
        });
        std::future::poll_fn(|cx| outlet.poll(&mut near, cx)).await.expect("it is written");
        assert_eq!((outlet.len, outlet.small, outlet.pieces.capacity()), (0, 0, 0));
        drop(near);
        assert_eq!(reader.await.expect("it ends"), want);
    }
}
