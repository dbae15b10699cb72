//! Strategic merge of a patch into a pod: maps field by field, lists by the key of their schema, with Kubernetes' directives.

use std::mem::take;

use serde_json::{Map, Value as Json};

use crate::schema::{Field, FieldKind, ListMerge, Schema};

type Object = Map<String, Json>;

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// The original with the patch laid over it. Neither is typed: the caller checks the result.
pub(crate) fn strategic_merge(original: Json, patch: Json, schema: &'static Schema) -> Result<Json, String> {
    match (original, patch) {
        (Json::Object(original), Json::Object(patch)) => merge_objects(original, patch, Some(schema)).map(Json::Object),
        (original, Json::Null) => Ok(original),
        _ => Err("invalid JSON document".to_owned()),
    }
}

/// `schema`: `None` for maps without one, such as labels.
fn merge_objects(mut original: Object, mut patch: Object, schema: Option<&'static Schema>) -> Result<Object, String> {
    match patch.remove(PATCH).as_ref().map(|directive| directive.as_str().unwrap_or_default()) {
        None => {}
        Some("replace") => return Ok(patch),
        Some("delete") => return Ok(Object::new()),
        Some(other) => return Err(format!("unknown patch type {other:?} in {}", Json::Object(patch))),
    }
    retain_keys(&mut original, &mut patch)?;
    order_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            delete_items(&mut original, list, &value);
            continue;
        }
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let field = schema.and_then(|schema| schema.json_field(&key));
        match (original.get_mut(&key), value) {
            (Some(Json::Object(before)), Json::Object(over)) => {
                let inner = field.and_then(|field| inner_schema(field, schema));
                *before = merge_objects(take(before), over, inner)?;
            }
            (Some(Json::Array(before)), Json::Array(over)) => *before = merge_lists(take(before), over, field, schema)?,
            (_, mut value) => {
                drop_nulls_and_directives(&mut value);
                if is_directive(&value) {
                    original.remove(&key);
                } else {
                    original.insert(key, value);
                }
            }
        }
    }
    Ok(original)
}

