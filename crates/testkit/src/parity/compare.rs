//! What differs between recorded and given answers, in the arbiter's words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde_json::Value;

/// By proxy, then type ("CDS"), then name: the opened resource.
pub type ResponsesByProxy = BTreeMap<String, ResourcesByType>;
pub type ResourcesByType = BTreeMap<String, BTreeMap<String, Value>>;

/// Lists whose order carries no meaning.
const UNORDERED: [&str; 9] = [
    "queryParameters",
    "dynamicMetadata",
    "clusterNames",
    "matchSubjectAltNames",
    "matchTypedSubjectAltNames",
    "domains",
    "resourceNames",
    "ips",
    "alt_hosts",
];

/// The same, where the items are objects.
const UNORDERED_OBJECTS: [&str; 2] = ["lbEndpoints", "endpoints"];

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub same: usize,
    pub total: usize,
    pub differences: Vec<ResourceDifference>,
    /// `case: proxy TYPE name: path: what`, one for each difference.
    pub lines: Vec<String>,
}

/// One place of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceDifference {
    pub proxy: String,
    /// "CDS"
    pub kind: String,
    pub name: String,
    /// `path: what`, or what is wrong with the whole resource.
    pub what: String,
}

impl fmt::Display for ResourceDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ResourceDifference { proxy, kind, name, what } = self;
        write!(f, "{proxy} {kind} {name}: {what}")
    }
}

impl Comparison {
    /// Nothing compared is not equal.
    pub fn equal(&self) -> bool {
        self.total > 0 && self.same == self.total
    }
}

pub fn compare(case: &str, want: &ResponsesByProxy, got: &ResponsesByProxy) -> Comparison {
    let none = ResourcesByType::new();
    let mut out = Comparison::default();
    for (proxy, want) in want {
        let got = got.get(proxy).unwrap_or(&none);
        for kind in want.keys().chain(got.keys()).collect::<BTreeSet<_>>() {
            let nothing = BTreeMap::new();
            let (want, got) = (want.get(kind).unwrap_or(&nothing), got.get(kind).unwrap_or(&nothing));
            for name in want.keys().chain(got.keys()).collect::<BTreeSet<_>>() {
                let found = resource_differences(want.get(name), got.get(name));
                out.total += 1;
                out.same += usize::from(found.is_empty());
                out.differences.extend(found.into_iter().map(|what| ResourceDifference {
                    proxy: proxy.clone(),
                    kind: kind.clone(),
                    name: name.clone(),
                    what,
                }));
            }
        }
    }
    out.lines = out.differences.iter().map(|it| format!("{case}: {it}")).collect();
    out
}

fn resource_differences(want: Option<&Value>, got: Option<&Value>) -> Vec<String> {
    match (want, got) {
        (Some(want), Some(got)) => differences(&normal(want), &normal(got)),
        (Some(_), None) => vec!["not sent".to_owned()],
        (None, _) => vec!["sent, but should not be".to_owned()],
    }
}

/// The tree with every list that has no order sorted.
pub fn normal(value: &Value) -> Value {
    normal_under("", value)
}

fn normal_under(key: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), normal_under(k, v))).collect(),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| normal_under("", item)).collect();
            let objects = UNORDERED_OBJECTS.contains(&key) && items.first().is_some_and(Value::is_object);
            if UNORDERED.contains(&key) || objects {
                items.sort_by_cached_key(dumped);
            }
            items.into()
        }
        other => other.clone(),
    }
}

/// One line for each place where the trees differ: `.path[0].field: what`.
pub fn differences(want: &Value, got: &Value) -> Vec<String> {
    let mut out = Vec::new();
    walk(want, got, "", &mut out);
    out
}

fn walk(want: &Value, got: &Value, path: &str, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for key in want.keys().chain(got.keys()).collect::<BTreeSet<_>>() {
                match (want.get(key), got.get(key)) {
                    (Some(a), Some(b)) => walk(a, b, &format!("{path}.{key}"), out),
                    (Some(a), None) => out.push(format!("{path}.{key}: missing, want {}", short(a))),
                    (None, b) => out.push(format!("{path}.{key}: extra {}", short(b.unwrap_or(&Value::Null)))),
                }
            }
        }
        (Value::Array(want), Value::Array(got)) => {
            if want.len() != got.len() {
                out.push(format!("{path}: {} items, want {}", got.len(), want.len()));
            }
            for (i, (a, b)) in want.iter().zip(got).enumerate() {
                walk(a, b, &format!("{path}[{i}]"), out);
            }
        }
        _ if !same_scalar(want, got) => out.push(format!("{path}: {}, want {}", short(got), short(want))),
        _ => {}
    }
}

