//! The fields of an encoded request, one after the other: what each holds, and its bytes. Used before a request is decoded.

use prost::{
    DecodeError,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};

use crate::Variant;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Node,
    Subscribe,
    Unsubscribe,
    /// An entry of `initial_resource_versions`.
    InitialVersion,
    /// A name with parameters.
    Locator,
    Error,
    Other,
}

impl Field {
    pub(crate) fn of(variant: Variant, number: u32) -> Field {
        match (variant, number) {
            (Variant::Sotw, 2) | (Variant::Delta, 1) => Field::Node,
            (Variant::Sotw | Variant::Delta, 3) => Field::Subscribe,
            (Variant::Delta, 4) => Field::Unsubscribe,
            (Variant::Delta, 5) => Field::InitialVersion,
            (Variant::Sotw, 7) | (Variant::Delta, 8 | 9) => Field::Locator,
            (Variant::Sotw, 6) | (Variant::Delta, 7) => Field::Error,
            _ => Field::Other,
        }
    }
}

/// Takes the next field off a message: its number, and its bytes if it is length-delimited.
pub(crate) fn next_field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Option<&'a [u8]>), DecodeError> {
    let (number, wire) = decode_key(rest)?;
    if wire != WireType::LengthDelimited {
        skip_field(wire, number, rest, DecodeContext::default())?;
        return Ok((number, None));
    }
    let len = decode_varint(rest)?;
    let (inside, after) = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)).ok_or_else(malformed)?;
    *rest = after;
    Ok((number, Some(inside)))
}

/// prost has no public constructor: this is its error for a truncated key.
pub(crate) fn malformed() -> DecodeError {
    decode_varint(&mut &[0x80_u8][..]).expect_err("a truncated varint")
}
