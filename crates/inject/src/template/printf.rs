//! The verbs of Go's `printf`.

use super::budget::Budget;
use super::format::{Writer, float, quoted, sprint, with_exponent};
use super::value::Value;

/// Go's own limit of widths and precisions.
const MAX_WIDTH: usize = 1_000_000;

pub(crate) fn sprintf(budget: &Budget, format: &str, arguments: &[Value]) -> Result<String, String> {
    let mut writer = Writer::new(budget);
    let mut arguments = arguments.iter();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        writer.push(&rest[..at])?;
        let (directive, after) = Directive::parse(&rest[at + 1..], &mut arguments);
        rest = after;
        match directive.verb {
            None => writer.push("%!(NOVERB)")?,
            Some('%') => writer.push("%")?,
            Some(verb) => match arguments.next() {
                Some(value) => writer.push(&directive.write(budget, verb, value)?)?,
                None => writer.push(&format!("%!{verb}(MISSING)"))?,
            },
        }
    }
    writer.push(rest)?;
    let extra: Vec<&Value> = arguments.collect();
    if !extra.is_empty() {
        let shown = extra.into_iter().map(|value| Ok(described(value, &sprint(budget, value)?)));
        writer.push(&format!("%!(EXTRA {})", shown.collect::<Result<Vec<_>, String>>()?.join(", ")))?;
    }
    Ok(writer.finish())
}

