//! JSON Patch (RFC 6902) between two documents.

use serde::Serialize;
use serde_json::Value as Json;

#[derive(Debug, Serialize)]
pub(crate) struct Operation<'a> {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a Json>,
}

/// The operations that turn `before` into `after`, in the order in which they must be applied.
pub(crate) fn json_patch<'a>(before: &Json, after: &'a Json) -> Vec<Operation<'a>> {
    let mut operations = Vec::new();
    compare(before, after, "", &mut operations);
    operations
}

fn compare<'a>(before: &Json, after: &'a Json, path: &str, operations: &mut Vec<Operation<'a>>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Json::Object(before), Json::Object(after)) => {
            let removed = before.keys().filter(|key| !after.contains_key(*key));
            operations.extend(removed.map(|key| Operation { op: "remove", path: member(path, key), value: None }));
            for (key, value) in after {
                match before.get(key) {
                    Some(known) => compare(known, value, &member(path, key), operations),
                    // Adding replaces a null or an empty value that the document may have there.
                    None => operations.push(Operation { op: "add", path: member(path, key), value: Some(value) }),
                }
            }
        }
        (Json::Array(before), Json::Array(after)) => compare_lists(before, after, path, operations),
        (_, after) => operations.push(Operation { op: "replace", path: path.to_owned(), value: Some(after) }),
    }
}

/// What both lists begin and end with stays; what is between is compared item by item.
fn compare_lists<'a>(before: &[Json], after: &'a [Json], path: &str, operations: &mut Vec<Operation<'a>>) {
    let start = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (before_rest, after_rest) = (&before[start..], &after[start..]);
    let end = before_rest.iter().rev().zip(after_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&before_rest[..before_rest.len() - end], &after_rest[..after_rest.len() - end]);
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        compare(old, new, &format!("{path}/{}", start + at), operations);
    }
    for at in (new.len()..old.len()).rev() {
        operations.push(Operation { op: "remove", path: format!("{path}/{}", start + at), value: None });
    }
    for (at, item) in new.iter().enumerate().skip(old.len()) {
        operations.push(Operation { op: "add", path: format!("{path}/{}", start + at), value: Some(item) });
    }
}

fn member(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patch(before: &Json, after: &Json) -> Vec<Json> {
        json_patch(before, after).iter().map(|operation| serde_json::to_value(operation).unwrap()).collect()
    }

    fn apply(document: &mut Json, operations: &[Json]) {
        for operation in operations {
            let path = operation["path"].as_str().unwrap();
            let (parent, last) = path.rsplit_once('/').unwrap_or(("", ""));
            let last = last.replace("~1", "/").replace("~0", "~");
            if path.is_empty() {
                *document = operation["value"].clone();
                continue;
            }
            match document.pointer_mut(parent).unwrap() {
                Json::Array(items) => {
                    let at: usize = last.parse().unwrap();
                    match operation["op"].as_str().unwrap() {
                        "add" => items.insert(at, operation["value"].clone()),
                        "replace" => items[at] = operation["value"].clone(),
                        _ => drop(items.remove(at)),
                    }
                }
                Json::Object(entries) => match operation["op"].as_str().unwrap() {
                    "remove" => drop(entries.remove(&last).unwrap()),
                    _ => drop(entries.insert(last, operation["value"].clone())),
                },
                other => panic!("{path}: {other}"),
            }
        }
    }

    fn document() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![Just(Json::Null), any::<bool>().prop_map(Json::from), "[ab]{0,2}".prop_map(Json::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map("[a/~]{1,2}", inner, 0..4)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_turns_one_document_into_the_other(before in document(), after in document()) {
            let mut patched = before.clone();
            apply(&mut patched, &patch(&before, &after));
            prop_assert_eq!(patched, after);
        }
    }

    #[test]
    fn a_container_in_front_moves_nothing_else() {
        let patch = patch(&json!({ "c": [{ "a": 1 }] }), &json!({ "c": [{ "p": 1 }, { "a": 1 }] }));
        assert_eq!(patch, [json!({ "op": "add", "path": "/c/0", "value": { "p": 1 } })]);
    }
}
