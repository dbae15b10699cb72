//! Numbers: accepted notations, and ranges.

use super::{Error, Reader};
use crate::tree::Value;

/// A whole number between `min` and `max`.
pub(super) fn integer(reader: Reader<'_>, min: i128, max: i128) -> Result<i128, Error> {
    let found = match &reader.node.value {
        Value::Integer(value) => Some(i128::from(*value)),
        Value::Float(value) => whole(*value),
        Value::Text(text) if reader.is_protobuf() => text.parse().ok().or_else(|| text.parse().ok().and_then(whole)),
        _ => None,
    };
    match found {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        Some(number) => {
            Err(reader.error(format!("{number} is out of range; write a whole number from {min} to {max}")))
        }
        None => Err(reader.error(format!("expected a whole number from {min} to {max}, found {}", reader.found()))),
    }
}

pub(super) fn float(reader: Reader<'_>) -> Result<f64, Error> {
    let found = match &reader.node.value {
        Value::Integer(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Text(text) if reader.is_protobuf() => text.parse::<f64>().ok().filter(|value| value.is_finite()),
        _ => None,
    };
    found.ok_or_else(|| reader.error(format!("expected a number, found {}", reader.found())))
}

/// Beyond 2^100 no integer type is meant.
fn whole(value: f64) -> Option<i128> {
    (value.fract() == 0.0 && value.abs() < 1e30).then_some(value as i128)
}