fn described(value: &Value, text: &str) -> String {
    if value.is_nothing() { "<nil>".into() } else { format!("{}={text}", value.type_name()) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Top,
    Inner,
}

/// Flags, width and precision of one verb.
#[derive(Default)]
struct Directive {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
    /// `None`: the format ends here.
    verb: Option<char>,
}

impl Directive {
    /// The directive after a percent sign, and the rest of the format.
    fn parse<'f>(format: &'f str, arguments: &mut std::slice::Iter<'_, Value>) -> (Directive, &'f str) {
        let mut directive = Directive::default();
        let mut rest = format;
        while let Some(flag) = rest.chars().next().filter(|c| matches!(c, '-' | '+' | '#' | ' ' | '0')) {
            match flag {
                '-' => directive.minus = true,
                '+' => directive.plus = true,
                '#' => directive.sharp = true,
                ' ' => directive.space = true,
                _ => directive.zero = true,
            }
            rest = &rest[1..];
        }
        (directive.width, rest) = number(rest, arguments);
        if let Some(after) = rest.strip_prefix('.') {
            let precision;
            (precision, rest) = number(after, arguments);
            directive.precision = Some(precision.unwrap_or(0));
        }
        directive.verb = rest.chars().next();
        let rest = &rest[directive.verb.map_or(0, char::len_utf8)..];
        (directive, rest)
    }

    fn write(&self, budget: &Budget, verb: char, value: &Value) -> Result<String, String> {
        if self.width.is_some_and(|width| width > MAX_WIDTH) || self.precision.is_some_and(|width| width > MAX_WIDTH) {
            return Err(format!("a width or precision above {MAX_WIDTH}"));
        }
        let mut writer = Writer::new(budget);
        match (verb, value) {
            ('T', _) => writer.push(&self.padded(&value.type_name(), value))?,
            ('v', Value::Text(text)) if self.sharp => writer.push(&self.padded(&quoted(text), value))?,
            _ => self.compose(&mut writer, budget, (verb, value), Depth::Top)?,
        }
        Ok(writer.finish())
    }

    /// Lists and maps apply the verb to their parts.
    fn compose(
        &self,
        writer: &mut Writer<'_>,
        budget: &Budget,
        (verb, value): (char, &Value),
        depth: Depth,
    ) -> Result<(), String> {
        let pair = |writer: &mut Writer<'_>, at: usize, key: &Value, item: &Value| {
            writer.push(if at > 0 { " " } else { "" })?;
            self.compose(writer, budget, (verb, key), Depth::Inner)?;
            writer.push(":")?;
            self.compose(writer, budget, (verb, item), Depth::Inner)
        };
        match value {
            Value::List(items) => {
                writer.push("[")?;
                for (at, item) in items.iter().enumerate() {
                    writer.push(if at > 0 { " " } else { "" })?;
                    self.compose(writer, budget, (verb, item), Depth::Inner)?;
                }
                writer.push("]")
            }
            Value::Map(entries) => {
                writer.push("map[")?;
                for (at, (key, item)) in entries.borrow().iter().enumerate() {
                    pair(writer, at, &Value::Text(key.clone()), item)?;
                }
                writer.push("]")
            }
            Value::TextMap(entries) => {
                writer.push("map[")?;
                for (at, (key, item)) in entries.iter().enumerate() {
                    pair(writer, at, &Value::Text(key.clone()), &Value::Text(item.clone()))?;
                }
                writer.push("]")
            }
            Value::Missing | Value::Null if depth == Depth::Inner => writer.push("<nil>"),
            scalar => writer.push(&self.padded(&self.scalar(budget, verb, scalar)?, scalar)),
        }
    }

    fn scalar(&self, budget: &Budget, verb: char, value: &Value) -> Result<String, String> {
        let text = match (verb, value) {
            ('v', _) => Some(self.cut(&sprint(budget, value)?)),
            ('s', Value::Text(_) | Value::Enum(..) | Value::Record(_)) => Some(self.cut(&sprint(budget, value)?)),
            ('q', Value::Text(text) | Value::Enum(text, _)) => Some(quoted(&self.cut(text))),
            ('x', Value::Text(text)) => Some(text.bytes().map(|byte| format!("{byte:02x}")).collect()),
            ('X', Value::Text(text)) => Some(text.bytes().map(|byte| format!("{byte:02X}")).collect()),
            ('t', Value::Bool(value)) => Some(value.to_string()),
            (_, Value::Integer(number, _) | Value::Enum(_, number)) => self.integer(verb, *number),
            (_, Value::Float(number)) => self.float(verb, *number),
            _ => None,
        };
        match text {
            Some(text) => Ok(text),
            None if value.is_nothing() => Ok(format!("%!{verb}(<nil>)")),
            None => Ok(format!("%!{verb}({})", described(value, &sprint(budget, value)?))),
        }
    }

    /// The precision of a text is its longest length.
    fn cut(&self, text: &str) -> String {
        self.precision.map_or_else(|| text.to_owned(), |longest| text.chars().take(longest).collect())
    }

    fn integer(&self, verb: char, number: i64) -> Option<String> {
        let magnitude = number.unsigned_abs();
        let prefix = |prefix: &'static str| if self.sharp { prefix } else { "" };
        let digits = match verb {
            'd' => magnitude.to_string(),
            'b' => format!("{}{magnitude:b}", prefix("0b")),
            'o' => format!("{}{magnitude:o}", prefix("0")),
            'x' => format!("{}{magnitude:x}", prefix("0x")),
            'X' => format!("{}{magnitude:X}", prefix("0X")),
            'c' => u32::try_from(number).ok().and_then(char::from_u32).unwrap_or('\u{fffd}').to_string(),
            'q' => return Some(quoted_char(number)),
            'U' => return Some(format!("U+{magnitude:04X}")),
            _ => return None,
        };
        let digits = match self.precision {
            Some(least) if digits.len() < least => format!("{}{digits}", "0".repeat(least - digits.len())),
            _ => digits,
        };
        Some(format!("{}{digits}", self.sign(number < 0)))
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            _ => "",
        }
    }

    fn float(&self, verb: char, number: f64) -> Option<String> {
        let magnitude = number.abs();
        let digits = match verb {
            'f' | 'F' => format!("{magnitude:.*}", self.precision.unwrap_or(6)),
            'e' | 'E' => {
                let scientific = format!("{magnitude:.*e}", self.precision.unwrap_or(6));
                let (digits, exponent) = scientific.split_once('e')?;
                with_exponent(digits, exponent.parse().ok()?)
            }
            'g' | 'G' => match self.precision {
                None => float(magnitude),
                Some(precision) => significant(magnitude, precision.max(1)),
            },
            _ => return None,
        };
        let digits = if verb.is_ascii_uppercase() { digits.to_ascii_uppercase() } else { digits };
        Some(format!("{}{digits}", self.sign(number < 0.0)))
    }

    fn padded(&self, text: &str, value: &Value) -> String {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        if missing == 0 {
            return text.to_owned();
        }
        if self.minus {
            return format!("{text}{}", " ".repeat(missing));
        }
        if self.zero && (self.precision.is_none() || !matches!(value, Value::Integer(..))) {
            let sign =
                usize::from(matches!(value, Value::Integer(..) | Value::Float(_)) && text.starts_with(['-', '+']));
            return format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..]);
        }
        format!("{}{text}", " ".repeat(missing))
    }
}

