//! Encodes one JSON scalar, without the field's tag.

use prost::bytes::BufMut;
use prost::encoding::{WireType, encode_varint};
use prost_reflect::{EnumDescriptor, Kind, MapKey};
use serde_json::Value as Json;

use super::error::{Error, JsonPath};
use super::text;

/// An encoded value without its tag.
pub(super) struct Encoded {
    pub(super) wire: WireType,
    pub(super) bytes: Vec<u8>,
    /// The default value, which a field without presence leaves out.
    pub(super) is_default: bool,
}

impl Encoded {
    pub(super) fn varint(value: u64) -> Self {
        let mut bytes = Vec::with_capacity(10);
        encode_varint(value, &mut bytes);
        Encoded { wire: WireType::Varint, bytes, is_default: value == 0 }
    }

    /// A negative number takes ten bytes: protobuf sign-extends.
    pub(super) fn signed(value: i64) -> Self {
        Self::varint(value.cast_unsigned())
    }

    pub(super) fn delimited(body: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(body.len() + 5);
        encode_varint(body.len() as u64, &mut bytes);
        bytes.put_slice(body);
        Encoded { wire: WireType::LengthDelimited, bytes, is_default: body.is_empty() }
    }

    fn fixed32(bytes: [u8; 4]) -> Self {
        Encoded { wire: WireType::ThirtyTwoBit, bytes: bytes.to_vec(), is_default: bytes == [0; 4] }
    }

    pub(super) fn fixed64(bytes: [u8; 8]) -> Self {
        Encoded { wire: WireType::SixtyFourBit, bytes: bytes.to_vec(), is_default: bytes == [0; 8] }
    }
}

/// Everything but messages, which `from` reads.
pub(super) fn encode(kind: &Kind, value: &Json, at: &JsonPath<'_>) -> Result<Encoded, Error> {
    let int32 = || narrow::<i32>(value, at, "a 32-bit integer");
    let int64 = || narrow::<i64>(value, at, "a 64-bit integer");
    let uint32 = || narrow::<u32>(value, at, "an integer from 0 to 4294967295");
    let uint64 = || narrow::<u64>(value, at, "an integer from 0 to 18446744073709551615");
    Ok(match kind {
        Kind::Int32 => Encoded::signed(int32()?.into()),
        Kind::Int64 => Encoded::signed(int64()?),
        Kind::Uint32 => Encoded::varint(uint32()?.into()),
        Kind::Uint64 => Encoded::varint(uint64()?),
        Kind::Sint32 => int32().map(|v| Encoded::varint(((v << 1) ^ (v >> 31)).cast_unsigned().into()))?,
        Kind::Sint64 => int64().map(|v| Encoded::varint(((v << 1) ^ (v >> 63)).cast_unsigned()))?,
        Kind::Fixed32 => Encoded::fixed32(uint32()?.to_le_bytes()),
        Kind::Fixed64 => Encoded::fixed64(uint64()?.to_le_bytes()),
        Kind::Sfixed32 => Encoded::fixed32(int32()?.to_le_bytes()),
        Kind::Sfixed64 => Encoded::fixed64(int64()?.to_le_bytes()),
        Kind::Float => Encoded::fixed32(float(value, at)?.to_le_bytes()),
        Kind::Double => {
            Encoded::fixed64(text::parse_float(value).ok_or_else(|| at.wrong("a number", value))?.to_le_bytes())
        }
        Kind::Bool => Encoded::varint(value.as_bool().ok_or_else(|| at.wrong("true or false", value))?.into()),
        Kind::String => Encoded::delimited(value.as_str().ok_or_else(|| at.wrong("a string", value))?.as_bytes()),
        Kind::Bytes => Encoded::delimited(&bytes(value, at)?),
        Kind::Enum(values) => Encoded::signed(enum_number(values, value, at)?.into()),
        Kind::Message(message) => return Err(at.wrong(message.full_name(), value)),
    })
}

pub(super) fn bytes(value: &Json, at: &JsonPath<'_>) -> Result<Vec<u8>, Error> {
    value.as_str().and_then(text::parse_base64).ok_or_else(|| at.wrong("bytes in base64", value))
}

/// A map key, comparable by its type, and its encoding.
pub(super) fn map_key(kind: &Kind, key: &str, at: &JsonPath<'_>) -> Result<(MapKey, Encoded), Error> {
    let text = Json::from(key);
    let wrong = || at.wrong("a key of this map's type", &text);
    let (value, ordered) = match kind {
        Kind::String => (text.clone(), MapKey::String(key.to_owned())),
        Kind::Bool => {
            let key = key.parse().map_err(|_| wrong())?;
            (Json::Bool(key), MapKey::Bool(key))
        }
        Kind::Uint64 | Kind::Fixed64 | Kind::Uint32 | Kind::Fixed32 => {
            (text.clone(), MapKey::U64(key.parse().map_err(|_| wrong())?))
        }
        _ => (text.clone(), MapKey::I64(key.parse().map_err(|_| wrong())?)),
    };
    Ok((ordered, encode(kind, &value, at)?))
}

fn enum_number(values: &EnumDescriptor, value: &Json, at: &JsonPath<'_>) -> Result<i32, Error> {
    let number = match value {
        // Only NullValue accepts null.
        Json::Null => Some(0),
        Json::String(name) => values.get_value_by_name(name).map(|value| value.number()),
        value => whole(value).and_then(|number| i32::try_from(number).ok()),
    };
    number.ok_or_else(|| {
        let names: Vec<_> = values.values().map(|value| value.name().to_owned()).take(12).collect();
        at.wrong(format!("a value of {} ({})", values.full_name(), names.join(", ")), value)
    })
}

fn float(value: &Json, at: &JsonPath<'_>) -> Result<f32, Error> {
    let wide = text::parse_float(value).ok_or_else(|| at.wrong("a number", value))?;
    let narrow = wide as f32;
    if narrow.is_infinite() && wide.is_finite() { Err(at.wrong("a 32-bit float", value)) } else { Ok(narrow) }
}

fn narrow<T: TryFrom<i128>>(value: &Json, at: &JsonPath<'_>, expected: &str) -> Result<T, Error> {
    whole(value).and_then(|number| T::try_from(number).ok()).ok_or_else(|| at.wrong(expected, value))
}

/// An integer, also as `"7"`, `7.0` or `7e2`.
fn whole(value: &Json) -> Option<i128> {
    let exact = match value {
        Json::Number(number) => number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)),
        Json::String(text) => text.parse().ok(),
        _ => return None,
    };
    exact.or_else(|| {
        let float = text::parse_float(value).filter(|float| float.fract() == 0.0 && float.abs() < 1e18)?;
        Some(float as i128)
    })
}
