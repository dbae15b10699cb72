//! Conversions between kinds of numbers, with sprig's leniency: what is no number is 0.

use super::arguments::{ANY, TEXT, function, text};
use crate::template::{Function, IntegerType, Value, radix};

pub(super) static FUNCTIONS: &[Function] = &[
    function("atoi", &[TEXT], |_, values| Ok(Value::int(text(&values[0]).parse().unwrap_or(0)))),
    function("int", &[ANY], |_, values| Ok(Value::int(to_integer(&values[0])))),
    function("int64", &[ANY], |_, values| Ok(Value::Integer(to_integer(&values[0]), IntegerType::Int64))),
    function("float64", &[ANY], |_, values| Ok(Value::Float(to_float(&values[0])))),
    function("toDecimal", &[ANY], |_, values| {
        let octal = match &values[0] {
            Value::Text(text) => i64::from_str_radix(text, 8).unwrap_or(0),
            other => i64::from_str_radix(&to_integer(other).to_string(), 8).unwrap_or(0),
        };
        Ok(Value::Integer(octal, IntegerType::Int64))
    }),
];

#[expect(clippy::cast_possible_truncation, reason = "Go's conversion of floats, which saturates here")]
pub(super) fn to_integer(value: &Value) -> i64 {
    match value {
        Value::Integer(number, _) | Value::Enum(_, number) => *number,
        Value::Float(number) => *number as i64,
        Value::Bool(value) => i64::from(*value),
        Value::Text(text) => integer_of(text),
        _ => 0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "Go's conversion of integers")]
pub(super) fn to_float(value: &Value) -> f64 {
    match value {
        Value::Integer(number, _) | Value::Enum(_, number) => *number as f64,
        Value::Float(number) => *number,
        Value::Bool(value) => f64::from(u8::from(*value)),
        Value::Text(text) => text.parse().unwrap_or(0.0),
        _ => 0.0,
    }
}

/// Decimal, or another base by its prefix; zeros after a point are dropped.
fn integer_of(text: &str) -> i64 {
    let text = match text.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|byte| byte == b'0') => whole,
        _ => text,
    };
    let (sign, digits) =
        text.strip_prefix('-').map_or(("", text.strip_prefix('+').unwrap_or(text)), |rest| ("-", rest));
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = radix(&lower);
    i64::from_str_radix(&format!("{sign}{digits}"), radix).unwrap_or(0)
}