/// The schema of a field's struct; a map of strings has none.
fn inner_schema(field: &Field, around: Option<&'static Schema>) -> Option<&'static Schema> {
    match &field.kind {
        FieldKind::Map(_) => None,
        kind => kind.schema(around?.dialect),
    }
}

/// `$retainKeys` names the keys that stay.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), String> {
    let Some(retained) = patch.remove(RETAIN) else { return Ok(()) };
    let Json::Array(retained) = retained else { return Err("invalid patch format of retainKeys".into()) };
    let is_retained = |key: &String| retained.iter().any(|known| known == key.as_str());
    if patch.iter().any(|(key, value)| !value.is_null() && !key.starts_with('$') && !is_retained(key)) {
        return Err("invalid patch format of retainKeys".into());
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// `$setElementOrder/LIST` gives the order of a list, which is merged here and taken out of the patch.
fn order_lists(original: &mut Object, patch: &mut Object, schema: Option<&'static Schema>) -> Result<(), String> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for directive in directives {
        let Some(Json::Array(order)) = patch.remove(&directive) else {
            return Err("invalid patch format of setElementOrder list".into());
        };
        let list = &directive[ORDER.len()..];
        let field = schema.and_then(|schema| schema.json_field(list));
        let before = match original.remove(list) {
            Some(Json::Array(items)) => items,
            _ => Vec::new(),
        };
        let key = match field.and_then(|field| field.merge) {
            Some(ListMerge::Key(key)) => Some(key),
            _ => None,
        };
        let (order, held) = (identities(&order, key), identities(&before, key));
        let merged = match patch.remove(list) {
            Some(Json::Array(over)) => merge_lists(before, over, field, schema)?,
            _ => before,
        };
        original.insert(list.to_owned(), Json::Array(ordered(merged, &order, &held, key)));
    }
    Ok(())
}

fn delete_items(original: &mut Object, list: &str, deleted: &Json) {
    if let (Some(Json::Array(items)), Json::Array(deleted)) = (original.get_mut(list), deleted) {
        items.retain(|item| !deleted.contains(item));
    }
}

fn merge_lists(
    before: Vec<Json>,
    over: Vec<Json>,
    field: Option<&Field>,
    around: Option<&'static Schema>,
) -> Result<Vec<Json>, String> {
    match field.and_then(|field| Some((field, field.merge?))) {
        None => Ok(over),
        Some((_, ListMerge::Set)) => {
            let (held, wanted) = (identities(&before, None), identities(&over, None));
            let mut merged: Vec<Json> = Vec::new();
            for item in before.into_iter().chain(over) {
                if !merged.contains(&item) {
                    merged.push(item);
                }
            }
            Ok(ordered(merged, &wanted, &held, None))
        }
        Some((field, ListMerge::Key(key))) => merge_by_key(before, over, key, inner_schema(field, around)),
    }
}

fn merge_by_key(
    before: Vec<Json>,
    over: Vec<Json>,
    key: &'static str,
    schema: Option<&'static Schema>,
) -> Result<Vec<Json>, String> {
    let (before, over) = without_special_items(before, over, key)?;
    let (held, order) = (identities(&before, Some(key)), identities(&over, Some(key)));
    let mut merged = before;
    for item in over {
        let Some(wanted) = item.get(key) else { return Err(no_key(&item, key)) };
        match merged.iter_mut().find(|known| known.get(key) == Some(wanted)) {
            Some(known) => {
                if let (Json::Object(known_fields), Json::Object(fields)) = (known.take(), item) {
                    *known = Json::Object(merge_objects(known_fields, fields, schema)?);
                }
            }
            None => merged.push(item),
        }
    }
    if let Some(nameless) = merged.iter().find(|item| item.get(key).is_none()) {
        return Err(no_key(nameless, key));
    }
    Ok(ordered(merged, &order, &held, Some(key)))
}

fn no_key(item: &Json, key: &str) -> String {
    format!("map: {item} does not contain declared merge key: {key}")
}

/// Items with a directive act on the list and leave the patch.
fn without_special_items(mut before: Vec<Json>, over: Vec<Json>, key: &str) -> Result<(Vec<Json>, Vec<Json>), String> {
    let mut replaces = false;
    let mut plain = Vec::new();
    for item in over {
        match item.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
            None => plain.push(item),
            Some("delete") => {
                let Some(wanted) = item.get(key) else { return Err(no_key(&item, key)) };
                before.retain(|known| known.get(key) != Some(wanted));
            }
            Some("replace") => replaces = true,
            Some(other) => return Err(format!("unknown patch type {other:?} in a list")),
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (before, plain) })
}

/// By what an item of a list is the same as one of another list: the value of its key, or the whole item if there is no key.
fn identity<'v>(item: &'v Json, key: Option<&str>) -> Option<&'v Json> {
    match key {
        Some(key) => item.get(key),
        None => Some(item),
    }
}

fn identities(items: &[Json], key: Option<&str>) -> Vec<Option<Json>> {
    items.iter().map(|item| identity(item, key).cloned()).collect()
}

/// Items of the patch in its order, and the others in theirs: another item goes first only if the next item of the patch was in the list
/// too, after it.
fn ordered(merged: Vec<Json>, patch: &[Option<Json>], before: &[Option<Json>], key: Option<&str>) -> Vec<Json> {
    let place =
        |list: &[Option<Json>], item: &Json| list.iter().position(|known| known.as_ref() == identity(item, key));
    let (mut from_patch, mut others): (Vec<Json>, Vec<Json>) =
        merged.into_iter().partition(|item| place(patch, item).is_some());
    from_patch.sort_by_key(|item| place(patch, item));
    others.sort_by_key(|item| place(before, item));
    let mut result = Vec::with_capacity(from_patch.len() + others.len());
    let (mut from_patch, mut others) = (from_patch.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), from_patch.peek()) {
            (None, None) => return result,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(next)) => match (place(before, other), place(before, next)) {
                (Some(other), Some(next)) => other < next,
                _ => false,
            },
        };
        result.extend(if other_first { others.next() } else { from_patch.next() });
    }
}

