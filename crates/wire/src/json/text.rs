//! The JSON forms of Duration, Timestamp, floats and bytes, both ways. Independent of descriptors.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_PAD_INDIFFERENT, URL_SAFE_PAD_INDIFFERENT};
use serde_json::{Number, Value};

/// The range of protobuf durations: about ten thousand years either way.
const MAX_SECONDS: i64 = 315_576_000_000;
const NANOS: i128 = 1_000_000_000;

/// With 0, 3, 6 or 9 fraction digits, like other protobuf libraries.
pub(super) fn duration(seconds: i64, nanos: i32) -> String {
    let total = i128::from(seconds) * NANOS + i128::from(nanos);
    let sign = if total < 0 { "-" } else { "" };
    let (whole, part) = (total.unsigned_abs() / NANOS.unsigned_abs(), total.unsigned_abs() % NANOS.unsigned_abs());
    if part == 0 {
        format!("{sign}{whole}s")
    } else if part % 1_000_000 == 0 {
        format!("{sign}{whole}.{:03}s", part / 1_000_000)
    } else if part % 1_000 == 0 {
        format!("{sign}{whole}.{:06}s", part / 1_000)
    } else {
        format!("{sign}{whole}.{part:09}s")
    }
}

pub(super) fn parse_duration(text: &str) -> Option<(i64, i32)> {
    let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, part) = match rest.strip_suffix('s')?.split_once('.') {
        Some((whole, part)) => (whole, part),
        None => (rest.strip_suffix('s')?, "0"),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let seconds: i64 = whole.parse().ok().filter(|seconds| *seconds <= MAX_SECONDS)?;
    let nanos: i32 = format!("{part:0<9}").parse().ok()?;
    Some((sign * seconds, i32::try_from(sign).ok()? * nanos))
}

pub(super) fn timestamp(seconds: i64, nanos: i32) -> String {
    prost_types::Timestamp { seconds, nanos }.to_string()
}

pub(super) fn parse_timestamp(text: &str) -> Option<(i64, i32)> {
    // Only years with four digits: 0001 to 9999.
    let stamp: prost_types::Timestamp = text.parse().ok()?;
    (-62_135_596_800..=253_402_300_799).contains(&stamp.seconds).then_some((stamp.seconds, stamp.nanos))
}

/// 1 and not 1.0: an integer looks the same whether it came from YAML, JSON or a double.
pub(super) fn number(value: f64) -> Value {
    /// Up to here every integer has an exact double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let negative_zero = value == 0.0 && value.is_sign_negative();
    if value.fract() == 0.0 && value.abs() <= EXACT && !negative_zero {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or_else(|| Value::from(not_finite(value)), Value::Number)
}

/// The shortest digits that parse to this f32, not those of the widened double.
pub(super) fn short_number(value: f32) -> Value {
    number(value.to_string().parse().unwrap_or(f64::from(value)))
}

fn not_finite(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

pub(super) fn parse_float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text => text.parse().ok().filter(|parsed: &f64| parsed.is_finite()),
        },
        _ => None,
    }
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Either alphabet, with or without padding, as protobuf parsers accept.
pub(super) fn parse_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD_PAD_INDIFFERENT.decode(text).or_else(|_| URL_SAFE_PAD_INDIFFERENT.decode(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for (text, parsed) in [
            ("0s", (0, 0)),
            ("1.500s", (1, 500_000_000)),
            ("-0.000001s", (0, -1_000)),
            ("9223372035s", (9_223_372_035, 0)),
            ("-2.000000001s", (-2, -1)),
        ] {
            assert_eq!(parse_duration(text), Some(parsed), "{text}");
            assert_eq!(duration(parsed.0, parsed.1), text);
        }
        assert_eq!(parse_duration("1.5s"), Some((1, 500_000_000)));
        for bad in ["", "s", "1", "1.s", ".5s", "+1s", "--1s", "1.0000000001s", "315576000001s", "1 s", "1.-5s"] {
            assert_eq!(parse_duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn invalid_durations_are_still_printed() {
        assert_eq!(duration(i64::MIN, i32::MIN), "-9223372036854775810.147483648s");
        assert_eq!(duration(1, -500_000_000), "0.500s");
    }

    #[test]
    fn timestamps_round_trip() {
        assert_eq!(parse_timestamp("2026-04-15T17:11:54.5Z"), Some((1_776_273_114, 500_000_000)));
        assert_eq!(timestamp(1_776_273_114, 0), "2026-04-15T17:11:54Z");
        assert_eq!(parse_timestamp("10000-01-01T00:00:00Z"), None);
        assert!(!timestamp(i64::MIN, i32::MIN).is_empty());
    }

    #[test]
    fn integers_have_no_decimal_point() {
        assert_eq!(number(100.0).to_string(), "100");
        assert_eq!(number(-0.0).to_string(), "-0.0");
        assert_eq!(number(1e300).to_string(), "1e+300");
        assert_eq!(short_number(0.1).to_string(), "0.1");
        assert_eq!(number(f64::NAN), "NaN");
    }
}
