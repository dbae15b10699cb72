//! Encodes header fields by the static table or as literals without indexing. It has no dynamic table and uses no Huffman code, so
//! that neither side keeps state.

use bytes::{BufMut, BytesMut};

use super::table;

/// Encodes `:status`; `code` has three digits, as in all of HTTP.
pub(crate) fn encode_status(out: &mut BytesMut, code: u16) {
    let index = match code {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digits = [code / 100, code / 10, code].map(|digit| b'0' + (digit % 10) as u8);
            return encode_literal(out, b":status", &digits);
        }
    };
    encode_integer(out, 0x80, 7, index);
}

/// Encodes a literal field without indexing. The name is in lower case.
pub(crate) fn encode_literal(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    match table::static_index(name) {
        Some(index) => encode_integer(out, 0x00, 4, index),
        None => {
            out.put_u8(0x00);
            encode_string(out, name);
        }
    }
    encode_string(out, value);
}

fn encode_string(out: &mut BytesMut, text: &[u8]) {
    encode_integer(out, 0x00, 7, text.len());
    out.put_slice(text);
}

/// RFC 7541, 5.1: `pattern` fills the bits of the first byte above the `prefix`.
fn encode_integer(out: &mut BytesMut, pattern: u8, prefix: u32, value: usize) {
    let mask = u8::MAX >> (8 - prefix);
    let Some(mut rest) = value.checked_sub(mask.into()) else {
        return out.put_u8(pattern | value as u8);
    };
    out.put_u8(pattern | mask);
    while rest >= 0x80 {
        out.put_u8(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl FnOnce(&mut BytesMut), expected: &[u8]) {
        let mut out = BytesMut::new();
        write(&mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn integers_of_appendix_c_1() {
        check(|out| encode_integer(out, 0, 5, 10), &[0x0a]);
        check(|out| encode_integer(out, 0, 5, 1337), &[0x1f, 0x9a, 0x0a]);
        check(|out| encode_integer(out, 0, 8, 42), &[0x2a]);
    }

    #[test]
    fn integers_around_the_prefix() {
        check(|out| encode_integer(out, 0x80, 7, 126), &[0xfe]);
        check(|out| encode_integer(out, 0x80, 7, 127), &[0xff, 0x00]);
        check(|out| encode_integer(out, 0x00, 4, 15 + 127), &[0x0f, 0x7f]);
        check(|out| encode_integer(out, 0x00, 4, 15 + 128), &[0x0f, 0x80, 0x01]);
    }

    #[test]
    fn status_of_the_static_table_is_one_byte() {
        check(|out| encode_status(out, 200), &[0x88]);
        check(|out| encode_status(out, 500), &[0x8e]);
    }

    #[test]
    fn other_status_is_a_literal_with_the_name_by_index() {
        check(|out| encode_status(out, 415), b"\x08\x03415");
        check(|out| encode_status(out, 503), b"\x08\x03503");
    }

    #[test]
    fn name_of_the_static_table_is_an_index() {
        check(|out| encode_literal(out, b"content-type", b"a/b"), b"\x0f\x10\x03a/b");
    }

    #[test]
    fn other_name_is_a_literal() {
        check(|out| encode_literal(out, b"grpc-status", b"0"), b"\x00\x0bgrpc-status\x010");
    }

    #[test]
    fn empty_value_is_a_length_only() {
        check(|out| encode_literal(out, b"x", b""), b"\x00\x01x\x00");
    }
}