/// The whole value says what to do with what is there.
fn is_directive(value: &Json) -> bool {
    value.get(PATCH).is_some()
}

/// Of a part that the original does not have: there, nulls and directives delete nothing.
fn drop_nulls_and_directives(value: &mut Json) {
    match value {
        Json::Object(entries) => entries.retain(|_, value| {
            drop_nulls_and_directives(value);
            !value.is_null() && !is_directive(value)
        }),
        Json::Array(items) => items.retain_mut(|item| {
            drop_nulls_and_directives(item);
            !is_directive(item)
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(original: Json, patch: Json, expected: Json) {
        let spec = |value: Json| json!({ "spec": value });
        assert_eq!(strategic_merge(spec(original), spec(patch), Schema::pod()), Ok(spec(expected)));
    }

    #[test]
    fn new_items_stand_before_those_of_the_pod() {
        check(
            json!({ "containers": [{ "name": "app" }] }),
            json!({ "containers": [{ "name": "istio-proxy" }] }),
            json!({ "containers": [{ "name": "istio-proxy" }, { "name": "app" }] }),
        );
    }

    #[test]
    fn an_item_of_the_pod_goes_first_before_a_later_item_that_both_have() {
        check(
            json!({ "containers": [{ "name": "p", "env": [{ "name": "EXTRA" }, { "name": "POD_NAME", "value": "x" }] }] }),
            json!({ "containers": [{ "name": "p", "env": [{ "name": "CA" }, { "name": "POD_NAME" }, { "name": "Z" }] }] }),
            json!({ "containers": [{ "name": "p", "env": [{ "name": "CA" }, { "name": "EXTRA" }, { "name": "POD_NAME", "value": "x" }, { "name": "Z" }] }] }),
        );
    }

    #[test]
    fn lists_without_a_key_are_replaced_and_null_deletes() {
        check(
            json!({ "tolerations": [{ "key": "a" }], "nodeName": "n", "containers": [{ "name": "a", "args": ["x"] }] }),
            json!({ "tolerations": [{ "key": "b" }], "nodeName": null, "containers": [{ "name": "a", "args": ["y"] }] }),
            json!({ "tolerations": [{ "key": "b" }], "containers": [{ "name": "a", "args": ["y"] }] }),
        );
    }

    #[test]
    fn directives_delete_replace_and_order() {
        check(
            json!({ "containers": [{ "name": "a" }, { "name": "b" }], "nodeSelector": { "disk": "ssd" } }),
            json!({ "containers": [{ "name": "b", "$patch": "delete" }], "nodeSelector": { "$patch": "replace", "zone": "a" } }),
            json!({ "containers": [{ "name": "a" }], "nodeSelector": { "zone": "a" } }),
        );
        check(
            json!({ "containers": [{ "name": "a" }, { "name": "b" }] }),
            json!({ "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }] }),
            json!({ "containers": [{ "name": "b" }, { "name": "a" }] }),
        );
        check(
            json!({ "volumes": [{ "name": "v", "hostPath": { "path": "/x" } }] }),
            json!({ "volumes": [{ "name": "v", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"] }] }),
            json!({ "volumes": [{ "name": "v", "emptyDir": {} }] }),
        );
    }

    #[test]
    fn an_item_without_its_key_is_an_error() {
        let patch = json!({ "spec": { "containers": [{ "image": "x" }] } });
        let original = json!({ "spec": { "containers": [{ "name": "a" }] } });
        let error = strategic_merge(original, patch, Schema::pod()).unwrap_err();
        assert!(error.contains("merge key: name"), "{error}");
    }
}
