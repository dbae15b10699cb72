//! Equality of pods by meaning: order counts where Kubernetes gives it one, strings that hold JSON are compared as JSON, empty values
//! count as absent, quantities by amount.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

/// Lists without an order, and the field that names their items.
const UNORDERED: [(&str, &str); 7] = [
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("imagePullSecrets", "name"),
    ("ports", ""),
    ("add", ""),
    ("drop", ""),
    ("items", ""),
];
/// Zero or false is the same as not given.
const UNSET: [&str; 12] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "hostPort",
    "readOnly",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "tty",
];

/// Lines `path: expected .. got ..`.
pub fn differences(want: &Json, got: &Json) -> Vec<String> {
    let mut lines = Vec::new();
    differ(&plain(want, ""), &plain(got, ""), "pod", "", &mut lines);
    lines
}

fn plain(value: &Json, key: &str) -> Json {
    match value {
        Json::Object(entries) => {
            let free = ["labels", "annotations", "nodeSelector", "matchLabels"].contains(&key);
            let quantities = ["limits", "requests"].contains(&key);
            let kept = entries.iter().filter_map(|(name, value)| {
                let value = plain(value, if quantities { "quantity" } else { name });
                let unset = value == json!(0) || value == json!(false);
                let absent = value.is_null() || value == json!({}) || value == json!([]);
                let empty = !free && (value == json!("") || unset && UNSET.contains(&name.as_str()));
                (!absent && !empty).then(|| (name.clone(), value))
            });
            Json::Object(kept.collect::<Map<_, _>>())
        }
        Json::Array(items) => items.iter().map(|item| plain(item, "")).collect(),
        Json::String(text) if key == "quantity" => amount(text).map_or_else(|| value.clone(), |amount| json!(amount)),
        Json::Number(number) if key == "quantity" => json!(number.as_f64()),
        Json::String(text) if text.trim_start().starts_with(['{', '[']) => match serde_json::from_str::<Json>(text) {
            Ok(json) => json!({ "(json)": plain(&json, "") }),
            Err(_) => value.clone(),
        },
        other => other.clone(),
    }
}

fn amount(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let scale = match &text[end..] {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        _ => return None,
    };
    text[..end].parse::<f64>().ok().map(|number| number * scale)
}

fn differ(want: &Json, got: &Json, at: &str, key: &str, lines: &mut Vec<String>) {
    match (want, got) {
        (Json::Object(want), Json::Object(got)) => {
            for (name, value) in want {
                match got.get(name) {
                    Some(other) => differ(value, other, &format!("{at}.{name}"), name, lines),
                    None => lines.push(format!("{at}.{name}: missing, expected {value}")),
                }
            }
            let unexpected = got.iter().filter(|(name, _)| !want.contains_key(*name));
            lines.extend(unexpected.map(|(name, value)| format!("{at}.{name}: not expected: {value}")));
        }
        (Json::Array(want), Json::Array(got)) => differ_lists(want, got, at, key, lines),
        _ if want != got => lines.push(format!("{at}: expected {want}, got {got}")),
        _ => {}
    }
}

fn differ_lists(want: &[Json], got: &[Json], at: &str, key: &str, lines: &mut Vec<String>) {
    let names = |items: &[Json]| -> Vec<String> { items.iter().map(|item| item["name"].to_string()).collect() };
    let named = |field: &str| want.iter().chain(got).all(|item| item.get(field).is_some());
    if key == "env" && named("name") {
        differ(&by_field(want, "name"), &by_field(got, "name"), at, "", lines);
        return;
    }
    match UNORDERED.iter().find(|(name, _)| *name == key) {
        Some((_, field)) if field.is_empty() || !named(field) => {
            let sorted = |items: &[Json]| {
                let mut texts: Vec<String> = items.iter().map(Json::to_string).collect();
                texts.sort();
                texts
            };
            if sorted(want) != sorted(got) {
                lines.push(format!("{at}: expected {want:?}, got {got:?}"));
            }
        }
        Some((_, field)) => differ(&by_field(want, field), &by_field(got, field), at, "", lines),
        None if ["containers", "initContainers"].contains(&key) && named("name") => {
            if names(want) != names(got) {
                lines.push(format!("{at}: expected in this order {:?}, got {:?}", names(want), names(got)));
            }
            for item in want {
                let other = got.iter().find(|other| other["name"] == item["name"]);
                other.into_iter().for_each(|other| differ(item, other, &format!("{at}[{}]", item["name"]), "", lines));
            }
        }
        None if want.len() != got.len() => lines.push(format!("{at}: expected {want:?}, got {got:?}")),
        None => {
            let pairs = want.iter().zip(got).enumerate();
            pairs.for_each(|(index, (want, got))| differ(want, got, &format!("{at}[{index}]"), "", lines));
        }
    }
}

/// Items by name; those of one name keep their order.
fn by_field(items: &[Json], field: &str) -> Json {
    let mut grouped: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for item in items {
        grouped.entry(item[field].to_string()).or_default().push(item.clone());
    }
    json!(grouped)
}
