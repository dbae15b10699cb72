//! The examples of RFC 7541, appendix C, malformed blocks, and random blocks.

use bytes::BytesMut;

use super::decoder::UnreadBlock;
use super::table::Table;
use super::{DecodeOutcome, Decoder, decoder::DecodeError, encode_literal, encode_status};

/// Larger than any header list here.
const UNLIMITED: usize = 1 << 16;

type Fields<'a> = &'a [(&'a str, &'a str)];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn with_limit(limit: usize) -> Decoder {
    Decoder { table: Table::with_limit(limit) }
}

fn text(name: &[u8], value: &[u8]) -> String {
    format!("{}: {}", name.escape_ascii(), value.escape_ascii())
}

fn lines(fields: Fields<'_>) -> Vec<String> {
    fields.iter().map(|(name, value)| text(name.as_bytes(), value.as_bytes())).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8], max_size: usize) -> (Result<DecodeOutcome, DecodeError>, Vec<String>) {
    let mut fields = Vec::new();
    let result = decoder.decode(block, max_size, |name, value| fields.push(text(name, value)));
    (result, fields)
}

/// Checks the fields of a block, and the dynamic table after it.
#[track_caller]
fn check(decoder: &mut Decoder, hex: &str, fields: Fields<'_>, table: Fields<'_>) {
    assert_eq!(decode(decoder, &bytes(hex), UNLIMITED), (Ok(DecodeOutcome::Complete), lines(fields)));
    let entries: Vec<_> = (62..).map_while(|index| decoder.table.field(index).ok()).collect();
    assert_eq!(entries.into_iter().map(|(name, value)| text(name, value)).collect::<Vec<_>>(), lines(table));
}

#[track_caller]
fn check_rejected(hex: &str, error: DecodeError) {
    assert_eq!(decode(&mut Decoder::new(), &bytes(hex), UNLIMITED).0, Err(error));
}

#[test]
fn integers_of_appendix_c_1() {
    for (hex, prefix, value) in [("0a", 5, 10), ("1f9a0a", 5, 1337), ("2a", 8, 42), ("ea", 5, 10)] {
        let block = bytes(hex);
        let mut input = UnreadBlock { rest: &block };
        assert_eq!(input.integer(prefix), Ok(value));
        assert_eq!(input.rest, b"");
    }
}

#[test]
fn literal_with_indexing_of_appendix_c_2_1() {
    let field = [("custom-key", "custom-header")];
    check(&mut Decoder::new(), "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", &field, &field);
}

#[test]
fn literal_without_indexing_of_appendix_c_2_2() {
    check(&mut Decoder::new(), "040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")], &[]);
}

#[test]
fn literal_never_indexed_of_appendix_c_2_3() {
    check(&mut Decoder::new(), "1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")], &[]);
}

#[test]
fn indexed_of_appendix_c_2_4() {
    check(&mut Decoder::new(), "82", &[(":method", "GET")], &[]);
}

#[track_caller]
fn check_requests(blocks: [&str; 3]) {
    let decoder = &mut Decoder::new();
    let authority = (":authority", "www.example.com");
    let no_cache = ("cache-control", "no-cache");
    let custom = ("custom-key", "custom-value");
    let get = (":method", "GET");
    let (http, https) = ((":scheme", "http"), (":scheme", "https"));
    check(decoder, blocks[0], &[get, http, (":path", "/"), authority], &[authority]);
    check(decoder, blocks[1], &[get, http, (":path", "/"), authority, no_cache], &[no_cache, authority]);
    let fields = [get, https, (":path", "/index.html"), authority, custom];
    check(decoder, blocks[2], &fields, &[custom, no_cache, authority]);
}

#[test]
fn plain_requests_of_appendix_c_3() {
    check_requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn huffman_requests_of_appendix_c_4() {
    check_requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

#[track_caller]
fn check_responses(blocks: [&str; 3]) {
    let decoder = &mut with_limit(256);
    let private = ("cache-control", "private");
    let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    let later = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
    let location = ("location", "https://www.example.com");
    let gzip = ("content-encoding", "gzip");
    let cookie = ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
    let status = |code| (":status", code);
    let all = [status("302"), private, date, location];
    check(decoder, blocks[0], &all, &[location, date, private, status("302")]);
    // The status of the first response is evicted for that of the second.
    let all = [status("307"), private, date, location];
    check(decoder, blocks[1], &all, &[status("307"), location, date, private]);
    let all = [status("200"), private, later, location, gzip, cookie];
    check(decoder, blocks[2], &all, &[cookie, gzip, later]);
}

#[test]
fn plain_responses_of_appendix_c_5() {
    check_responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
         3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
         7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
         6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ]);
}

#[test]
fn huffman_responses_of_appendix_c_6() {
    check_responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
         1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
         e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
}

#[test]
fn empty_block_has_no_fields() {
    check(&mut Decoder::new(), "", &[], &[]);
}

#[test]
fn a_name_may_refer_to_the_entry_that_it_evicts() {
    let mut decoder = with_limit(34);
    check(&mut decoder, "4001 61 01 62", &[("a", "b")], &[("a", "b")]);
    check(&mut decoder, "7e 01 63", &[("a", "c")], &[("a", "c")]);
}

#[test]
fn size_updates_at_the_start_are_accepted() {
    let mut decoder = Decoder::new();
    check(&mut decoder, "4001 61 01 62", &[("a", "b")], &[("a", "b")]);
    check(&mut decoder, "20 3f e11f 82", &[(":method", "GET")], &[]);
    check(&mut decoder, "4001 61 01 62", &[("a", "b")], &[("a", "b")]);
    check(&mut decoder, "20", &[], &[]);
    check(&mut decoder, "4001 61 01 62", &[("a", "b")], &[]);
}

