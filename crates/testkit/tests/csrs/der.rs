//! DER, and what is almost DER: elements of any tag, and lengths that nobody should write.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTF8: u8 = 0x0c;
pub(crate) const PRINTABLE: u8 = 0x13;
pub(crate) const T61: u8 = 0x14;
pub(crate) const IA5: u8 = 0x16;
pub(crate) const UNIVERSAL: u8 = 0x1c;
pub(crate) const BMP: u8 = 0x1e;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

pub(crate) type Der = Vec<u8>;

pub(crate) fn tlv(tag: u8, parts: &[&[u8]]) -> Der {
    let content = parts.concat();
    let length = match content.len() {
        short @ 0..0x80 => vec![short as u8],
        one @ 0x80..0x100 => vec![0x81, one as u8],
        two => vec![0x82, (two >> 8) as u8, two as u8],
    };
    [&[tag], &length[..], &content].concat()
}

/// A length with a zero in front.
pub(crate) fn long_length(tag: u8, parts: &[&[u8]]) -> Der {
    let content = parts.concat();
    [&[tag, 0x83, 0, (content.len() >> 8) as u8, content.len() as u8], &content[..]].concat()
}

/// BER's length of what ends with a mark.
pub(crate) fn indefinite(tag: u8, parts: &[&[u8]]) -> Der {
    [&[tag, 0x80], &parts.concat()[..], &[0, 0]].concat()
}

/// Text in the encoding of its tag.
pub(crate) fn text(tag: u8, value: &str) -> Der {
    let bytes: Vec<u8> = match tag {
        BMP => value.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        UNIVERSAL => value.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect(),
        _ => value.bytes().collect(),
    };
    tlv(tag, &[&bytes])
}

/// Of arcs below 2^28.
pub(crate) fn oid(arcs: &[u32]) -> Der {
    let mut content = vec![(arcs[0] * 40 + arcs[1]) as u8];
    for arc in &arcs[2..] {
        let groups = [arc >> 21, arc >> 14, arc >> 7, *arc].map(|group| (group & 0x7f) as u8);
        let first = groups.iter().position(|group| *group != 0).unwrap_or(3);
        content.extend(groups[first..3].iter().map(|group| group | 0x80));
        content.push(groups[3]);
    }
    tlv(OID, &[&content])
}