/// Numbers by value: a Struct's 1.0 is 1.
fn same_scalar(a: &Value, b: &Value) -> bool {
    let (Value::Number(x), Value::Number(y)) = (a, b) else { return a == b };
    if x.is_f64() || y.is_f64() { x.as_f64() == y.as_f64() } else { x == y }
}

fn short(value: &Value) -> String {
    let text = dumped(value);
    if text.len() < 160 { text } else { format!("{}...", &text[..157]) }
}

/// As Python's `json.dumps(value, sort_keys=True)`: ASCII only. Unordered lists are sorted by this text, so it decides which
/// items are compared with each other.
fn dumped(value: &Value) -> String {
    let mut out = String::new();
    dump(value, &mut out);
    out
}

fn dump(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            out.push('{');
            for (i, (key, value)) in sorted.into_iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                quote(key, out);
                out.push_str(": ");
                dump(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                dump(item, out);
            }
            out.push(']');
        }
        Value::String(text) => quote(text, out),
        other => out.push_str(&other.to_string()),
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for unit in text.chars() {
        match unit {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(unit),
            _ => unit.encode_utf16(&mut [0; 2]).iter().for_each(|half| {
                let _ = write!(out, "\\u{half:04x}");
            }),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(want: &Value, got: &Value, lines: &[&str]) {
        assert_eq!(differences(&normal(want), &normal(got)), lines);
    }

    #[test]
    fn numbers_compare_by_value() {
        check(&json!({ "a": 1 }), &json!({ "a": 1.0 }), &[]);
        check(&json!({ "a": 1 }), &json!({ "a": 2 }), &[".a: 2, want 1"]);
        check(&json!({ "a": true }), &json!({ "a": "true" }), &[".a: \"true\", want true"]);
    }

    #[test]
    fn only_unordered_lists_are_sorted() {
        check(&json!({ "domains": ["b", "a"] }), &json!({ "domains": ["a", "b"] }), &[]);
        check(
            &json!({ "endpoints": [{ "b": 1 }, { "a": 1 }] }),
            &json!({ "endpoints": [{ "a": 1 }, { "b": 1 }] }),
            &[],
        );
        check(
            &json!({ "routes": ["b", "a"] }),
            &json!({ "routes": ["a", "b"] }),
            &[".routes[0]: \"a\", want \"b\"", ".routes[1]: \"b\", want \"a\""],
        );
    }

    #[test]
    fn missing_extra_and_length_are_named() {
        check(&json!({ "a": { "b": 1 } }), &json!({ "a": { "c": [] } }), &[".a.b: missing, want 1", ".a.c: extra []"]);
        check(&json!([1]), &json!([1, 2]), &[": 2 items, want 1"]);
    }

    #[test]
    fn a_resource_counts_once_however_much_differs() {
        let of =
            |value: Value| -> ResponsesByProxy { serde_json::from_value(json!({ "p": { "CDS": value } })).unwrap() };
        let want = of(json!({ "a": { "x": 1, "y": 1 }, "b": {}, "c": {} }));
        let got = of(json!({ "a": { "x": 2, "y": 2 }, "b": {}, "d": {} }));
        let out = compare("case", &want, &got);
        assert_eq!((out.same, out.total), (1, 4));
        assert_eq!(
            out.lines,
            [
                "case: p CDS a: .x: 2, want 1",
                "case: p CDS a: .y: 2, want 1",
                "case: p CDS c: not sent",
                "case: p CDS d: sent, but should not be"
            ]
        );
    }

    #[test]
    fn long_values_are_cut_and_text_is_ascii() {
        assert_eq!(short(&json!("é😀\n")), r#""\u00e9\ud83d\ude00\n""#);
        assert_eq!(short(&json!("x".repeat(200))).len(), 160);
    }
}
