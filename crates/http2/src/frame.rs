//! The wire format of frames (RFC 9113, 4 and 6): frame header, types, flags, error codes, and frames of fixed length. What frames do is
//! in `receive` and `send`.

use std::fmt;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const FRAME_HEADER_LEN: usize = 9;
/// The largest payload that we send and accept: the default and minimum of SETTINGS_MAX_FRAME_SIZE, so that we need not send that.
pub(crate) const MAX_FRAME_SIZE: usize = 16_384;
/// The initial flow-control window of streams and of the connection.
pub(crate) const DEFAULT_WINDOW_SIZE: u32 = 65_535;
pub(crate) const MAX_WINDOW_SIZE: i64 = (1 << 31) - 1;
/// Stream identifiers and window increments have 31 bits.
pub(crate) const MAX_STREAM_ID: u32 = (1 << 31) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameType {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    Unknown,
}

pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// The error code of RST_STREAM and GOAWAY frames (RFC 9113, 7), as far as this server sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// Graceful shutdown, or a response that did not need the whole request.
    NoError = 0,
    /// A frame or request that the protocol does not allow.
    ProtocolError = 1,
    /// The handler of the stream failed or panicked.
    InternalError = 2,
    /// More DATA than the flow-control window allowed, or a window that overflows.
    FlowControlError = 3,
    /// A frame for a stream that is closed or half-closed.
    StreamClosed = 5,
    /// A frame of an invalid length.
    FrameSizeError = 6,
    /// More streams than SETTINGS_MAX_CONCURRENT_STREAMS.
    RefusedStream = 7,
    /// A header block that HPACK cannot decode.
    CompressionError = 9,
    /// The abuse budget is exhausted.
    EnhanceYourCalm = 11,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) len: usize,
    pub(crate) frame_type: FrameType,
    pub(crate) flags: u8,
    /// 0 for the connection.
    pub(crate) stream_id: u32,
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorCode::NoError => "NO_ERROR",
            ErrorCode::ProtocolError => "PROTOCOL_ERROR",
            ErrorCode::InternalError => "INTERNAL_ERROR",
            ErrorCode::FlowControlError => "FLOW_CONTROL_ERROR",
            ErrorCode::StreamClosed => "STREAM_CLOSED",
            ErrorCode::FrameSizeError => "FRAME_SIZE_ERROR",
            ErrorCode::RefusedStream => "REFUSED_STREAM",
            ErrorCode::CompressionError => "COMPRESSION_ERROR",
            ErrorCode::EnhanceYourCalm => "ENHANCE_YOUR_CALM",
        })
    }
}

impl FrameType {
    fn from_byte(byte: u8) -> FrameType {
        const TYPES: [FrameType; 10] = [
            FrameType::Data,
            FrameType::Headers,
            FrameType::Priority,
            FrameType::RstStream,
            FrameType::Settings,
            FrameType::PushPromise,
            FrameType::Ping,
            FrameType::GoAway,
            FrameType::WindowUpdate,
            FrameType::Continuation,
        ];
        TYPES.get(usize::from(byte)).copied().unwrap_or(FrameType::Unknown)
    }
}

impl FrameHeader {
    pub(crate) fn parse(bytes: &[u8; FRAME_HEADER_LEN]) -> FrameHeader {
        let [a, b, c, frame_type, flags, stream_id @ ..] = *bytes;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        FrameHeader {
            len,
            frame_type: FrameType::from_byte(frame_type),
            flags,
            stream_id: u32::from_be_bytes(stream_id) & MAX_STREAM_ID,
        }
    }

    pub(crate) fn encode(self) -> [u8; FRAME_HEADER_LEN] {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [s, t, u, v] = self.stream_id.to_be_bytes();
        [a, b, c, self.frame_type as u8, self.flags, s, t, u, v]
    }

    pub(crate) fn has_flag(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

fn encode_frame<const N: usize>(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out[..FRAME_HEADER_LEN]
        .copy_from_slice(&FrameHeader { len: payload.len(), frame_type: kind, flags, stream_id: stream }.encode());
    out[FRAME_HEADER_LEN..].copy_from_slice(payload);
    out
}

/// The header of a DATA frame, whose payload is written after it.
pub(crate) fn data_header(stream_id: u32, flags: u8, len: usize) -> [u8; FRAME_HEADER_LEN] {
    FrameHeader { len, frame_type: FrameType::Data, flags, stream_id }.encode()
}

pub(crate) fn rst_stream(stream: u32, code: ErrorCode) -> [u8; FRAME_HEADER_LEN + 4] {
    encode_frame(FrameType::RstStream, 0, stream, &(code as u32).to_be_bytes())
}

pub(crate) fn window_update(stream: u32, increment: u32) -> [u8; FRAME_HEADER_LEN + 4] {
    encode_frame(FrameType::WindowUpdate, 0, stream, &increment.to_be_bytes())
}

pub(crate) fn ping(flags: u8, payload: [u8; 8]) -> [u8; FRAME_HEADER_LEN + 8] {
    encode_frame(FrameType::Ping, flags, 0, &payload)
}

pub(crate) fn settings_ack() -> [u8; FRAME_HEADER_LEN] {
    encode_frame(FrameType::Settings, flag::ACK, 0, &[])
}

pub(crate) fn goaway(last_stream_id: u32, code: ErrorCode) -> [u8; FRAME_HEADER_LEN + 8] {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last_stream_id.to_be_bytes());
    payload[4..].copy_from_slice(&(code as u32).to_be_bytes());
    encode_frame(FrameType::GoAway, 0, 0, &payload)
}

/// The first four bytes of a payload.
pub(crate) fn read_u32(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The payload of a DATA or HEADERS frame without its padding.
pub(crate) fn strip_padding(header: FrameHeader, payload: &[u8]) -> Result<&[u8], ErrorCode> {
    if !header.has_flag(flag::PADDED) {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(ErrorCode::FrameSizeError)?;
    let len = rest.len().checked_sub(usize::from(*padding)).ok_or(ErrorCode::ProtocolError)?;
    Ok(&rest[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_headers_round_trip() {
        let header =
            FrameHeader { len: 0x01_02_03, frame_type: FrameType::WindowUpdate, flags: 5, stream_id: 0x7f00_0001 };
        assert_eq!(header.encode(), [1, 2, 3, 8, 5, 0x7f, 0, 0, 1]);
        assert_eq!(FrameHeader::parse(&header.encode()), header);
        assert_eq!(FrameHeader::parse(&[0, 0, 0, 99, 0, 0xff, 0, 0, 1]).stream_id, 0x7f00_0001, "one bit is reserved");
        assert_eq!(FrameHeader::parse(&[0, 0, 0, 99, 0, 0, 0, 0, 0]).frame_type, FrameType::Unknown);
    }

    #[test]
    fn padding_is_stripped_and_validated() {
        let header = FrameHeader { len: 0, frame_type: FrameType::Data, flags: flag::PADDED, stream_id: 1 };
        assert_eq!(strip_padding(header, &[2, 7, 0, 0]), Ok(&[7][..]));
        assert_eq!(strip_padding(header, &[3, 7, 0, 0]), Ok(&[][..]));
        assert_eq!(strip_padding(header, &[4, 7, 0, 0]), Err(ErrorCode::ProtocolError));
        assert_eq!(strip_padding(header, &[]), Err(ErrorCode::FrameSizeError));
    }
}
