//! Writes header fields by the static table or as plain literals. Keeps no table and uses no Huffman code, so the
//! peer has nothing to remember.

use bytes::{BufMut, BytesMut};

use super::table;

/// Writes `:status`; `code` has three digits, as in all of HTTP.
pub(crate) fn status(out: &mut BytesMut, code: u16) {
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
            return literal(out, b":status", &digits);
        }
    };
    integer(out, 0x80, 7, index);
}

/// Writes a field that the peer is not to index. The name is in lower case.
pub(crate) fn literal(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    match table::static_index(name) {
        Some(index) => integer(out, 0x00, 4, index),
        None => {
            out.put_u8(0x00);
            string(out, name);
        }
    }
    string(out, value);
}

fn string(out: &mut BytesMut, text: &[u8]) {
    integer(out, 0x00, 7, text.len());
    out.put_slice(text);
}

/// RFC 7541, 5.1: `kind` is what the bits of the first byte say that `prefix` leaves over.
fn integer(out: &mut BytesMut, kind: u8, prefix: u32, value: usize) {
    let mask = u8::MAX >> (8 - prefix);
    let Some(mut rest) = value.checked_sub(mask.into()) else {
        return out.put_u8(kind | value as u8);
    };
    out.put_u8(kind | mask);
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
        check(|out| integer(out, 0, 5, 10), &[0x0a]);
        check(|out| integer(out, 0, 5, 1337), &[0x1f, 0x9a, 0x0a]);
        check(|out| integer(out, 0, 8, 42), &[0x2a]);
    }

    #[test]
    fn integers_around_the_prefix() {
        check(|out| integer(out, 0x80, 7, 126), &[0xfe]);
        check(|out| integer(out, 0x80, 7, 127), &[0xff, 0x00]);
        check(|out| integer(out, 0x00, 4, 15 + 127), &[0x0f, 0x7f]);
        check(|out| integer(out, 0x00, 4, 15 + 128), &[0x0f, 0x80, 0x01]);
    }

    #[test]
    fn known_status_is_one_byte() {
        check(|out| status(out, 200), &[0x88]);
        check(|out| status(out, 500), &[0x8e]);
    }

    #[test]
    fn other_status_is_a_literal_with_the_name_by_index() {
        check(|out| status(out, 415), b"\x08\x03415");
        check(|out| status(out, 503), b"\x08\x03503");
    }

    #[test]
    fn known_name_goes_by_its_index() {
        check(|out| literal(out, b"content-type", b"a/b"), b"\x0f\x10\x03a/b");
    }

    #[test]
    fn other_name_is_written_out() {
        check(|out| literal(out, b"grpc-status", b"0"), b"\x00\x0bgrpc-status\x010");
    }

    #[test]
    fn empty_value_is_a_length_only() {
        check(|out| literal(out, b"x", b""), b"\x00\x01x\x00");
    }
}
