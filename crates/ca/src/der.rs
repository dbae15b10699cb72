//! DER encoding: tags, lengths, and the parts that certificates and signing requests have in common.

use x509_parser::asn1_rs::{Any, FromDer};

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
/// `uniformResourceIdentifier` of a GeneralName.
const URI: u8 = 0x86;
/// The OID of the extension, as DER.
pub(crate) const SUBJECT_ALT_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x11];

/// `tag` with the parts as its contents, in the minimal length encoding.
pub(crate) fn wrapped(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let bytes = length.to_be_bytes();
    let digits = &bytes[bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1)..];
    let mut out = Vec::with_capacity(length + 2 + digits.len());
    out.push(tag);
    if length >= 0x80 {
        out.push(0x80 | digits.len() as u8);
    }
    out.extend_from_slice(digits);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// The elements of a constructed value.
pub(crate) fn elements(der: &[u8]) -> Option<Vec<&[u8]>> {
    let (_, outer) = Any::from_der(der).ok()?;
    let (mut left, mut found) = (outer.data, Vec::new());
    while !left.is_empty() {
        let (rest, _) = Any::from_der(left).ok()?;
        found.push(&left[..left.len() - rest.len()]);
        left = rest;
    }
    Some(found).filter(|found| !found.is_empty())
}

/// The value of a subjectAltName extension with these URIs.
pub(crate) fn general_names(uris: &[String]) -> Vec<u8> {
    let uris: Vec<u8> = uris.iter().flat_map(|uri| wrapped(URI, &[uri.as_bytes()])).collect();
    wrapped(SEQUENCE, &[&uris])
}

/// A SubjectPublicKeyInfo.
pub(crate) fn public_key(algorithm: &[u8], bits: &[u8]) -> Vec<u8> {
    wrapped(SEQUENCE, &[algorithm, &wrapped(BIT_STRING, &[&[0], bits])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_the_fewest_digits() {
        for (length, head) in
            [(0, &[4, 0][..]), (127, &[4, 127]), (128, &[4, 0x81, 128]), (256, &[4, 0x82, 1, 0]), (70_000, &[4, 0x83])]
        {
            assert!(wrapped(OCTET_STRING, &[&vec![7; length]]).starts_with(head), "{length}");
        }
    }
}
