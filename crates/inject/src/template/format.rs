//! Values as text, as Go's package fmt writes them: `%v`, and the verbs of `printf` in `printf`.

use super::budget::{Budget, limit_text};
use super::value::Value;

/// A text that grows within the budget.
pub(crate) struct Writer<'a> {
    budget: &'a Budget,
    text: String,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(budget: &'a Budget) -> Writer<'a> {
        Writer { budget, text: String::new() }
    }

    pub(crate) fn push(&mut self, text: &str) -> Result<(), String> {
        limit_text(self.text.len() + text.len())?;
        self.budget.spend(text.len() / 8 + 1)?;
        self.text.push_str(text);
        Ok(())
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// As an action writes a value.
pub(crate) fn display(budget: &Budget, value: &Value) -> Result<String, String> {
    match value {
        // The common cases, without a writer.
        Value::Text(text) => budget.spend_text(text.len()).map(|()| text.to_string()),
        Value::Missing | Value::Null => Ok("<no value>".into()),
        _ => {
            let mut writer = Writer::new(budget);
            write_value(&mut writer, value)?;
            Ok(writer.finish())
        }
    }
}

/// As `fmt.Sprint` writes a value: nothing is `<nil>`.
pub(crate) fn sprint(budget: &Budget, value: &Value) -> Result<String, String> {
    match value {
        Value::Missing | Value::Null => Ok("<nil>".into()),
        _ => display(budget, value),
    }
}

pub(super) fn write_value(writer: &mut Writer<'_>, value: &Value) -> Result<(), String> {
    match value {
        Value::Missing | Value::Null => writer.push("<nil>"),
        Value::Bool(value) => writer.push(if *value { "true" } else { "false" }),
        Value::Integer(number, _) => writer.push(&number.to_string()),
        Value::Float(number) => writer.push(&float(*number)),
        Value::Text(text) | Value::Enum(text, _) => writer.push(text),
        Value::List(items) => {
            writer.push("[")?;
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    writer.push(" ")?;
                }
                write_value(writer, item)?;
            }
            writer.push("]")
        }
        Value::Map(entries) => {
            writer.push("map[")?;
            for (at, (key, item)) in entries.borrow().iter().enumerate() {
                writer.push(if at > 0 { " " } else { "" })?;
                writer.push(key)?;
                writer.push(":")?;
                write_value(writer, item)?;
            }
            writer.push("]")
        }
        Value::TextMap(entries) => {
            writer.push("map[")?;
            for (at, (key, item)) in entries.iter().enumerate() {
                writer.push(if at > 0 { " " } else { "" })?;
                writer.push(&format!("{key}:{item}"))?;
            }
            writer.push("]")
        }
        Value::Record(record) if record.is_nil() => writer.push("<nil>"),
        Value::Record(record) => writer.push(&record.display()),
    }
}

/// The shortest form; with an exponent below -4 and from 6 on, so that a million is `1e+06`.
pub(super) fn float(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN".into()
        } else if number > 0.0 {
            "+Inf".into()
        } else {
            "-Inf".into()
        };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..6).contains(&exponent) { with_exponent(digits, exponent) } else { format!("{number}") }
}

/// Go writes a sign and at least two digits of the exponent.
pub(super) fn with_exponent(digits: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Go's `%q`: like Rust's, but for the escapes of control characters and what is not printed.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{a0}' | '\u{ad}') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_an_exponent_where_go_writes_one() {
        let numbers = [(15020.0, "15020"), (1.5, "1.5"), (1e5, "100000"), (1e6, "1e+06"), (1e-5, "1e-05"), (0.0, "0")];
        for (number, text) in numbers {
            assert_eq!(float(number), text);
        }
    }

    #[test]
    fn maps_and_lists_are_written_as_go_does() {
        let budget = Budget::new();
        let value = Value::from_json(&serde_json::json!({ "b": [1, "x", null], "a": { "c": true } }));
        assert_eq!(display(&budget, &value).unwrap(), "map[a:map[c:true] b:[1 x <nil>]]");
        assert_eq!(display(&budget, &Value::Missing).unwrap(), "<no value>");
    }

    #[test]
    fn quotes_escape_as_go_does() {
        assert_eq!(quoted("a\"\n\u{1}\u{e9}"), "\"a\\\"\\n\\x01\u{e9}\"");
    }
}
