//! Values as YAML in block style, as Kubernetes' YAML library writes them: keys sorted, lists not indented.

use super::encoding::{Escapes, json_text};
use crate::template::{Budget, Value, Writer};
use serde_json::Value as Json;

pub(super) fn yaml_text(budget: &Budget, value: &Value) -> Result<String, String> {
    let json = json_text(budget, value, Escapes::Plain)?;
    let json: Json = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let mut writer = Writer::new(budget);
    write(&mut writer, &json, 0, Place::Line)?;
    Ok(writer.finish())
}

/// Where a value begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the start of a line.
    Line,
    /// After `key:`.
    Key,
    /// After `- `.
    Item,
}

fn write(writer: &mut Writer<'_>, json: &Json, depth: usize, place: Place) -> Result<(), String> {
    let pad = " ".repeat(depth);
    match json {
        Json::Object(entries) if !entries.is_empty() => {
            for (at, (key, value)) in entries.iter().enumerate() {
                match (place, at) {
                    (Place::Key, 0) => writer.push(&format!("\n{pad}"))?,
                    (_, 0) => {}
                    _ => writer.push(&pad)?,
                }
                writer.push(&format!("{}:", scalar(key)))?;
                // A list stands under its key, not further right.
                let inner = if value.is_array() { depth } else { depth + 2 };
                write(writer, value, inner, Place::Key)?;
            }
            Ok(())
        }
        Json::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                match (place, at) {
                    (Place::Key, 0) => writer.push(&format!("\n{pad}"))?,
                    (_, 0) => {}
                    _ => writer.push(&pad)?,
                }
                writer.push("- ")?;
                write(writer, item, depth + 2, Place::Item)?;
            }
            Ok(())
        }
        other => {
            let space = if place == Place::Key { " " } else { "" };
            let text = match other {
                Json::String(text) => scalar(text),
                other => other.to_string(),
            };
            writer.push(&format!("{space}{text}\n"))
        }
    }
}

/// Plain where YAML 1.1 reads it back as the same string, else in double quotes.
fn scalar(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { Json::String(text.to_owned()).to_string() }
}

fn is_plain(text: &str) -> bool {
    let first = text.chars().next().unwrap_or(' ');
    let looks_like_another_type = first.is_ascii_digit()
        || matches!(first, '+' | '.' | '=' | '<')
        || matches!(
            text.to_ascii_lowercase().as_str(),
            "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "~"
        );
    let starts_well = first.is_alphanumeric() || matches!(first, '/' | '_' | '$' | '(');
    let inner = |c: char| !c.is_control() && !matches!(c, '"' | '\\' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    starts_well
        && !looks_like_another_type
        && text.chars().all(inner)
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([':', ' '])
        // Flow collections end at these, and a template may stand inside one.
        && !text.contains([',', '[', ']', '{', '}'])
}
