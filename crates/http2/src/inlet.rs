//! Bytes from the socket, cut into frames. It keeps what is left of a frame that has not come whole, and nothing else.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use crate::frame::{HEAD, Head, LARGEST, PREFACE, Reason};

/// What is read at a time. One for each thread: connections at rest have none.
const ROOM: usize = 64 << 10;

thread_local! {
    static SPARE: Cell<Option<Box<[u8; ROOM]>>> = const { Cell::new(None) };
}

pub(crate) struct Inlet {
    rest: BytesMut,
    greeted: bool,
}

/// What a read gave.
pub(crate) enum Read {
    Some,
    End,
}

impl Inlet {
    pub(crate) fn new() -> Inlet {
        Inlet { rest: BytesMut::new(), greeted: false }
    }

    /// Reads once and hands over each frame that is whole. The error of the inner result is `frame`'s, or our own.
    pub(crate) fn poll<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
        frame: impl FnMut(Head, &[u8]) -> Result<(), Reason>,
    ) -> Poll<io::Result<Result<Read, Reason>>> {
        let mut room = SPARE.take().unwrap_or_else(|| Box::new([0; ROOM]));
        let mut buffer = ReadBuf::new(&mut room[..]);
        let read = Pin::new(io).poll_read(cx, &mut buffer);
        let read = read.map_ok(|()| match buffer.filled() {
            [] => Ok(Read::End),
            bytes => self.feed(bytes, frame).map(|()| Read::Some),
        });
        SPARE.set(Some(room));
        Poll::Ready(ready!(read))
    }

    /// Throws away what lies in the socket: closed with that in it, it would take our last words from the peer.
    pub(crate) fn drain<I: AsyncRead + Unpin>(io: &mut I, cx: &mut Context<'_>) {
        let mut room = [0; 4096];
        for _ in 0..64 {
            let mut buffer = ReadBuf::new(&mut room);
            let read = Pin::new(&mut *io).poll_read(cx, &mut buffer);
            if !matches!(read, Poll::Ready(Ok(()))) || buffer.filled().is_empty() {
                return;
            }
        }
    }

    fn feed(
        &mut self,
        mut bytes: &[u8],
        mut frame: impl FnMut(Head, &[u8]) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        if self.rest.is_empty() {
            self.cut(&mut bytes, &mut frame)?;
            self.rest.extend_from_slice(bytes);
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let mut left = &rest[..];
        self.cut(&mut left, &mut frame)?;
        let done = rest.len() - left.len();
        rest.advance(done);
        if !rest.is_empty() {
            self.rest = rest;
        }
        Ok(())
    }

    fn cut(
        &mut self,
        bytes: &mut &[u8],
        frame: &mut impl FnMut(Head, &[u8]) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        if !self.greeted {
            let known = bytes.len().min(PREFACE.len());
            if bytes[..known] != PREFACE[..known] {
                return Err(Reason::Protocol);
            }
            if known < PREFACE.len() {
                return Ok(());
            }
            self.greeted = true;
            *bytes = &bytes[PREFACE.len()..];
        }
        while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
            let head = Head::parse(head);
            if head.len > LARGEST {
                return Err(Reason::FrameSize);
            }
            let Some((payload, rest)) = rest.split_at_checked(head.len) else { break };
            frame(head, payload)?;
            *bytes = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Kind;

    fn heard(inlet: &mut Inlet, bytes: &[u8]) -> Result<Vec<(Kind, Vec<u8>)>, Reason> {
        let mut out = Vec::new();
        inlet.feed(bytes, |head, payload| {
            out.push((head.kind, payload.to_vec()));
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn frames_are_found_however_the_bytes_come() {
        let mut bytes = PREFACE.to_vec();
        for payload in [&b"abc"[..], b"", b"defgh"] {
            bytes.extend(Head { len: payload.len(), kind: Kind::Data, flags: 0, stream: 1 }.bytes());
            bytes.extend(payload);
        }
        let want: Vec<_> = ["abc", "", "defgh"].map(|text| (Kind::Data, text.as_bytes().to_vec())).into();
        for step in [1, 2, 7, 10, 1000] {
            let mut inlet = Inlet::new();
            let got: Vec<_> =
                bytes.chunks(step).flat_map(|some| heard(&mut inlet, some).expect("it is fine")).collect();
            assert_eq!(got, want, "in steps of {step}");
            assert_eq!(inlet.rest.capacity(), 0, "nothing is kept at rest");
        }
    }

    #[test]
    fn another_protocol_is_told_by_its_first_bytes() {
        assert_eq!(heard(&mut Inlet::new(), b"GET / HTTP/1.1\r\n"), Err(Reason::Protocol));
        assert_eq!(heard(&mut Inlet::new(), b"\x16\x03\x01"), Err(Reason::Protocol));
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_waited_for() {
        let mut inlet = Inlet::new();
        heard(&mut inlet, PREFACE).expect("it is fine");
        assert_eq!(heard(&mut inlet, &[0, 0x40, 1, 0, 0, 0, 0, 0, 1]), Err(Reason::FrameSize));
    }
}
