//! JSON checked by the schema of a pod, as decoding into Go's types does: types must fit; nulls and what `omitempty` leaves out are dropped.
//! Fields that the schema does not know stay: a newer API server's pods pass through unharmed.

use serde_json::{Map, Value as Json};

use super::{Dialect, Field, FieldKind, Schema};
use crate::quantity::Quantity;

/// The object as Go would encode it again. `Err`: a field has a value of another type.
pub(crate) fn typed(mut object: Json, schema: &'static Schema) -> Result<Json, String> {
    match &mut object {
        Json::Object(entries) => check_struct(entries, schema, None)?,
        other => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type v1.{}",
                json_type(other),
                schema.name
            ));
        }
    }
    Ok(object)
}

/// `around`: the field that holds the struct; `None`: it is the object itself.
fn check_struct(
    entries: &mut Map<String, Json>,
    schema: &'static Schema,
    around: Option<&Place<'_>>,
) -> Result<(), String> {
    let mut checked = Ok(());
    entries.retain(|key, value| {
        if value.is_null() {
            return false;
        }
        let Some(field) = schema.json_field(key) else { return true };
        if checked.is_ok() {
            checked = check(value, &field.kind, &Place { schema: schema.name, key, around, kind: &field.kind });
        }
        !(field.omit_empty && is_zero(value, field))
    });
    checked
}

/// Where a value is, for messages as Go writes them.
struct Place<'a> {
    schema: &'a str,
    key: &'a str,
    around: Option<&'a Place<'a>>,
    kind: &'a FieldKind,
}

impl Place<'_> {
    fn path(&self) -> String {
        self.around.map_or_else(|| self.key.to_owned(), |around| format!("{}.{}", around.path(), self.key))
    }

    fn mismatch(&self, value: &Json, kind: &FieldKind) -> String {
        let (found, schema, path) = (json_type(value), self.schema, self.path());
        format!("json: cannot unmarshal {found} into Go struct field {schema}.{path} of type {}", go_type(kind))
    }
}

fn check(value: &mut Json, kind: &FieldKind, place: &Place<'_>) -> Result<(), String> {
    match (kind, &mut *value) {
        (FieldKind::Pointer(inner), value) => check(value, inner, place),
        (FieldKind::Struct(_), Json::Object(entries)) => match kind.schema(Dialect::Kubernetes) {
            Some(schema) => check_struct(entries, schema, Some(place)),
            None => Ok(()),
        },
        (FieldKind::List(item), Json::Array(items)) => items.iter_mut().try_for_each(|it| check(it, item, place)),
        (FieldKind::Map(item), Json::Object(entries)) => entries.values_mut().try_for_each(|it| check(it, item, place)),
        (FieldKind::Quantity, value) => check_quantity(value, place),
        (scalar, value) if scalar_fits(value, scalar) => Ok(()),
        (kind, value) => Err(place.mismatch(value, kind)),
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

/// One that is written as a number becomes a string.
fn check_quantity(value: &mut Json, place: &Place<'_>) -> Result<(), String> {
    if let Json::Number(number) = value {
        *value = Json::String(number.to_string());
    }
    let Json::String(text) = value else { return Err(place.mismatch(value, place.kind)) };
    let invalid = |error| format!("{}.{}: {text:?}: {error}", place.schema, place.path());
    text.parse::<Quantity>().map(drop).map_err(invalid)
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
        FieldKind::Struct(_) => {
            kind.schema(Dialect::Kubernetes).map_or("struct".into(), |it| format!("v1.{}", it.name))
        }
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

/// Drops fields that the schema does not know: what a template writes beside them never reaches a pod. Merge directives stay.
pub(crate) fn drop_unknown(value: &mut Json, schema: &'static Schema) {
    let Json::Object(entries) = value else { return };
    entries.retain(|key, value| match schema.json_field(key) {
        Some(field) => {
            drop_unknown_inside(value, &field.kind);
            true
        }
        None => key.starts_with('$'),
    });
}

fn drop_unknown_inside(value: &mut Json, kind: &FieldKind) {
    match (kind, value) {
        (FieldKind::Pointer(inner), value) => drop_unknown_inside(value, inner),
        (FieldKind::Struct(_), value) => {
            if let Some(schema) = kind.schema(Dialect::Kubernetes) {
                drop_unknown(value, schema);
            }
        }
        (FieldKind::List(item), Json::Array(items)) => items.iter_mut().for_each(|it| drop_unknown_inside(it, item)),
        (FieldKind::Map(item), Json::Object(entries)) => {
            entries.values_mut().for_each(|it| drop_unknown_inside(it, item));
        }
        _ => {}
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
        let mut written =
            json!({ "spec": { "unknown": 1, "containers": [{ "name": "a", "$patch": "delete", "more": 1 }] } });
        let expected = json!({ "spec": { "containers": [{ "name": "a", "$patch": "delete" }] } });
        drop_unknown(&mut written, Schema::pod());
        assert_eq!(written, expected);
    }
}
