//! Constants of the template language: Go's strings, characters and numbers.

use super::node::Number;

/// The text between the quotes of a Go string. `None`: an invalid escape.
pub(super) fn unquoted(inner: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while !rest.is_empty() {
        let (unit, length) = unit(rest, '"')?;
        match unit {
            Unit::Char(c) => bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Unit::Byte(byte) => bytes.push(byte),
        }
        rest = &rest[length..];
    }
    // Bytes that are no UTF-8 could not reach a pod: JSON has none.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

enum Unit {
    Char(char),
    Byte(u8),
}

/// The next character or escape, and its length.
fn unit(rest: &str, quote: char) -> Option<(Unit, usize)> {
    let first = rest.chars().next()?;
    if first != '\\' {
        return Some((Unit::Char(first), first.len_utf8()));
    }
    let escape = rest[1..].chars().next()?;
    let simple = |c| Some((Unit::Char(c), 2));
    let coded = |length: usize, radix: u32, skip: usize| {
        let digits = rest.get(skip..skip + length)?;
        Some((u32::from_str_radix(digits, radix).ok()?, skip + length))
    };
    match escape {
        'a' => simple('\u{7}'),
        'b' => simple('\u{8}'),
        'f' => simple('\u{c}'),
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        'v' => simple('\u{b}'),
        '\\' => simple('\\'),
        c if c == quote => simple(c),
        'x' => coded(2, 16, 2).and_then(|(code, length)| Some((Unit::Byte(u8::try_from(code).ok()?), length))),
        '0'..='7' => coded(3, 8, 1).and_then(|(code, length)| Some((Unit::Byte(u8::try_from(code).ok()?), length))),
        'u' => coded(4, 16, 2).and_then(|(code, length)| Some((Unit::Char(char::from_u32(code)?), length))),
        'U' => coded(8, 16, 2).and_then(|(code, length)| Some((Unit::Char(char::from_u32(code)?), length))),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "Go's conversions of constants")]
pub(super) fn number(source: &str) -> Option<Number> {
    let made = |integer: Option<i64>, float: f64| Number { source: source.into(), integer, float };
    if let Some(inner) = source.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        let (unit, length) = unit(inner, '\'')?;
        let code = match unit {
            Unit::Char(c) => i64::from(u32::from(c)),
            Unit::Byte(byte) => i64::from(byte),
        };
        return (length == inner.len()).then(|| made(Some(code), code as f64));
    }
    if let Some(value) = integer(source) {
        return Some(made(Some(value), value as f64));
    }
    let value = source.replace('_', "").parse::<f64>().ok().filter(|value| value.is_finite())?;
    // A float constant without a fraction is an integer as well, unless it is written with a point: 1e3.
    let whole = value.fract() == 0.0 && value.abs() < 9.0e18;
    Some(made(whole.then_some(value as i64), value))
}

/// The digits without Go's prefix of their base, and the base. `lower`: without sign, in lower case.
pub(crate) fn radix(lower: &str) -> (&str, u32) {
    match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (lower, 10),
    }
}

fn integer(source: &str) -> Option<i64> {
    let (sign, digits) = match source.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", source.strip_prefix('+').unwrap_or(source)),
    };
    let lower = digits.to_ascii_lowercase().replace('_', "");
    let (digits, radix) = radix(&lower);
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_go_strings() {
        assert_eq!(unquoted(r#"a\tb\"\x41\101\u00e9"#).as_deref(), Some("a\tb\"AA\u{e9}"));
        assert_eq!(unquoted(r"\q"), None);
    }

    #[test]
    fn numbers_in_every_base() {
        let numbers = [("7", 7), ("-7", -7), ("0x1F", 31), ("017", 15), ("0b11", 3), ("1_000", 1000), ("1e3", 1000)];
        for (source, expected) in numbers.into_iter().chain([("'a'", 97)]) {
            assert_eq!(number(source).and_then(|number| number.integer), Some(expected), "{source}");
        }
        let half = number("0.5").unwrap();
        assert_eq!((half.integer, half.float), (None, 0.5));
        assert!(number("0x").is_none());
    }
}
