//! Frames as they stand on the wire: heads, codes, and those frames that are made of a few numbers. What they do is elsewhere.

use std::fmt;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Of a frame.
pub(crate) const HEAD: usize = 9;
/// The largest payload that we take: the protocol's least, which no peer has to be told.
pub(crate) const LARGEST: usize = 16_384;
/// Both windows before anything was said about them.
pub(crate) const FIRST_WINDOW: u32 = 65_535;
pub(crate) const LARGEST_WINDOW: i64 = (1 << 31) - 1;
/// Stream numbers have 31 bits.
pub(crate) const LAST_STREAM: u32 = (1 << 31) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    Priority,
    ResetStream,
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

/// Why a stream or a connection ends, as the protocol numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    None = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Compression = 9,
    EnhanceYourCalm = 11,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    /// 0: the connection.
    pub(crate) stream: u32,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::None => "nothing is wrong",
            Reason::Protocol => "a frame that may not come here",
            Reason::Internal => "an error of the server",
            Reason::FlowControl => "more data than there was room for",
            Reason::StreamClosed => "a frame for a closed stream",
            Reason::FrameSize => "a frame of a wrong size",
            Reason::RefusedStream => "too many streams",
            Reason::Compression => "headers that cannot be decoded",
            Reason::EnhanceYourCalm => "too much of what costs the peer nothing",
        })
    }
}

impl Kind {
    fn of(byte: u8) -> Kind {
        const KINDS: [Kind; 10] = [
            Kind::Data,
            Kind::Headers,
            Kind::Priority,
            Kind::ResetStream,
            Kind::Settings,
            Kind::PushPromise,
            Kind::Ping,
            Kind::GoAway,
            Kind::WindowUpdate,
            Kind::Continuation,
        ];
        KINDS.get(usize::from(byte)).copied().unwrap_or(Kind::Unknown)
    }
}

impl Head {
    pub(crate) fn parse(bytes: &[u8; HEAD]) -> Head {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        Head { len, kind: Kind::of(kind), flags, stream: u32::from_be_bytes(stream) & LAST_STREAM }
    }

    pub(crate) fn bytes(self) -> [u8; HEAD] {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind as u8, self.flags, s, t, u, v]
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

fn framed<const N: usize>(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out[..HEAD].copy_from_slice(&Head { len: payload.len(), kind, flags, stream }.bytes());
    out[HEAD..].copy_from_slice(payload);
    out
}

pub(crate) fn reset(stream: u32, reason: Reason) -> [u8; HEAD + 4] {
    framed(Kind::ResetStream, 0, stream, &(reason as u32).to_be_bytes())
}

pub(crate) fn window_update(stream: u32, more: u32) -> [u8; HEAD + 4] {
    framed(Kind::WindowUpdate, 0, stream, &more.to_be_bytes())
}

pub(crate) fn ping(flags: u8, payload: [u8; 8]) -> [u8; HEAD + 8] {
    framed(Kind::Ping, flags, 0, &payload)
}

pub(crate) fn settings_ack() -> [u8; HEAD] {
    framed(Kind::Settings, flag::ACK, 0, &[])
}

pub(crate) fn go_away(last: u32, reason: Reason) -> [u8; HEAD + 8] {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last.to_be_bytes());
    payload[4..].copy_from_slice(&(reason as u32).to_be_bytes());
    framed(Kind::GoAway, 0, 0, &payload)
}

/// The number at the start of a payload.
pub(crate) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// A payload without its padding.
pub(crate) fn unpadded(head: Head, payload: &[u8]) -> Result<&[u8], Reason> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(Reason::FrameSize)?;
    let len = rest.len().checked_sub(usize::from(*padding)).ok_or(Reason::Protocol)?;
    Ok(&rest[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let head = Head { len: 0x01_02_03, kind: Kind::WindowUpdate, flags: 5, stream: 0x7f00_0001 };
        assert_eq!(head.bytes(), [1, 2, 3, 8, 5, 0x7f, 0, 0, 1]);
        assert_eq!(Head::parse(&head.bytes()), head);
        assert_eq!(Head::parse(&[0, 0, 0, 99, 0, 0xff, 0, 0, 1]).stream, 0x7f00_0001, "one bit is reserved");
        assert_eq!(Head::parse(&[0, 0, 0, 99, 0, 0, 0, 0, 0]).kind, Kind::Unknown);
    }

    #[test]
    fn padding_is_taken_off() {
        let head = Head { len: 0, kind: Kind::Data, flags: flag::PADDED, stream: 1 };
        assert_eq!(unpadded(head, &[2, 7, 0, 0]), Ok(&[7][..]));
        assert_eq!(unpadded(head, &[3, 7, 0, 0]), Ok(&[][..]));
        assert_eq!(unpadded(head, &[4, 7, 0, 0]), Err(Reason::Protocol));
        assert_eq!(unpadded(head, &[]), Err(Reason::FrameSize));
    }
}
