//! JSON checked by the schema of a pod, as decoding into Go's types does: types must fit; nulls and what `omitempty` leaves out are dropped.
//! Fields that the schema does not know stay: a newer API server's pods pass through unharmed.

use serde_json::{Map, Value as Json};

use super::{Dialect, Field, FieldKind, Schema};
use crate::quantity::Quantity;

/// The object as Go would encode it again. `Err`: a field has a value of another type.
pub(crate) fn typed(object: Json, schema: &Schema) -> Result<Json, String> {
    check_struct(object, schema, schema.name)
}

fn check_struct(object: Json, schema: &Schema, path: &str) -> Result<Json, String> {
    let Json::Object(entries) = object else { return Err(mismatch(&object, path, schema.name)) };
    let mut kept = Map::new();
    for (key, value) in entries {
        if value.is_null() {
            continue;
        }
        let Some(field) = schema.json_field(&key) else {
            kept.insert(key, value);
            continue;
        };
        let value = check(value, &field.kind, &format!("{path}.{key}"))?;
        if !(field.omit_empty && is_zero(&value, field)) {
            kept.insert(key, value);
        }
    }
    Ok(Json::Object(kept))
}

fn check(value: Json, kind: &FieldKind, path: &str) -> Result<Json, String> {
    match kind {
        FieldKind::Pointer(inner) => check(value, inner, path),
        FieldKind::Struct(name) => check_struct(value, Schema::named(name, Dialect::Kubernetes), path),
        FieldKind::List(item) => {
            let Json::Array(items) = value else { return Err(mismatch(&value, path, "list")) };
            items.into_iter().map(|value| check(value, item, path)).collect::<Result<_, _>>().map(Json::Array)
        }
        FieldKind::Map(item) => {
            let Json::Object(entries) = value else { return Err(mismatch(&value, path, "map")) };
            let entries = entries.into_iter().map(|(key, value)| match check(value, item, path) {
                Ok(value) => Ok((key, value)),
                Err(error) => Err(error),
            });
            entries.collect::<Result<_, _>>().map(Json::Object)
        }
        FieldKind::Quantity => quantity(value, path),
        scalar => check_scalar(value, scalar, path),
    }
}

fn check_scalar(value: Json, kind: &FieldKind, path: &str) -> Result<Json, String> {
    let (fits, wanted) = match kind {
        FieldKind::Text => (value.is_string(), "string"),
        FieldKind::Time => (value.is_string() || value.is_null(), "time"),
        FieldKind::Bool => (value.is_boolean(), "bool"),
        FieldKind::Integer(_) => (value.is_i64() || value.is_u64(), "integer"),
        FieldKind::IntOrString => (value.is_string() || value.is_i64(), "integer or string"),
        FieldKind::Float => (value.is_number(), "number"),
        _ => (true, ""),
    };
    if fits { Ok(value) } else { Err(mismatch(&value, path, wanted)) }
}

fn quantity(value: Json, path: &str) -> Result<Json, String> {
    let text = match &value {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        other => return Err(mismatch(other, path, "quantity")),
    };
    match text.parse::<Quantity>() {
        Ok(_) => Ok(Json::String(text)),
        Err(error) => Err(format!("{path}: {text:?}: {error}")),
    }
}

fn mismatch(value: &Json, path: &str, wanted: &str) -> String {
    let found = match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {path} of type {wanted}")
}

/// What `omitempty` leaves out; a pointer to a zero is no zero, and a struct never is.
fn is_zero(value: &Json, field: &Field) -> bool {
    match (&field.kind, value) {
        (FieldKind::List(_), Json::Array(items)) => items.is_empty(),
        (FieldKind::Map(_), Json::Object(entries)) => entries.is_empty(),
        (FieldKind::Text, Json::String(text)) => text.is_empty(),
        (FieldKind::Bool, Json::Bool(value)) => !value,
        (FieldKind::Integer(_), Json::Number(number)) => number.as_i64() == Some(0),
        _ => false,
    }
}

/// Without fields that the schema does not know: what a template writes beside them never reaches a pod. Merge directives stay.
pub(crate) fn without_unknown(value: Json, schema: &Schema) -> Json {
    let Json::Object(entries) = value else { return value };
    let kept = entries.into_iter().filter_map(|(key, value)| match schema.json_field(&key) {
        Some(field) => Some((key, known(value, &field.kind))),
        None if key.starts_with('$') => Some((key, value)),
        None => None,
    });
    Json::Object(kept.collect())
}

fn known(value: Json, kind: &FieldKind) -> Json {
    match (kind, value) {
        (FieldKind::Pointer(inner), value) => known(value, inner),
        (FieldKind::Struct(name), value) => without_unknown(value, Schema::named(name, Dialect::Kubernetes)),
        (FieldKind::List(item), Json::Array(items)) => {
            Json::Array(items.into_iter().map(|value| known(value, item)).collect())
        }
        (FieldKind::Map(item), Json::Object(entries)) => {
            Json::Object(entries.into_iter().map(|(key, value)| (key, known(value, item))).collect())
        }
        (_, value) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nulls_and_zeros_are_dropped_and_unknown_fields_kept() {
        let pod = json!({
            "metadata": { "name": "a", "creationTimestamp": null, "labels": {} },
            "spec": { "hostNetwork": false, "new": { "x": null }, "containers": [{ "name": "a", "image": "", "securityContext": { "runAsUser": 0 } }] },
        });
        let expected = json!({
            "metadata": { "name": "a" },
            "spec": { "new": { "x": null }, "containers": [{ "name": "a", "securityContext": { "runAsUser": 0 } }] },
        });
        assert_eq!(typed(pod, Schema::pod()), Ok(expected));
    }

    #[test]
    fn a_value_of_another_type_is_named_with_its_path() {
        for (pod, path) in [
            (json!({ "spec": { "containers": {} } }), "Pod.spec.containers"),
            (json!({ "metadata": { "annotations": { "a": true } } }), "Pod.metadata.annotations"),
            (json!({ "spec": { "containers": [{ "name": 1 }] } }), "Pod.spec.containers.name"),
            (
                json!({ "spec": { "containers": [{ "resources": { "limits": { "cpu": "lots" } } }] } }),
                "Pod.spec.containers.resources.limits",
            ),
        ] {
            let error = typed(pod, Schema::pod()).unwrap_err();
            assert!(error.contains(path), "{error}");
        }
    }

    #[test]
    fn what_a_template_writes_beside_the_schema_is_dropped() {
        let written =
            json!({ "spec": { "unknown": 1, "containers": [{ "name": "a", "$patch": "delete", "more": 1 }] } });
        let expected = json!({ "spec": { "containers": [{ "name": "a", "$patch": "delete" }] } });
        assert_eq!(without_unknown(written, Schema::pod()), expected);
    }
}