/// A character in single quotes, escaped as in a string.
fn quoted_char(number: i64) -> String {
    let c = u32::try_from(number).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
    match c {
        '\'' => "'\\''".to_owned(),
        '"' => "'\"'".to_owned(),
        c => {
            let quoted = quoted(c.encode_utf8(&mut [0; 4]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

/// `%.3g`.
fn significant(number: f64, precision: usize) -> String {
    let scientific = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    let limit = i32::try_from(precision).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= limit {
        return with_exponent(&trim(digits), exponent);
    }
    let decimals = usize::try_from(limit - 1 - exponent).unwrap_or(0);
    trim(&format!("{number:.decimals$}"))
}

/// A number in the format, or the next argument for `*`.
fn number<'f>(format: &'f str, arguments: &mut std::slice::Iter<'_, Value>) -> (Option<usize>, &'f str) {
    if let Some(rest) = format.strip_prefix('*') {
        let given = match arguments.next() {
            Some(Value::Integer(number, _)) => usize::try_from(*number).ok(),
            _ => None,
        };
        return (given, rest);
    }
    let length = format.find(|c: char| !c.is_ascii_digit()).unwrap_or(format.len());
    (format[..length].parse().ok(), &format[length..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &str, arguments: &[Value], expected: &str) {
        assert_eq!(sprintf(&Budget::new(), format, arguments).unwrap(), expected, "{format}");
    }

    #[test]
    fn verbs_with_flags_width_and_precision() {
        check(
            "%05d|%-4s|%q|%v",
            &[Value::int(42), Value::text("ab"), Value::text("q"), Value::Bool(true)],
            "00042|ab  |\"q\"|true",
        );
        check(
            "%.2f %6.1f %e",
            &[Value::Float(1.5), Value::Float(-2.25), Value::Float(1500.0)],
            "1.50   -2.2 1.500000e+03",
        );
        check(
            "%x %X %#x %o %b %c",
            &[Value::text("hi"), Value::int(255), Value::int(255), Value::int(8), Value::int(5), Value::int(65)],
            "6869 FF 0xff 10 101 A",
        );
        check("%t %T %5t", &[Value::Bool(true), Value::int(1), Value::Bool(false)], "true int false");
        check("%.3s|%5s|%+d|%%", &[Value::text("abcdef"), Value::text("x"), Value::int(3)], "abc|    x|+3|%");
    }

    #[test]
    fn wrong_arguments_are_named_in_the_text() {
        check("%d", &[Value::text("a")], "%!d(string=a)");
        check("%s", &[], "%!s(MISSING)");
        check("x", &[Value::int(1)], "x%!(EXTRA int=1)");
        check("%s", &[Value::Missing], "%!s(<nil>)");
        check("%", &[], "%!(NOVERB)");
    }
}
