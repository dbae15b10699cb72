//! The Huffman code of RFC 7541, appendix B: decoding only. The encoder sends plain strings.

use super::decoder::DecodeError;

/// Bits in the code of each octet, and at the end in that of EOS. The code is canonical (shorter codes come first, those of one length
/// in the order of their octets), so that the lengths define it.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The longest padding that RFC 7541, 5.2 allows.
const MAX_PADDING_BITS: u32 = 7;

/// Appends the decode_to_vec octets to `out`.
pub(super) fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    out.reserve(code.len() * 8 / 5);
    let mut code = code.iter();
    // The next bits of the code, from the highest down, and how many there are.
    let (mut bits, mut count) = (0_u64, 0_u32);
    loop {
        while count <= 32
            && let Some(&byte) = code.next()
        {
            bits |= u64::from(byte) << (56 - count);
            count += 8;
        }
        // Missing bits are read as ones, which is EOS, the longest code: it is longer than the bits that are left.
        let window = ((bits | (u64::MAX >> count)) >> 32) as u32;
        let symbol = ORDERED[rank(window)];
        let length = u32::from(LENGTHS[usize::from(symbol)]);
        if length > count {
            return if count <= MAX_PADDING_BITS && window == u32::MAX { Ok(()) } else { Err(DecodeError::Huffman) };
        }
        out.push(u8::try_from(symbol).map_err(|_| DecodeError::Huffman)?);
        bits <<= length;
        count -= length;
    }
}

/// The index in `ORDERED` of the symbol that `window` begins with.
fn rank(window: u32) -> usize {
    let rank = usize::from(BY_BYTE[(window >> 24) as usize]);
    if rank < SHORT_CODES { rank } else { STARTS.partition_point(|&start| start <= window) - 1 }
}

/// The number of codes of at most 8 bits; nearly all text in headers consists of them.
const SHORT_CODES: usize = 74;

/// Symbols in the order of their codes.
static ORDERED: [u16; 257] = ordered();

/// Their codes, each with zeros after it up to 32 bits. The first is 0, so no window is below all of them.
static STARTS: [u32; 257] = starts();

/// The rank of the code that a byte begins with, or `SHORT` for a longer one.
static BY_BYTE: [u8; 256] = by_byte();

const fn ordered() -> [u16; 257] {
    let (mut symbols, mut rank, mut length) = ([0; 257], 0, 5);
    while length <= 30 {
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] == length {
                symbols[rank] = symbol as u16;
                rank += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
}

const fn starts() -> [u32; 257] {
    let (symbols, mut starts, mut rank) = (ordered(), [0; 257], 1);
    while rank < 257 {
        starts[rank] = starts[rank - 1] + (1 << (32 - LENGTHS[symbols[rank - 1] as usize]));
        rank += 1;
    }
    starts
}

const fn by_byte() -> [u8; 256] {
    let (starts, mut ranks, mut byte, mut rank) = (starts(), [0; 256], 0, 0);
    while byte < 256 {
        if rank < SHORT_CODES && starts[rank + 1] >> 24 <= byte as u32 {
            rank += 1;
        }
        ranks[byte] = rank as u8;
        byte += 1;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    const EOS: u16 = 256;

    /// Encodes the symbols, padded with ones to a whole byte.
    fn encode(symbols: &[u16]) -> Vec<u8> {
        let mut bits = Vec::new();
        for symbol in symbols {
            let start = STARTS[ORDERED.iter().position(|s| s == symbol).unwrap()];
            bits.extend((0..LENGTHS[usize::from(*symbol)]).map(|i| start >> (31 - i) & 1));
        }
        bits.resize(bits.len().next_multiple_of(8), 1);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |acc, bit| acc << 1 | *bit as u8)).collect()
    }

    fn decode_to_vec(code: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        decode(code, &mut out).map(|()| out)
    }

    #[track_caller]
    fn check_rejected(code: &[u8]) {
        assert_eq!(decode_to_vec(code), Err(DecodeError::Huffman));
    }

    #[test]
    fn each_octet_round_trips() {
        for octet in 0..=255_u8 {
            assert_eq!(decode_to_vec(&encode(&[octet.into()])), Ok(vec![octet]));
        }
    }

    #[test]
    fn all_octets_round_trip_in_one_string() {
        let octets: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        let symbols: Vec<u16> = octets.iter().map(|&octet| octet.into()).collect();
        assert_eq!(decode_to_vec(&encode(&symbols)), Ok(octets));
    }

    #[test]
    fn codes_are_those_of_appendix_b() {
        for (symbol, length, code) in [
            (0, 13, 0x1ff8),
            (u16::from(b'0'), 5, 0x0),
            (u16::from(b' '), 6, 0x14),
            (u16::from(b':'), 7, 0x5c),
            (u16::from(b'Z'), 8, 0xfd),
            (u16::from(b'!'), 10, 0x3f8),
            (u16::from(b'\\'), 19, 0x7fff0),
            (200, 26, 0x3ff_ffe2),
            (249, 28, 0xfff_fffe),
            (EOS, 30, 0x3fff_ffff),
        ] {
            let start = STARTS[ORDERED.iter().position(|&s| s == symbol).unwrap()];
            assert_eq!((LENGTHS[usize::from(symbol)], start >> (32 - length)), (length, code), "symbol {symbol}");
        }
    }

    #[test]
    fn short_codes_are_found_by_their_first_byte() {
        for (byte, rank) in BY_BYTE.iter().enumerate() {
            let found = STARTS.partition_point(|&start| start <= (byte as u32) << 24) - 1;
            assert_eq!(usize::from(*rank), found.min(SHORT_CODES), "byte {byte:#x}");
        }
        assert_eq!(LENGTHS.iter().filter(|&&length| length <= 8).count(), SHORT_CODES);
    }

    #[test]
    fn empty_code_is_an_empty_string() {
        assert_eq!(decode_to_vec(b""), Ok(vec![]));
    }

    #[test]
    fn padding_of_seven_bits_is_accepted() {
        let code = encode(&[u16::from(b'a'); 5]);
        assert_eq!(code.last(), Some(&0xff));
        assert_eq!(decode_to_vec(&code).unwrap(), b"aaaaa");
    }

    #[test]
    fn padding_of_a_whole_byte_is_rejected() {
        check_rejected(&[0xff]);
        check_rejected(&[encode(&[u16::from(b'a')])[0], 0xff]);
        check_rejected(&[0xff, 0xff, 0xff]);
    }

    #[test]
    fn padding_that_is_not_ones_is_rejected() {
        check_rejected(&[0b0001_1000]);
        check_rejected(&[0b0001_1110]);
    }

    #[test]
    fn eos_is_rejected() {
        check_rejected(&[0xff; 4]);
        check_rejected(&encode(&[u16::from(b'a'), EOS]));
        check_rejected(&encode(&[EOS, u16::from(b'a')]));
    }

    #[test]
    fn truncated_code_is_rejected() {
        let code = encode(&[10]);
        check_rejected(&code[..code.len() - 1]);
    }
}
