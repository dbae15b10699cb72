//! JSON checked by the schema of a pod, as decoding into Go's types does: types must fit; nulls and what `omitempty` leaves out are dropped.
//! Fields that the schema does not know stay: a newer API server's pods pass through unharmed.

use serde_json::{Map, Value as Json};

use super::{Dialect, Field, FieldKind, Schema};
use crate::quantity::Quantity;

/// The object as Go would encode it again. `Err`: a field has a value of another type.
pub(crate) fn typed(object: Json, schema: &Schema) -> Result<Json, String> {
    let Json::Object(entries) = object else {
        return Err(format!("json: cannot unmarshal {} into Go value of type v1.{}", json_type(&object), schema.name));
    };
    check_struct(entries, schema, "")
}

/// `path`: of the struct in the object, with a dot behind it.
fn check_struct(entries: Map<String, Json>, schema: &Schema, path: &str) -> Result<Json, String> {
    let mut kept = Map::new();
    for (key, value) in entries {
        if value.is_null() {
            continue;
        }
        let Some(field) = schema.json_field(&key) else {
            kept.insert(key, value);
            continue;
        };
        let place = Place { schema: schema.name, path: &format!("{path}{key}"), kind: &field.kind };
        let value = check(value, &field.kind, &place)?;
        if !(field.omit_empty && is_zero(&value, field)) {
            kept.insert(key, value);
        }
    }
    Ok(Json::Object(kept))
}

/// Where a value is, for messages as Go writes them.
struct Place<'a> {
    schema: &'a str,
    path: &'a str,
    kind: &'a FieldKind,
}

impl Place<'_> {
    fn mismatch(&self, value: &Json, kind: &FieldKind) -> String {
        let Place { schema, path, .. } = self;
        let found = json_type(value);
        format!("json: cannot unmarshal {found} into Go struct field {schema}.{path} of type {}", go_type(kind))
    }
}

fn check(value: Json, kind: &FieldKind, place: &Place<'_>) -> Result<Json, String> {
    match (kind, value) {
        (FieldKind::Pointer(inner), value) => check(value, inner, place),
        (FieldKind::Struct(name), Json::Object(entries)) => {
            check_struct(entries, Schema::named(name, Dialect::Kubernetes), &format!("{}.", place.path))
        }
        (FieldKind::List(item), Json::Array(items)) => {
            items.into_iter().map(|value| check(value, item, place)).collect::<Result<_, _>>().map(Json::Array)
        }
        (FieldKind::Map(item), Json::Object(entries)) => {
            let entries = entries.into_iter().map(|(key, value)| Ok((key, check(value, item, place)?)));
            entries.collect::<Result<_, String>>().map(Json::Object)
        }
        (FieldKind::Quantity, value) => quantity(&value, place),
        (scalar, value) if scalar_fits(&value, scalar) => Ok(value),
        (kind, value) => Err(place.mismatch(&value, kind)),
    }
}

fn scalar_fits(value: &Json, kind: &FieldKind) -> bool {
    match kind {
        FieldKind::Text => value.is_string(),
        FieldKind::Time => value.is_string() || value.is_null(),
        FieldKind::Bool => value.is_boolean(),
        FieldKind::Integer(_) => value.is_i64() || value.is_u64(),
        FieldKind::IntOrString => value.is_string() || value.is_i64(),
        FieldKind::Float => value.is_number(),
        FieldKind::Any => true,
        _ => false,
    }
}

fn quantity(value: &Json, place: &Place<'_>) -> Result<Json, String> {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        other => return Err(place.mismatch(other, place.kind)),
    };
    match text.parse::<Quantity>() {
        Ok(_) => Ok(Json::String(text)),
        Err(error) => Err(format!("{}.{}: {text:?}: {error}", place.schema, place.path)),
    }
}

fn json_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn go_type(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Bool => "bool".into(),
        FieldKind::Integer(integer) => integer.name().into(),
        FieldKind::Float => "float64".into(),
        FieldKind::Time => "v1.Time".into(),
        FieldKind::Quantity => "resource.Quantity".into(),
        FieldKind::IntOrString => "intstr.IntOrString".into(),
        FieldKind::Struct(name) => format!("v1.{name}"),
        FieldKind::Pointer(inner) => go_type(inner),
        FieldKind::List(item) => format!("[]{}", go_type(item)),
        FieldKind::Map(item) => format!("map[string]{}", go_type(item)),
        _ => "string".into(),
    }
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
            (json!({ "spec": { "containers": {} } }), "PodSpec.spec.containers of type []v1.Container"),
            (json!({ "metadata": { "annotations": { "a": true } } }), "ObjectMeta.metadata.annotations of type string"),
            (json!({ "spec": { "containers": [{ "name": 1 }] } }), "Container.spec.containers.name of type string"),
            (
                json!({ "spec": { "containers": [{ "resources": { "limits": { "cpu": "lots" } } }] } }),
                "ResourceRequirements.spec.containers.resources.limits",
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
