//! What the two sides tell each other about themselves: ours as it is sent, the peer's as far as it matters to a server.

use bytes::{BufMut, BytesMut};

use crate::{
    Limits,
    frame::{FIRST_WINDOW, HEAD, Head, Kind, LARGEST, LARGEST_WINDOW, Reason},
};

const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The window of a stream on which nothing was sent yet, after the peer has said this. Of its other settings none matters: larger
/// frames would only make the streams of a connection wait longer for each other.
pub(crate) fn window(mut window: i64, payload: &[u8]) -> Result<i64, Reason> {
    let (entries, []) = payload.as_chunks::<6>() else { return Err(Reason::FrameSize) };
    for &[a, b, value @ ..] in entries {
        let value = u32::from_be_bytes(value);
        match u16::from_be_bytes([a, b]) {
            ENABLE_PUSH if value > 1 => return Err(Reason::Protocol),
            INITIAL_WINDOW_SIZE if i64::from(value) > LARGEST_WINDOW => return Err(Reason::FlowControl),
            INITIAL_WINDOW_SIZE => window = i64::from(value),
            MAX_FRAME_SIZE if !(LARGEST as u32..1 << 24).contains(&value) => return Err(Reason::Protocol),
            _ => {}
        }
    }
    Ok(window)
}

/// Our side of the preface: the settings, and the window of the connection.
pub(crate) fn preface(limits: &Limits) -> BytesMut {
    let settings = [
        (MAX_CONCURRENT_STREAMS, limits.streams),
        (INITIAL_WINDOW_SIZE, limits.stream_window),
        (MAX_HEADER_LIST_SIZE, limits.headers),
    ];
    let mut out = BytesMut::with_capacity(HEAD + settings.len() * 6 + HEAD + 4);
    out.put_slice(&Head { len: settings.len() * 6, kind: Kind::Settings, flags: 0, stream: 0 }.bytes());
    for (id, value) in settings {
        out.put_u16(id);
        out.put_u32(value);
    }
    if let Some(more @ 1..) = limits.connection_window.checked_sub(FIRST_WINDOW) {
        out.put_slice(&crate::frame::window_update(0, more));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(entries: &[(u16, u32)]) -> Result<i64, Reason> {
        let mut payload = BytesMut::new();
        for (id, value) in entries {
            payload.put_u16(*id);
            payload.put_u32(*value);
        }
        window(3, &payload)
    }

    #[test]
    fn what_is_wrong_has_its_code() {
        assert_eq!(applied(&[(ENABLE_PUSH, 2)]), Err(Reason::Protocol));
        assert_eq!(applied(&[(INITIAL_WINDOW_SIZE, 1 << 31)]), Err(Reason::FlowControl));
        assert_eq!(applied(&[(MAX_FRAME_SIZE, 16_383)]), Err(Reason::Protocol));
        assert_eq!(applied(&[(MAX_FRAME_SIZE, 1 << 24)]), Err(Reason::Protocol));
        assert_eq!(window(3, &[0; 7]), Err(Reason::FrameSize));
    }

    #[test]
    fn the_last_of_several_counts_and_unknown_ones_do_not() {
        assert_eq!(applied(&[(INITIAL_WINDOW_SIZE, 1), (INITIAL_WINDOW_SIZE, 7), (99, 5)]), Ok(7));
        assert_eq!(applied(&[(99, 5)]), Ok(3));
    }
}
