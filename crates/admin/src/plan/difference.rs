//! The difference of two JSON documents, field by field.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Such as `virtualHosts[cart:80].routes[0].timeout`.
    pub path: String,
    /// Absent: the field is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// Absent: the field is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

/// In the order of the documents.
pub(crate) fn field_changes(old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(&mut changes, String::new(), Some(old), Some(new));
    changes
}

fn compare(changes: &mut Vec<FieldChange>, path: String, old: Option<&Value>, new: Option<&Value>) {
    match (old, new) {
        (old, new) if old == new => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let dot = if path.is_empty() { "" } else { "." };
                compare(changes, format!("{path}{dot}{key}"), before.get(key), after.get(key));
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => match (names(before), names(after)) {
            (Some(old_names), Some(new_names)) => {
                compare_named(changes, &path, (before, &old_names), (after, &new_names));
            }
            _ => compare_lists(changes, &path, before, after),
        },
        (old, new) => changes.push(FieldChange { path, old: old.cloned(), new: new.cloned() }),
    }
}

/// The names of the elements, if each has one of its own.
fn names(list: &[Value]) -> Option<Vec<&str>> {
    let names: Vec<&str> = list.iter().map(|element| element.get("name")?.as_str()).collect::<Option<_>>()?;
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    (distinct.len() == names.len()).then_some(names)
}

type NamedList<'a> = (&'a [Value], &'a [&'a str]);

fn compare_named(changes: &mut Vec<FieldChange>, path: &str, old: NamedList<'_>, new: NamedList<'_>) {
    fn find<'a>((list, names): NamedList<'a>, name: &str) -> Option<&'a Value> {
        names.iter().position(|it| *it == name).map(|at| &list[at])
    }
    let added = new.1.iter().filter(|name| !old.1.contains(*name));
    for name in old.1.iter().chain(added) {
        compare(changes, format!("{path}[{name}]"), find(old, name), find(new, name));
    }
    let kept = |names: &[&str], other: &[&str]| -> Vec<Value> {
        names.iter().filter(|name| other.contains(*name)).map(|name| Value::from(*name)).collect()
    };
    let (before, after) = (kept(old.1, new.1), kept(new.1, old.1));
    if before != after {
        let path = format!("{path} (order)");
        changes.push(FieldChange { path, old: Some(before.into()), new: Some(after.into()) });
    }
}

/// What the lists begin and end with in common is no change, so that an element that is inserted or removed is one.
fn compare_lists(changes: &mut Vec<FieldChange>, path: &str, old: &[Value], new: &[Value]) {
    let start = old.iter().zip(new).take_while(|(one, two)| one == two).count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, two)| one == two).count();
    let (old_rest, new_rest) = (&old_rest[..old_rest.len() - end], &new_rest[..new_rest.len() - end]);
    for at in 0..old_rest.len().max(new_rest.len()) {
        compare(changes, format!("{path}[{}]", start + at), old_rest.get(at), new_rest.get(at));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(old: &Value, new: &Value, expected: &[(&str, Value, Value)]) {
        let found: Vec<(String, Value, Value)> = field_changes(old, new)
            .into_iter()
            .map(|it| (it.path, it.old.unwrap_or_default(), it.new.unwrap_or_default()))
            .collect();
        let expected: Vec<_> =
            expected.iter().map(|(path, old, new)| ((*path).to_owned(), old.clone(), new.clone())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn fields_are_named_by_their_path() {
        check(&json!({"a": {"b": 1, "c": 2}}), &json!({"a": {"b": 1, "c": 3}}), &[("a.c", json!(2), json!(3))]);
        check(&json!({"a": 1}), &json!({"b": true}), &[("a", json!(1), json!(null)), ("b", json!(null), json!(true))]);
        check(&json!({"a": 1}), &json!({"a": 1}), &[]);
    }

    #[test]
    fn an_inserted_element_is_one_change() {
        check(&json!([1, 2, 3]), &json!([1, 9, 2, 3]), &[("[1]", json!(null), json!(9))]);
        check(&json!([1, 2, 3]), &json!([1, 3]), &[("[1]", json!(2), json!(null))]);
        check(&json!({"l": [1, 1]}), &json!({"l": [1]}), &[("l[1]", json!(1), json!(null))]);
    }

    #[test]
    fn elements_are_matched_by_name() {
        let old = json!([{"name": "a", "x": 1}, {"name": "b", "x": 1}]);
        let new = json!([{"name": "b", "x": 2}, {"name": "a", "x": 1}, {"name": "c"}]);
        let order = ("l (order)", json!(["a", "b"]), json!(["b", "a"]));
        check(
            &json!({"l": old}),
            &json!({"l": new}),
            &[("l[b].x", json!(1), json!(2)), ("l[c]", json!(null), json!({"name": "c"})), order],
        );
    }
}
