//! Functions that encode and digest: JSON with Go's escapes, base64, base32, SHA.

use aws_lc_rs::digest;
use data_encoding::{BASE32, BASE64, HEXLOWER};
use serde_json::Value as Json;

use super::arguments::{ANY, Returned, TEXT, function, text};
use crate::template::{Budget, Function, Value, Writer};

pub(super) static FUNCTIONS: &[Function] = &[
    function("toJson", &[ANY], |budget, values| {
        json_text(budget, &values[0], Escapes::Html).map(|text| Value::text(&text))
    }),
    function("mustToJson", &[ANY], |budget, values| {
        json_text(budget, &values[0], Escapes::Html).map(|text| Value::text(&text))
    }),
    function("toRawJson", &[ANY], |budget, values| {
        json_text(budget, &values[0], Escapes::Plain).map(|text| Value::text(&text))
    }),
    function("mustToRawJson", &[ANY], |budget, values| {
        json_text(budget, &values[0], Escapes::Plain).map(|text| Value::text(&text))
    }),
    function("toPrettyJson", &[ANY], pretty),
    function("mustToPrettyJson", &[ANY], pretty),
    function("fromJson", &[TEXT], |_, values| {
        Ok(serde_json::from_str::<Json>(text(&values[0])).map_or(Value::Missing, |json| Value::from_json(&json)))
    }),
    function("mustFromJson", &[TEXT], |_, values| {
        serde_json::from_str::<Json>(text(&values[0]))
            .map(|json| Value::from_json(&json))
            .map_err(|error| error.to_string())
    }),
    function("b64enc", &[TEXT], |budget, values| encoded(budget, text(&values[0]), |bytes| BASE64.encode(bytes))),
    function("b32enc", &[TEXT], |budget, values| encoded(budget, text(&values[0]), |bytes| BASE32.encode(bytes))),
    function("b64dec", &[TEXT], |_, values| Ok(decoded(BASE64.decode(text(&values[0]).as_bytes())))),
    function("b32dec", &[TEXT], |_, values| Ok(decoded(BASE32.decode(text(&values[0]).as_bytes())))),
    function("sha1sum", &[TEXT], |budget, values| summed(budget, &digest::SHA1_FOR_LEGACY_USE_ONLY, text(&values[0]))),
    function("sha256sum", &[TEXT], |budget, values| summed(budget, &digest::SHA256, text(&values[0]))),
    function("sha512sum", &[TEXT], |budget, values| summed(budget, &digest::SHA512, text(&values[0]))),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// `<`, `>` and `&` too, as Go does by default.
    Html,
    Plain,
}

fn encoded(budget: &Budget, text: &str, encode: fn(&[u8]) -> String) -> Returned {
    budget.spend_text(text.len() * 2)?;
    Ok(Value::text(&encode(text.as_bytes())))
}

/// sprig returns an error as the text.
fn decoded(bytes: Result<Vec<u8>, data_encoding::DecodeError>) -> Value {
    match bytes {
        Ok(bytes) => Value::text(&String::from_utf8_lossy(&bytes)),
        Err(error) => Value::text(&error.to_string()),
    }
}

fn summed(budget: &Budget, algorithm: &'static digest::Algorithm, text: &str) -> Returned {
    budget.spend_text(text.len())?;
    Ok(Value::text(&HEXLOWER.encode(digest::digest(algorithm, text.as_bytes()).as_ref())))
}

fn pretty(budget: &Budget, values: &[Value]) -> Returned {
    let compact = json_text(budget, &values[0], Escapes::Html)?;
    let json: Json = serde_json::from_str(&compact).map_err(|error| error.to_string())?;
    let text = serde_json::to_string_pretty(&json).map_err(|error| error.to_string())?;
    budget.spend_text(text.len())?;
    Ok(Value::text(&text))
}

pub(super) fn json_text(budget: &Budget, value: &Value, escapes: Escapes) -> Result<String, String> {
    let mut writer = Writer::new(budget);
    write(&mut writer, value, escapes)?;
    Ok(writer.finish())
}

fn write(writer: &mut Writer<'_>, value: &Value, escapes: Escapes) -> Result<(), String> {
    match value {
        Value::Missing | Value::Null => writer.push("null"),
        Value::Bool(value) => writer.push(if *value { "true" } else { "false" }),
        Value::Integer(number, _) | Value::Enum(_, number) => writer.push(&number.to_string()),
        Value::Float(number) => writer.push(&number_text(*number)?),
        Value::Text(text) => writer.push(&string_text(text, escapes)),
        Value::List(items) => {
            writer.push("[")?;
            for (at, item) in items.iter().enumerate() {
                writer.push(if at > 0 { "," } else { "" })?;
                write(writer, item, escapes)?;
            }
            writer.push("]")
        }
        Value::Map(entries) => {
            writer.push("{")?;
            for (at, (key, value)) in entries.borrow().iter().enumerate() {
                writer.push(if at > 0 { "," } else { "" })?;
                writer.push(&format!("{}:", string_text(key, escapes)))?;
                write(writer, value, escapes)?;
            }
            writer.push("}")
        }
        Value::TextMap(entries) => {
            writer.push("{")?;
            for (at, (key, value)) in entries.iter().enumerate() {
                writer.push(if at > 0 { "," } else { "" })?;
                writer.push(&format!("{}:{}", string_text(key, escapes), string_text(value, escapes)))?;
            }
            writer.push("}")
        }
        Value::Record(record) if record.is_nil() => writer.push("null"),
        Value::Record(record) => writer.push(&record.to_json().to_string()),
    }
}

/// Whole numbers without a fraction; an exponent only where Go's encoder writes one.
fn number_text(number: f64) -> Result<String, String> {
    if !number.is_finite() {
        return Err(format!("json: unsupported value: {number}"));
    }
    let magnitude = number.abs();
    let plain = magnitude == 0.0 || (1e-6..1e21).contains(&magnitude);
    Ok(if plain { format!("{number}") } else { format!("{number:e}") })
}

fn string_text(text: &str, escapes: Escapes) -> String {
    let plain = Json::String(text.to_owned()).to_string();
    match escapes {
        Escapes::Plain => plain,
        Escapes::Html => plain
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029"),
    }
}
