//! Functions on maps of anything. Maps of strings, such as labels, are another type and are refused, as in Go.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::arguments::{ANY, Returned, TEXT, deep_equal, function, string_of, text, variadic};
use crate::template::{Budget, Function, Parameter, Value};

const MAP: Parameter = Parameter::Map;

type Entries = Rc<RefCell<BTreeMap<Arc<str>, Value>>>;

pub(super) static FUNCTIONS: &[Function] = &[
    variadic("dict", &[], ANY, dict),
    function("get", &[MAP, TEXT], |_, values| {
        let found = entries(&values[0]).and_then(|map| map.borrow().get(text(&values[1])).cloned());
        Ok(found.unwrap_or_else(|| Value::text("")))
    }),
    function("set", &[MAP, TEXT, ANY], set),
    function("unset", &[MAP, TEXT], |_, values| {
        if let Some(map) = entries(&values[0]) {
            map.borrow_mut().remove(text(&values[1]));
        }
        Ok(values[0].clone())
    }),
    function("hasKey", &[MAP, TEXT], |_, values| {
        Ok(Value::Bool(entries(&values[0]).is_some_and(|map| map.borrow().contains_key(text(&values[1])))))
    }),
    variadic("pluck", &[TEXT], MAP, |_, values| {
        let found = values[1..].iter().filter_map(|map| entries(map)?.borrow().get(text(&values[0])).cloned());
        Ok(Value::list(found.collect()))
    }),
    variadic("keys", &[], MAP, |budget, values| {
        let mut keys = Vec::new();
        for map in values.iter().filter_map(entries) {
            budget.spend(map.borrow().len())?;
            keys.extend(map.borrow().keys().cloned().map(Value::Text));
        }
        Ok(Value::list(keys))
    }),
    function("values", &[MAP], |budget, values| {
        let Some(map) = entries(&values[0]) else { return Ok(Value::list(Vec::new())) };
        budget.spend(map.borrow().len())?;
        Ok(Value::list(map.borrow().values().cloned().collect()))
    }),
    variadic("pick", &[MAP], TEXT, |_, values| {
        let Some(map) = entries(&values[0]) else { return Ok(Value::map(BTreeMap::new())) };
        let map = map.borrow();
        let picked = values[1..].iter().filter_map(|key| map.get_key_value(text(key)));
        Ok(Value::map(picked.map(|(key, value)| (key.clone(), value.clone())).collect()))
    }),
    variadic("merge", &[MAP], MAP, |budget, values| merge(budget, values, false)),
    variadic("mustMerge", &[MAP], MAP, |budget, values| merge(budget, values, false)),
    variadic("mergeOverwrite", &[MAP], MAP, |budget, values| merge(budget, values, true)),
    variadic("mustMergeOverwrite", &[MAP], MAP, |budget, values| merge(budget, values, true)),
    function("deepCopy", &[ANY], |budget, values| copy(budget, &values[0])),
    function("mustDeepCopy", &[ANY], |budget, values| copy(budget, &values[0])),
    function("deepEqual", &[ANY, ANY], |budget, values| deep_equal(budget, &values[0], &values[1]).map(Value::Bool)),
    variadic("dig", &[ANY], ANY, dig),
];

/// `None`: a nil map.
fn entries(value: &Value) -> Option<&Entries> {
    match value {
        Value::Map(entries) => Some(entries),
        _ => None,
    }
}

fn dict(budget: &Budget, values: &[Value]) -> Returned {
    let mut map = BTreeMap::new();
    for pair in values.chunks(2) {
        let value = pair.get(1).cloned().unwrap_or_else(|| Value::text(""));
        map.insert(string_of(budget, &pair[0])?, value);
    }
    Ok(Value::map(map))
}

fn set(budget: &Budget, values: &[Value]) -> Returned {
    let Some(map) = entries(&values[0]) else { return Err("assignment to entry in nil map".into()) };
    if holds(budget, &values[2], map)? {
        return Err("a map cannot be put into itself".into());
    }
    map.borrow_mut().insert(text(&values[1]).into(), values[2].clone());
    Ok(values[0].clone())
}

/// The map is the value or a part of it. A cycle could never be written out.
fn holds(budget: &Budget, value: &Value, map: &Entries) -> Result<bool, String> {
    budget.spend(1)?;
    match value {
        Value::Map(inner) if Rc::ptr_eq(inner, map) => Ok(true),
        Value::Map(inner) => any_holds(budget, inner.borrow().values(), map),
        Value::List(items) => any_holds(budget, items.iter(), map),
        _ => Ok(false),
    }
}

fn any_holds<'v>(budget: &Budget, values: impl Iterator<Item = &'v Value>, map: &Entries) -> Result<bool, String> {
    for value in values {
        if holds(budget, value, map)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Into the first map, in place. `overwrites`: later ones win.
fn merge(budget: &Budget, values: &[Value], overwrites: bool) -> Returned {
    let Some(target) = entries(&values[0]) else { return Err("cannot merge into a nil map".into()) };
    for source in values[1..].iter().filter_map(entries) {
        merge_into(budget, target, source, overwrites)?;
    }
    Ok(values[0].clone())
}

fn merge_into(budget: &Budget, target: &Entries, source: &Entries, overwrites: bool) -> Result<(), String> {
    if Rc::ptr_eq(target, source) {
        return Ok(());
    }
    let pairs: Vec<(Arc<str>, Value)> =
        source.borrow().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    for (key, value) in pairs {
        budget.spend(1)?;
        let current = target.borrow().get(&key).cloned();
        match (&current, &value) {
            (Some(Value::Map(inner)), Value::Map(other)) => merge_into(budget, inner, other, overwrites)?,
            // What is empty counts as not there, on both sides.
            (Some(present), _) if present.truth() && !(overwrites && value.truth()) => {}
            _ => {
                let copied = copy(budget, &value)?;
                target.borrow_mut().insert(key, copied);
            }
        }
    }
    Ok(())
}

fn copy(budget: &Budget, value: &Value) -> Returned {
    budget.spend(1)?;
    Ok(match value {
        Value::Map(map) => {
            let copied = map
                .borrow()
                .iter()
                .map(|(key, value)| Ok((key.clone(), copy(budget, value)?)))
                .collect::<Result<_, String>>()?;
            Value::map(copied)
        }
        Value::List(items) => Value::list(items.iter().map(|item| copy(budget, item)).collect::<Result<_, _>>()?),
        other => other.clone(),
    })
}

/// Keys, a default, and the map in which to look.
fn dig(_: &Budget, values: &[Value]) -> Returned {
    let [path @ .., default, map] = values else { return Err("dig needs at least three arguments".into()) };
    if path.is_empty() {
        return Err("dig needs at least three arguments".into());
    }
    let Value::Map(_) = map else {
        return Err(format!(
            "interface conversion: interface {{}} is {}, not map[string]interface {{}}",
            map.type_name()
        ));
    };
    let mut at = map.clone();
    for key in path {
        let Value::Text(key) = key else { return Err("the keys of dig are strings".into()) };
        let next = match &at {
            Value::Map(map) => map.borrow().get(key).cloned(),
            other => {
                return Err(format!(
                    "interface conversion: interface {{}} is {}, not map[string]interface {{}}",
                    other.type_name()
                ));
            }
        };
        match next {
            Some(next) => at = next,
            None => return Ok(default.clone()),
        }
    }
    Ok(at)
}
