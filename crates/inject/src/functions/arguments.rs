//! How functions read their arguments, whose types were checked before the call.

use std::sync::Arc;

use crate::template::{Body, Budget, Function, Parameter, Value, sprint};

pub(super) type Returned = Result<Value, String>;

pub(super) const ANY: Parameter = Parameter::Any;
pub(super) const TEXT: Parameter = Parameter::Text;
pub(super) const INT: Parameter = Parameter::Int;

pub(super) const fn function(
    name: &'static str,
    parameters: &'static [Parameter],
    body: fn(&Budget, &[Value]) -> Returned,
) -> Function {
    Function { name, parameters, rest: None, body: Body::Call(body) }
}

pub(super) const fn variadic(
    name: &'static str,
    parameters: &'static [Parameter],
    rest: Parameter,
    body: fn(&Budget, &[Value]) -> Returned,
) -> Function {
    Function { name, parameters, rest: Some(rest), body: Body::Call(body) }
}

/// Of a parameter of type `Text`.
pub(super) fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

/// Of a parameter of type `Int`.
pub(super) fn int(value: &Value) -> i64 {
    match value {
        Value::Integer(number, _) => *number,
        _ => 0,
    }
}

/// sprig's `strval`.
pub(super) fn string_of(budget: &Budget, value: &Value) -> Result<Arc<str>, String> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => sprint(budget, other).map(Into::into),
    }
}

/// The items of a list. `Err`: it is none.
pub(super) fn items<'v>(name: &str, value: &'v Value) -> Result<&'v [Value], String> {
    match value {
        Value::List(items) => Ok(items),
        other => Err(format!("cannot use {} on type {}", name, other.type_name())),
    }
}

/// sprig's `strslice`: the items of a list as strings, without nils; any other value is a list of itself.
pub(super) fn strings(budget: &Budget, value: &Value) -> Result<Vec<Arc<str>>, String> {
    match value {
        Value::Missing | Value::Null => Ok(Vec::new()),
        Value::List(items) => {
            items.iter().filter(|item| !item.is_nothing()).map(|item| string_of(budget, item)).collect()
        }
        other => Ok(vec![string_of(budget, other)?]),
    }
}

/// Texts joined within the budget.
pub(super) fn joined(budget: &Budget, texts: &[Arc<str>], separator: &str) -> Returned {
    let length = texts.iter().map(|text| text.len() + separator.len()).sum();
    budget.spend_text(length)?;
    Ok(Value::text(&texts.join(separator)))
}

/// Equality as Go's `reflect.DeepEqual`: also of type.
pub(super) fn deep_equal(budget: &Budget, a: &Value, b: &Value) -> Result<bool, String> {
    budget.spend(1)?;
    Ok(match (a, b) {
        (Value::Missing | Value::Null, Value::Missing | Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Integer(a, a_type), Value::Integer(b, b_type)) => a == b && a_type == b_type,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Text(a), Value::Text(b)) => a == b,
        (Value::TextMap(a), Value::TextMap(b)) => a == b,
        (Value::Enum(_, a), Value::Enum(_, b)) => a == b,
        (Value::List(a), Value::List(b)) => {
            let mut equal = a.len() == b.len();
            for (a, b) in a.iter().zip(b.iter()) {
                equal = equal && deep_equal(budget, a, b)?;
            }
            equal
        }
        (Value::Map(a), Value::Map(b)) => {
            let (a, b) = (a.borrow(), b.borrow());
            let mut equal = a.len() == b.len();
            for (key, value) in a.iter() {
                equal = equal && b.get(key).map_or(Ok(false), |other| deep_equal(budget, value, other))?;
            }
            equal
        }
        (Value::Record(a), Value::Record(b)) => a.type_name() == b.type_name() && a.to_json() == b.to_json(),
        _ => false,
    })
}
