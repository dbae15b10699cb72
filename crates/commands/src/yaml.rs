//! JSON values written as YAML, keys in the order of the value. Only what our own output needs: no anchors, no comments.

use serde_json::Value;

/// The document, with a line end.
pub(crate) fn document(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(&mut out, map, 0),
        Value::Array(list) if !list.is_empty() => write_list(&mut out, list, 0),
        scalar => {
            write_scalar(&mut out, scalar);
            out.push('\n');
        }
    }
    out
}

fn write_map(out: &mut String, map: &serde_json::Map<String, Value>, depth: usize) {
    for (index, (key, value)) in map.iter().enumerate() {
        // The first key of a map in a list stands on the line of the dash.
        if index > 0 || depth == 0 || out.ends_with('\n') {
            indent(out, depth);
        }
        write_text(out, key);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                write_map(out, inner, depth + 1);
            }
            Value::Array(list) if !list.is_empty() => {
                out.push('\n');
                write_list(out, list, depth);
            }
            scalar => {
                out.push(' ');
                write_scalar(out, scalar);
                out.push('\n');
            }
        }
    }
}

fn write_list(out: &mut String, list: &[Value], depth: usize) {
    for (index, item) in list.iter().enumerate() {
        if index > 0 || depth == 0 || out.ends_with('\n') {
            indent(out, depth);
        }
        out.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => write_map(out, map, depth + 1),
            Value::Array(inner) if !inner.is_empty() => write_list(out, inner, depth + 1),
            scalar => {
                write_scalar(out, scalar);
                out.push('\n');
            }
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

fn write_scalar(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        // Numbers, truth values, null and the empty containers look alike in both languages.
        other => out.push_str(&other.to_string()),
    }
}

/// Bare only where no YAML reader, old or new, could take it for anything but this string; else as JSON, which YAML contains.
fn write_text(out: &mut String, text: &str) {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain {
        out.push_str(text);
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: &Value, expected: &str) {
        assert_eq!(document(value), expected);
    }

    #[test]
    fn nested_maps_and_lists() {
        check(
            &json!({"a": {"b": [1, {"c": "d", "e": [[true, null], []]}], "f": {}}, "g": [{"h": {"i": 2}}]}),
            "a:\n  b:\n  - 1\n  - c: d\n    e:\n    - - true\n      - null\n    - []\n  f: {}\ng:\n- h:\n    i: 2\n",
        );
    }

    #[test]
    fn text_that_looks_like_something_else_is_quoted() {
        check(
            &json!({"on": "1.5", "x": ["no", "a b", "-", "", "@type", "a:b", "ünder", "line\nline"]}),
            "\"on\": \"1.5\"\nx:\n- \"no\"\n- \"a b\"\n- \"-\"\n- \"\"\n- \"@type\"\n- \"a:b\"\n- \"ünder\"\n- \"line\\nline\"\n",
        );
    }

    #[test]
    fn a_document_can_be_a_scalar_or_empty() {
        check(&json!({}), "{}\n");
        check(&json!("plain/text.yaml"), "plain/text.yaml\n");
        check(&json!([{"a": 1}, [2]]), "- a: 1\n- - 2\n");
    }
}
