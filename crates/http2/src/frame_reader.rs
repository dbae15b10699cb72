//! The frame reader: splits the bytes of the socket into frames. It keeps an incomplete frame, and no other buffer.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use crate::frame::{ErrorCode, FRAME_HEADER_LEN, FrameHeader, MAX_FRAME_SIZE, PREFACE};

/// Bytes per read. The buffer belongs to the thread, so that idle connections have none.
const READ_BUFFER_SIZE: usize = 64 << 10;

thread_local! {
    static READ_BUFFER: Cell<Option<Box<[u8; READ_BUFFER_SIZE]>>> = const { Cell::new(None) };
}

pub(crate) struct FrameReader {
    /// The start of a frame whose end was not received yet.
    partial: BytesMut,
    preface_received: bool,
}

pub(crate) enum ReadOutcome {
    Data,
    Eof,
}

impl FrameReader {
    pub(crate) fn new() -> FrameReader {
        FrameReader { partial: BytesMut::new(), preface_received: false }
    }

    /// Of an incomplete frame.
    pub(crate) fn partial_len(&self) -> usize {
        self.partial.len()
    }

    /// Reads once and calls `frame` for each complete frame. The inner error is a connection error, of `frame` or of the framing.
    pub(crate) fn poll_frames<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
        frame: impl FnMut(FrameHeader, &[u8]) -> Result<(), ErrorCode>,
    ) -> Poll<io::Result<Result<ReadOutcome, ErrorCode>>> {
        let mut storage = READ_BUFFER.take().unwrap_or_else(|| Box::new([0; READ_BUFFER_SIZE]));
        let mut buffer = ReadBuf::new(&mut storage[..]);
        let read = Pin::new(io).poll_read(cx, &mut buffer);
        let read = read.map_ok(|()| match buffer.filled() {
            [] => Ok(ReadOutcome::Eof),
            bytes => self.feed(bytes, frame).map(|()| ReadOutcome::Data),
        });
        READ_BUFFER.set(Some(storage));
        Poll::Ready(ready!(read))
    }

    /// Discards what the peer has sent. Closing a TCP socket with unread data sends RST, which may overtake our GOAWAY.
    pub(crate) fn discard_unread<I: AsyncRead + Unpin>(io: &mut I, cx: &mut Context<'_>) {
        let mut storage = [0; 4096];
        for _ in 0..64 {
            let mut buffer = ReadBuf::new(&mut storage);
            let read = Pin::new(&mut *io).poll_read(cx, &mut buffer);
            if !matches!(read, Poll::Ready(Ok(()))) || buffer.filled().is_empty() {
                return;
            }
        }
    }

    fn feed(
        &mut self,
        mut bytes: &[u8],
        mut frame: impl FnMut(FrameHeader, &[u8]) -> Result<(), ErrorCode>,
    ) -> Result<(), ErrorCode> {
        if self.partial.is_empty() {
            self.parse_frames(&mut bytes, &mut frame)?;
            self.partial.extend_from_slice(bytes);
            return Ok(());
        }
        let mut partial = std::mem::take(&mut self.partial);
        partial.extend_from_slice(bytes);
        let mut left = &partial[..];
        self.parse_frames(&mut left, &mut frame)?;
        let done = partial.len() - left.len();
        partial.advance(done);
        if !partial.is_empty() {
            self.partial = partial;
        }
        Ok(())
    }

    fn parse_frames(
        &mut self,
        bytes: &mut &[u8],
        frame: &mut impl FnMut(FrameHeader, &[u8]) -> Result<(), ErrorCode>,
    ) -> Result<(), ErrorCode> {
        if !self.preface_received {
            let known = bytes.len().min(PREFACE.len());
            if bytes[..known] != PREFACE[..known] {
                return Err(ErrorCode::ProtocolError);
            }
            if known < PREFACE.len() {
                return Ok(());
            }
            self.preface_received = true;
            *bytes = &bytes[PREFACE.len()..];
        }
        while let Some((header, partial)) = bytes.split_first_chunk::<FRAME_HEADER_LEN>() {
            let header = FrameHeader::parse(header);
            if header.len > MAX_FRAME_SIZE {
                return Err(ErrorCode::FrameSizeError);
            }
            let Some((payload, partial)) = partial.split_at_checked(header.len) else { break };
            frame(header, payload)?;
            *bytes = partial;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameType;

    fn frames_of(reader: &mut FrameReader, bytes: &[u8]) -> Result<Vec<(FrameType, Vec<u8>)>, ErrorCode> {
        let mut out = Vec::new();
        reader.feed(bytes, |header, payload| {
            out.push((header.frame_type, payload.to_vec()));
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn frames_are_parsed_from_reads_of_any_size() {
        let mut bytes = PREFACE.to_vec();
        for payload in [&b"abc"[..], b"", b"defgh"] {
            bytes.extend(
                FrameHeader { len: payload.len(), frame_type: FrameType::Data, flags: 0, stream_id: 1 }.encode(),
            );
            bytes.extend(payload);
        }
        let want: Vec<_> = ["abc", "", "defgh"].map(|text| (FrameType::Data, text.as_bytes().to_vec())).into();
        for step in [1, 2, 7, 10, 1000] {
            let mut reader = FrameReader::new();
            let got: Vec<_> =
                bytes.chunks(step).flat_map(|some| frames_of(&mut reader, some).expect("valid frames")).collect();
            assert_eq!(got, want, "in steps of {step}");
            assert_eq!(reader.partial.capacity(), 0, "no buffer at rest");
        }
    }

    #[test]
    fn rejects_another_protocol_by_its_first_bytes() {
        assert_eq!(frames_of(&mut FrameReader::new(), b"GET / HTTP/1.1\r\n"), Err(ErrorCode::ProtocolError));
        assert_eq!(frames_of(&mut FrameReader::new(), b"\x16\x03\x01"), Err(ErrorCode::ProtocolError));
    }

    #[test]
    fn rejects_an_oversized_frame_before_its_payload() {
        let mut reader = FrameReader::new();
        frames_of(&mut reader, PREFACE).expect("valid frames");
        assert_eq!(frames_of(&mut reader, &[0, 0x40, 1, 0, 0, 0, 0, 0, 1]), Err(ErrorCode::FrameSizeError));
    }
}
