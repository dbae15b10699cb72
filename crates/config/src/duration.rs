//! Durations as in Istio's YAML: `1.5s`, and Go's `1m30s`, `100ms`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// As in protobuf: nanoseconds are below one second and have the sign of the seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    pub seconds: i64,
    pub nanos: i32,
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;

impl Duration {
    pub const ZERO: Duration = Duration { seconds: 0, nanos: 0 };

    pub const fn from_secs(seconds: i64) -> Duration {
        Duration { seconds, nanos: 0 }
    }

    pub const fn from_millis(millis: i64) -> Duration {
        Duration { seconds: millis / 1000, nanos: (millis % 1000) as i32 * 1_000_000 }
    }

    const fn from_nanos(nanos: i64) -> Duration {
        Duration { seconds: nanos / NANOS_PER_SECOND, nanos: (nanos % NANOS_PER_SECOND) as i32 }
    }

    pub fn is_zero(self) -> bool {
        self == Duration::ZERO
    }

    /// A negative duration becomes zero.
    pub fn to_std(self) -> std::time::Duration {
        let seconds = u64::try_from(self.seconds).unwrap_or(0);
        let nanos = u32::try_from(self.nanos).unwrap_or(0);
        std::time::Duration::new(seconds, if self.seconds < 0 { 0 } else { nanos })
    }
}

/// Protobuf's JSON form: seconds with 0, 3, 6 or 9 decimals.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.seconds < 0 || self.nanos < 0 { "-" } else { "" };
        write!(f, "{sign}{}", self.seconds.unsigned_abs())?;
        match self.nanos.unsigned_abs() {
            0 => f.write_str("s"),
            n if n % 1_000_000 == 0 => write!(f, ".{:03}s", n / 1_000_000),
            n if n % 1000 == 0 => write!(f, ".{:06}s", n / 1000),
            n => write!(f, ".{n:09}s"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration; write it like 1.5s, 100ms or 1m30s")]
pub struct NotADuration(String);

impl FromStr for Duration {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Duration, NotADuration> {
        total_nanos(text).map(Duration::from_nanos).ok_or_else(|| NotADuration(text.to_owned()))
    }
}

/// Go's grammar: a sign, then numbers with units, or a bare 0. As in Go, a duration beyond 2^63 ns (292 years) is an error.
fn total_nanos(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        total += part_nanos(number, unit_nanos(unit)?)?;
        if total > i128::from(i64::MAX) {
            return None;
        }
        rest = next;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn unit_nanos(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1000,
        "ms" => 1_000_000,
        "s" => NANOS_PER_SECOND,
        "m" => 60 * NANOS_PER_SECOND,
        "h" => 3600 * NANOS_PER_SECOND,
        _ => return None,
    })
}

/// `number` times `unit`, truncated to nanoseconds.
fn part_nanos(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits beyond the fifteenth are below a nanosecond even for hours.
    let (mut digits, mut divisor) = (0i128, 1i128);
    for digit in fraction.bytes().take(15) {
        digits = digits * 10 + i128::from(digit - b'0');
        divisor *= 10;
    }
    let unit = i128::from(unit);
    Some(i128::from(whole) * unit + digits * unit / divisor)
}

/// A protobuf message, so that zero differs from unset.
impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_some(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

struct DurationVisitor;

impl de::Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 1.5s")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let shown = text.parse::<Duration>().map_or_else(|e| e.to_string(), |d| d.to_string());
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn both_spellings_are_read_and_one_is_written() {
        check("1.5s", "1.500s");
        check("0s", "0s");
        check("0", "0s");
        check("-0.000001s", "-0.000001s");
        check("100ms", "0.100s");
        check("1h1m1s", "3661s");
        check("1.5h", "5400s");
        check("3us", "0.000003s");
        check("1ns", "0.000000001s");
        check(".5s", "0.500s");
        check("1.s", "1s");
        check("0.9999999999999999999s", "0.999999999s");
    }

    #[test]
    fn what_is_not_a_duration_is_quoted_back() {
        for text in
            ["", "5", "s", ".s", "-", "1 s", "1.2.3s", "1d", "5s5", "1e3s", "9223372037s", "99999999999999999999h"]
        {
            check(text, &format!("{text:?} is not a duration; write it like 1.5s, 100ms or 1m30s"));
        }
    }

    #[test]
    fn a_negative_duration_is_no_time_at_all() {
        assert_eq!("-1.5s".parse::<Duration>().unwrap().to_std(), std::time::Duration::ZERO);
        assert_eq!(Duration::from_millis(1500).to_std(), std::time::Duration::from_millis(1500));
    }
}
