//! Places in an object: where a value stands, and the same without the positions in lists, which other objects of the kind share.

use serde_json::{Map, Value};

/// The parts of an object that say something. Others are its name, and what the API server writes.
const PARTS: [&[&str]; 7] = [
    &["spec"],
    &["metadata", "labels"],
    &["metadata", "annotations"],
    &["data"],
    &["endpoints"],
    &["ports"],
    &["extension"],
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// `/spec/http/0/route`
    pub(crate) pointer: String,
    /// `spec.http[].route`
    pub(crate) path: String,
}

/// All places of an object, outer ones before those in them.
pub(crate) fn places(object: &Value) -> Vec<Place> {
    let mut out = Vec::new();
    for part in PARTS {
        let place = Place { pointer: format!("/{}", part.join("/")), path: part.join(".") };
        if let Some(value) = object.pointer(&place.pointer) {
            walk(value, &place, &mut out);
        }
    }
    out
}

fn walk(value: &Value, place: &Place, out: &mut Vec<Place>) {
    out.push(place.clone());
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                let pointer = format!("{}/{}", place.pointer, key.replace('~', "~0").replace('/', "~1"));
                walk(inner, &Place { pointer, path: format!("{}.{key}", place.path) }, out);
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                walk(
                    inner,
                    &Place { pointer: format!("{}/{at}", place.pointer), path: format!("{}[]", place.path) },
                    out,
                );
            }
        }
        _ => {}
    }
}

/// Takes the value out of its object or list.
pub(crate) fn remove(object: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, last) = pointer.rsplit_once('/')?;
    match object.pointer_mut(parent)? {
        Value::Object(fields) => take_field(fields, last),
        Value::Array(items) => {
            let at = last.parse().ok().filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

fn take_field(fields: &mut Map<String, Value>, escaped: &str) -> Option<Value> {
    fields.remove(&escaped.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_have_pointers_and_paths() {
        let object = json!({ "kind": "Service", "metadata": { "name": "a", "labels": { "x/y": "1" } }, "spec": { "ports": [{ "port": 1 }] } });
        let found: Vec<_> = places(&object).into_iter().map(|place| (place.pointer, place.path)).collect();
        let want = [
            ("/spec", "spec"),
            ("/spec/ports", "spec.ports"),
            ("/spec/ports/0", "spec.ports[]"),
            ("/spec/ports/0/port", "spec.ports[].port"),
            ("/metadata/labels", "metadata.labels"),
            ("/metadata/labels/x~1y", "metadata.labels.x/y"),
        ];
        assert_eq!(found, want.map(|(pointer, path)| (pointer.to_owned(), path.to_owned())));
    }

    #[test]
    fn removes_fields_and_items() {
        let mut object = json!({ "metadata": { "labels": { "x/y": "1" } }, "spec": { "hosts": ["a", "b"] } });
        assert_eq!(remove(&mut object, "/metadata/labels/x~1y"), Some(json!("1")));
        assert_eq!(remove(&mut object, "/spec/hosts/0"), Some(json!("a")));
        assert_eq!(remove(&mut object, "/spec/hosts/7"), None);
        assert_eq!(object, json!({ "metadata": { "labels": {} }, "spec": { "hosts": ["b"] } }));
    }
}