#[test]
fn size_update_after_a_field_is_rejected() {
    check_rejected("82 20", DecodeError::SizeUpdate);
}

#[test]
fn size_update_beyond_the_limit_is_rejected() {
    check_rejected("3f e21f", DecodeError::SizeUpdate);
}

#[test]
fn index_0_is_rejected() {
    check_rejected("80", DecodeError::Index);
}

#[test]
fn index_beyond_the_tables_is_rejected() {
    check_rejected("be", DecodeError::Index);
    check_rejected("4001 61 01 62 bf", DecodeError::Index);
    check_rejected("7e 01 61", DecodeError::Index);
    check_rejected("ff 80ffffff0f", DecodeError::Index);
}

#[test]
fn integer_beyond_32_bits_is_rejected() {
    check_rejected("ff 81ffffff0f", DecodeError::Integer);
    check_rejected("ff ffffffff7f", DecodeError::Integer);
    check_rejected("007f 81ffffff0f", DecodeError::Integer);
}

#[test]
fn integer_of_six_more_bytes_is_rejected() {
    check_rejected("ff 808080808000", DecodeError::Integer);
}

#[test]
fn integer_with_a_zero_at_the_end_is_accepted() {
    let mut input = UnreadBlock { rest: &[0x7f, 0x81, 0x80, 0x80, 0x80, 0x00] };
    assert_eq!(input.integer(7), Ok(128));
}

#[test]
fn block_cut_anywhere_is_rejected() {
    let whole = bytes("4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf");
    for end in 1..whole.len() {
        assert_eq!(decode(&mut Decoder::new(), &whole[..end], UNLIMITED).0, Err(DecodeError::Truncated), "at {end}");
    }
    check_rejected("ff", DecodeError::Truncated);
    check_rejected("ff 80", DecodeError::Truncated);
    check_rejected("3f", DecodeError::Truncated);
}

#[test]
fn long_padding_is_rejected() {
    check_rejected("0082 1fff 00", DecodeError::Huffman);
}

#[test]
fn padding_of_zeros_is_rejected() {
    check_rejected("0081 18 00", DecodeError::Huffman);
}

#[test]
fn eos_in_a_string_is_rejected() {
    check_rejected("0084 ffff ffff 00", DecodeError::Huffman);
}

#[test]
fn fields_beyond_the_maximal_size_are_dropped_but_indexed() {
    let mut decoder = Decoder::new();
    let block = bytes("4001 61 01 62 4001 63 01 64 4001 65 00");
    assert_eq!(decode(&mut decoder, &block, 2 * 34 - 1), (Ok(DecodeOutcome::TooLarge), lines(&[("a", "b")])));
    check(&mut decoder, "c0 be", &[("a", "b"), ("e", "")], &[("e", ""), ("c", "d"), ("a", "b")]);
}

#[test]
fn no_field_is_passed_on_after_one_that_was_too_large() {
    let mut decoder = Decoder::new();
    assert_eq!(decode(&mut decoder, &bytes("4001 61 02 6263 4001 61 00"), 34), (Ok(DecodeOutcome::TooLarge), vec![]));
}

#[test]
fn list_of_exactly_the_maximal_size_is_complete() {
    let block = bytes("4001 61 01 62 be");
    assert_eq!(decode(&mut Decoder::new(), &block, 2 * 34), (Ok(DecodeOutcome::Complete), lines(&[("a", "b"); 2])));
}

#[test]
fn encoder_and_decoder_round_trip() {
    let long = "x".repeat(70_000);
    let fields = [("content-type", "application/grpc"), ("grpc-status", "0"), ("grpc-message", ""), ("server", &long)];
    for code in 100..1000 {
        let mut block = BytesMut::new();
        encode_status(&mut block, code);
        fields.iter().for_each(|(name, value)| encode_literal(&mut block, name.as_bytes(), value.as_bytes()));
        let code = code.to_string();
        let mut read = Vec::new();
        let result =
            Decoder::new().decode(&block, usize::MAX, |name, value| read.push((name.to_vec(), value.to_vec())));
        assert_eq!(result, Ok(DecodeOutcome::Complete));
        let all = [(":status", code.as_str())].into_iter().chain(fields);
        assert!(read.into_iter().eq(all.map(|(name, value)| (name.into(), value.into()))), "status {code}");
    }
}

struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end
    }
}

/// One decoder decodes all blocks, also after an error, so that its table gets into all states.
fn check_no_panic(blocks: impl Iterator<Item = Vec<u8>>) {
    let mut decoder = Decoder::new();
    for block in blocks {
        let mut size = 0;
        decoder.decode(&block, 1000, |name, value| size += name.len() + value.len() + 32).ok();
        assert!(size <= 1000);
    }
}

#[test]
fn random_blocks_do_not_panic() {
    let mut random = Xorshift(0x2545_f491_4f6c_dd1d);
    check_no_panic((0..50_000).map(|_| (0..random.below(64)).map(|_| random.next() as u8).collect()));
}

#[test]
fn flipped_bits_do_not_panic() {
    let whole = bytes(
        "20 3f e11f 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d
         29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65 82be",
    );
    assert_eq!(decode(&mut Decoder::new(), &whole, UNLIMITED).0, Ok(DecodeOutcome::Complete));
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    check_no_panic((0..50_000).map(|_| {
        let mut block = whole.clone();
        for _ in 0..=random.below(4) {
            let bit = random.below(block.len() * 8);
            block[bit / 8] ^= 1 << (bit % 8);
        }
        block
    }));
}
