//! Plain scalars: `yes`, `0x1f`, `~`. Quoted ones are always strings and are not handled here.

use crate::tree::Value;

/// The rules for plain scalars; they differ on `y` and `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalars {
    /// As common tools send objects to a cluster: `y` and `n` are strings.
    Objects,
    /// As istiod reads its mesh config (YAML 1.1): `y` and `n` are booleans.
    MeshConfig,
}

pub(super) fn value(text: &str, scalars: Scalars) -> Value {
    if matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Value::Null;
    }
    if let Some(value) = boolean(text, scalars) {
        return Value::Bool(value);
    }
    number(text).unwrap_or_else(|| Value::Text(text.into()))
}

fn boolean(text: &str, scalars: Scalars) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        "y" | "Y" if scalars == Scalars::MeshConfig => Some(true),
        "n" | "N" if scalars == Scalars::MeshConfig => Some(false),
        _ => None,
    }
}

/// Integers in four bases and floats. Infinities and NaN stay strings, since JSON has none.
fn number(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).map(Value::Integer).or_else(|| float(&plain).map(Value::Float))
}

fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, base) = match digits.as_bytes() {
        [b'0', b'x', ..] => (&digits[2..], 16),
        [b'0', b'o', ..] => (&digits[2..], 8),
        [b'0', b'b', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    let bare = digits.starts_with(|c: char| c.is_ascii_alphanumeric());
    bare.then(|| i64::from_str_radix(&format!("{sign}{digits}"), base).ok()).flatten()
}

/// Digits, a point, an exponent; nothing else that Rust would parse.
fn float(text: &str) -> Option<f64> {
    let shape = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    let value = if shape && text != "." { text.parse::<f64>().ok()? } else { return None };
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &Value) {
        assert_eq!(value(text, Scalars::Objects), *expected, "{text}");
    }

    #[test]
    fn numbers_are_read_in_every_base() {
        for (text, number) in [("0", 0), ("7", 7), ("-7", -7), ("+7", 7), ("0x1F", 31), ("0o17", 15), ("017", 15)] {
            check(text, &Value::Integer(number));
        }
        check("1_000", &Value::Integer(1000));
        check("0b101", &Value::Integer(5));
        check("-9223372036854775808", &Value::Integer(i64::MIN));
        check("1.5", &Value::Float(1.5));
        check("1e3", &Value::Float(1000.0));
        check(".5", &Value::Float(0.5));
        check("18446744073709551615", &Value::Float(18_446_744_073_709_551_615.0));
        check("089", &Value::Float(89.0));
    }

    #[test]
    fn what_only_looks_like_a_number_is_text() {
        for text in [
            "1.2.3",
            "10.0.0.1",
            "1:30",
            "0x",
            "0xg",
            "-",
            "+",
            ".",
            "_1",
            "1e999",
            ".inf",
            "1s",
            "--1",
            "0x-1",
            "2024-01-01",
        ] {
            check(text, &Value::Text(text.into()));
        }
    }

    #[test]
    fn single_letters_are_booleans_only_in_mesh_config() {
        for (text, boolean) in [("y", true), ("N", false)] {
            check(text, &Value::Text(text.into()));
            assert_eq!(value(text, Scalars::MeshConfig), Value::Bool(boolean));
        }
        check("off", &Value::Bool(false));
        check("Yes", &Value::Bool(true));
        check("yEs", &Value::Text("yEs".into()));
        check("NULL", &Value::Null);
    }
}
