//! SETTINGS: encoding of ours, and decoding of the peer's as far as they matter to a server.

use bytes::{BufMut, BytesMut};

use crate::{
    ConnectionConfig,
    frame::{
        DEFAULT_WINDOW_SIZE, ErrorCode, FRAME_HEADER_LEN, FrameHeader, FrameType, MAX_FRAME_SIZE, MAX_WINDOW_SIZE,
    },
};

const SETTINGS_ENABLE_PUSH: u16 = 2;
const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
const SETTINGS_MAX_FRAME_SIZE: u16 = 5;
const SETTINGS_MAX_HEADER_LIST_SIZE: u16 = 6;

/// SETTINGS_INITIAL_WINDOW_SIZE after a SETTINGS frame with this payload; `window` before it. The other settings are validated and
/// ignored: larger frames would only make the streams of a connection wait longer for each other.
pub(crate) fn initial_window_size(mut window: i64, payload: &[u8]) -> Result<i64, ErrorCode> {
    let (entries, []) = payload.as_chunks::<6>() else { return Err(ErrorCode::FrameSizeError) };
    for &[a, b, value @ ..] in entries {
        let value = u32::from_be_bytes(value);
        match u16::from_be_bytes([a, b]) {
            SETTINGS_ENABLE_PUSH if value > 1 => return Err(ErrorCode::ProtocolError),
            SETTINGS_INITIAL_WINDOW_SIZE if i64::from(value) > MAX_WINDOW_SIZE => {
                return Err(ErrorCode::FlowControlError);
            }
            SETTINGS_INITIAL_WINDOW_SIZE => window = i64::from(value),
            SETTINGS_MAX_FRAME_SIZE if !(MAX_FRAME_SIZE as u32..1 << 24).contains(&value) => {
                return Err(ErrorCode::ProtocolError);
            }
            _ => {}
        }
    }
    Ok(window)
}

/// The server connection preface: SETTINGS, and WINDOW_UPDATE for the connection window.
pub(crate) fn encode_preface(config: &ConnectionConfig) -> BytesMut {
    let settings = [
        (SETTINGS_MAX_CONCURRENT_STREAMS, config.max_concurrent_streams),
        (SETTINGS_INITIAL_WINDOW_SIZE, config.stream_window),
        (SETTINGS_MAX_HEADER_LIST_SIZE, config.max_header_list_size),
    ];
    let mut out = BytesMut::with_capacity(FRAME_HEADER_LEN + settings.len() * 6 + FRAME_HEADER_LEN + 4);
    out.put_slice(
        &FrameHeader { len: settings.len() * 6, frame_type: FrameType::Settings, flags: 0, stream_id: 0 }.encode(),
    );
    for (id, value) in settings {
        out.put_u16(id);
        out.put_u32(value);
    }
    if let Some(increment @ 1..) = config.connection_window.checked_sub(DEFAULT_WINDOW_SIZE) {
        out.put_slice(&crate::frame::window_update(0, increment));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(entries: &[(u16, u32)]) -> Result<i64, ErrorCode> {
        let mut payload = BytesMut::new();
        for (id, value) in entries {
            payload.put_u16(*id);
            payload.put_u32(*value);
        }
        initial_window_size(3, &payload)
    }

    #[test]
    fn invalid_settings_have_the_error_codes_of_the_rfc() {
        assert_eq!(apply(&[(SETTINGS_ENABLE_PUSH, 2)]), Err(ErrorCode::ProtocolError));
        assert_eq!(apply(&[(SETTINGS_INITIAL_WINDOW_SIZE, 1 << 31)]), Err(ErrorCode::FlowControlError));
        assert_eq!(apply(&[(SETTINGS_MAX_FRAME_SIZE, 16_383)]), Err(ErrorCode::ProtocolError));
        assert_eq!(apply(&[(SETTINGS_MAX_FRAME_SIZE, 1 << 24)]), Err(ErrorCode::ProtocolError));
        assert_eq!(initial_window_size(3, &[0; 7]), Err(ErrorCode::FrameSizeError));
    }

    #[test]
    fn the_last_value_of_a_setting_counts_and_unknown_settings_are_ignored() {
        assert_eq!(apply(&[(SETTINGS_INITIAL_WINDOW_SIZE, 1), (SETTINGS_INITIAL_WINDOW_SIZE, 7), (99, 5)]), Ok(7));
        assert_eq!(apply(&[(99, 5)]), Ok(3));
    }
}
