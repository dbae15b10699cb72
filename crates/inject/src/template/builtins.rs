//! The functions that every Go template has.

use std::cmp::Ordering;

use super::budget::Budget;
use super::format::{Writer, write_value};
use super::function::{Body, Function, Parameter};
use super::printf::sprintf;
use super::value::{IntegerType, Value};

type Returned = Result<Value, String>;

const fn function(
    name: &'static str,
    parameters: &'static [Parameter],
    rest: Option<Parameter>,
    body: Body,
) -> Function {
    Function { name, parameters, rest, body }
}

const ANY: &[Parameter] = &[Parameter::Any];
const TWO: &[Parameter] = &[Parameter::Any, Parameter::Any];
const MORE: Option<Parameter> = Some(Parameter::Any);

pub(super) static BUILTINS: &[Function] = &[
    function("and", ANY, MORE, Body::And),
    function("or", ANY, MORE, Body::Or),
    function("not", ANY, None, Body::Call(|_, values| Ok(Value::Bool(!values[0].truth())))),
    function("len", ANY, None, Body::Call(|_, values| length(&values[0]))),
    function("index", ANY, MORE, Body::Call(|_, values| index(values))),
    function("slice", ANY, MORE, Body::Call(|_, values| slice(values))),
    function("print", &[], MORE, Body::Call(|budget, values| print(budget, values).map(|text| Value::text(&text)))),
    function("println", &[], MORE, Body::Call(println)),
    function("printf", &[Parameter::Text], MORE, Body::Call(printf)),
    function("html", &[], MORE, Body::Call(|budget, values| escaped(budget, values, html))),
    function("js", &[], MORE, Body::Call(|budget, values| escaped(budget, values, js))),
    function("urlquery", &[], MORE, Body::Call(|budget, values| escaped(budget, values, url_query))),
    function("call", ANY, MORE, Body::Call(|_, _| Err("there are no function values here".into()))),
    function("eq", ANY, MORE, Body::Call(|_, values| eq(values).map(Value::Bool))),
    function("ne", TWO, None, Body::Call(|_, values| eq(values).map(|equal| Value::Bool(!equal)))),
    function("lt", TWO, None, Body::Call(|_, values| order(values, Ordering::is_lt))),
    function("le", TWO, None, Body::Call(|_, values| order(values, Ordering::is_le))),
    function("gt", TWO, None, Body::Call(|_, values| order(values, Ordering::is_gt))),
    function("ge", TWO, None, Body::Call(|_, values| order(values, Ordering::is_ge))),
];

fn length(value: &Value) -> Returned {
    let length = match value {
        Value::Missing | Value::Null => return Err("len of nil pointer".into()),
        Value::Text(text) => text.len(),
        Value::List(items) => items.len(),
        Value::Map(entries) => entries.borrow().len(),
        Value::TextMap(entries) => entries.len(),
        other => return Err(format!("len of type {}", other.type_name())),
    };
    Ok(Value::int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn index(values: &[Value]) -> Returned {
    let (item, keys) = values.split_first().ok_or("index of untyped nil")?;
    if matches!(item, Value::Missing) {
        return Err("index of untyped nil".into());
    }
    keys.iter().try_fold(item.clone(), |item, key| index_once(&item, key))
}

fn index_once(item: &Value, key: &Value) -> Returned {
    let text_key = || match key {
        Value::Text(key) => Ok(key.clone()),
        Value::Missing | Value::Null => Err("value is nil; should be of type string".to_owned()),
        other => Err(format!("value has type {}; should be string", other.type_name())),
    };
    match item {
        Value::Missing | Value::Null => Err("index of nil pointer".into()),
        Value::Map(entries) => Ok(entries.borrow().get(&text_key()?).cloned().unwrap_or(Value::Null)),
        Value::TextMap(entries) => {
            Ok(entries.get(&text_key()?).map_or_else(|| Value::text(""), |text| Value::Text(text.clone())))
        }
        Value::List(items) => Ok(items[position(key, items.len())?].clone()),
        Value::Text(text) => {
            let byte = text.as_bytes()[position(key, text.len())?];
            Ok(Value::Integer(i64::from(byte), IntegerType::Uint8))
        }
        other => Err(format!("can't index item of type {}", other.type_name())),
    }
}

/// An index below `end`.
fn position(key: &Value, end: usize) -> Result<usize, String> {
    let number = match key {
        Value::Integer(number, _) | Value::Enum(_, number) => *number,
        Value::Missing | Value::Null => return Err("cannot index slice/array with nil".into()),
        other => return Err(format!("cannot index slice/array with type {}", other.type_name())),
    };
    let fits = usize::try_from(number).ok().filter(|at| *at < end);
    fits.ok_or_else(|| format!("index out of range: {number}"))
}

fn slice(values: &[Value]) -> Returned {
    let (item, bounds) = values.split_first().ok_or("slice of untyped nil")?;
    if bounds.len() > 3 {
        return Err(format!("too many slice indexes: {}", bounds.len()));
    }
    let length = match item {
        Value::Missing | Value::Null => return Err("slice of untyped nil".into()),
        Value::Text(_) if bounds.len() == 3 => return Err("cannot 3-index slice a string".into()),
        Value::Text(text) => text.len(),
        Value::List(items) => items.len(),
        other => return Err(format!("can't slice item of type {}", other.type_name())),
    };
    let bound = |at: usize, default: usize| bounds.get(at).map_or(Ok(default), |key| position(key, length + 1));
    let (from, to) = (bound(0, 0)?, bound(1, length)?);
    bound(2, length)?;
    if from > to {
        return Err(format!("invalid slice index: {from} > {to}"));
    }
    match item {
        Value::Text(text) => Ok(Value::text(&String::from_utf8_lossy(&text.as_bytes()[from..to]))),
        Value::List(items) => Ok(Value::list(items[from..to].to_vec())),
        _ => Ok(Value::Missing),
    }
}

/// Spaces only between operands of which neither is a string.
fn print(budget: &Budget, values: &[Value]) -> Result<String, String> {
    let mut writer = Writer::new(budget);
    for (at, value) in values.iter().enumerate() {
        let text = |value: &Value| matches!(value, Value::Text(_));
        if at > 0 && !text(value) && !text(&values[at - 1]) {
            writer.push(" ")?;
        }
        write_value(&mut writer, value)?;
    }
    Ok(writer.finish())
}

fn println(budget: &Budget, values: &[Value]) -> Returned {
    let mut writer = Writer::new(budget);
    for (at, value) in values.iter().enumerate() {
        writer.push(if at > 0 { " " } else { "" })?;
        write_value(&mut writer, value)?;
    }
    writer.push("\n")?;
    Ok(Value::text(&writer.finish()))
}

fn printf(budget: &Budget, values: &[Value]) -> Returned {
    let Some((Value::Text(format), arguments)) = values.split_first() else { return Err("no format".into()) };
    sprintf(budget, format, arguments).map(|text| Value::text(&text))
}

fn escaped(budget: &Budget, values: &[Value], escape: fn(char) -> Option<String>) -> Returned {
    let shown = |value: &Value| if value.is_nothing() { Value::text("<no value>") } else { value.clone() };
    let values: Vec<Value> = values.iter().map(shown).collect();
    let text = print(budget, &values)?;
    let mut writer = Writer::new(budget);
    for c in text.chars() {
        match escape(c) {
            Some(escaped) => writer.push(&escaped)?,
            None => writer.push(c.encode_utf8(&mut [0; 4]))?,
        }
    }
    Ok(Value::text(&writer.finish()))
}

fn html(c: char) -> Option<String> {
    let escaped = match c {
        '"' => "&#34;",
        '\'' => "&#39;",
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '\0' => "\u{fffd}",
        _ => return None,
    };
    Some(escaped.to_owned())
}

fn js(c: char) -> Option<String> {
    let escaped = match c {
        '\\' => "\\\\",
        '\'' => "\\'",
        '"' => "\\\"",
        '<' => "\\u003C",
        '>' => "\\u003E",
        '&' => "\\u0026",
        '=' => "\\u003D",
        c if c.is_ascii_control() => return Some(format!("\\u{:04X}", u32::from(c))),
        _ => return None,
    };
    Some(escaped.to_owned())
}

fn url_query(c: char) -> Option<String> {
    match c {
        ' ' => Some("+".to_owned()),
        c if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~') => None,
        c => Some(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")).collect()),
    }
}

/// What Go compares: values of one of these kinds only with each other.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Basic<'a> {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(&'a str),
    Nothing,
    Other,
}

fn basic(value: &Value) -> Basic<'_> {
    match value {
        Value::Bool(value) => Basic::Bool(*value),
        Value::Integer(number, _) | Value::Enum(_, number) => Basic::Integer(*number),
        Value::Float(number) => Basic::Float(*number),
        Value::Text(text) => Basic::Text(text),
        Value::Missing | Value::Null => Basic::Nothing,
        Value::List(_) | Value::Map(_) | Value::TextMap(_) | Value::Record(_) => Basic::Other,
    }
}

const INCOMPATIBLE: &str = "incompatible types for comparison";

/// The first argument equals any of the others.
fn eq(values: &[Value]) -> Result<bool, String> {
    let (first, others) = values.split_first().ok_or("missing argument for comparison")?;
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        if eq_two(first, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn eq_two(first: &Value, other: &Value) -> Result<bool, String> {
    match (basic(first), basic(other)) {
        (Basic::Other, Basic::Nothing) | (Basic::Nothing, Basic::Other) => Ok(is_nil(first) && is_nil(other)),
        (Basic::Nothing, b) => Ok(b == Basic::Nothing),
        (_, Basic::Nothing) => Ok(false),
        (Basic::Other, Basic::Other) => match (first, other) {
            (Value::Record(a), Value::Record(b)) => Ok(std::rc::Rc::ptr_eq(a, b)),
            _ => Err(format!("non-comparable types {}, {}", first.type_name(), other.type_name())),
        },
        (a, b) if std::mem::discriminant(&a) == std::mem::discriminant(&b) => Ok(a == b),
        _ => Err(INCOMPATIBLE.into()),
    }
}

fn is_nil(value: &Value) -> bool {
    match value {
        Value::Missing | Value::Null => true,
        Value::Record(record) => record.is_nil(),
        _ => false,
    }
}

fn order(values: &[Value], wanted: fn(Ordering) -> bool) -> Returned {
    let ordering = match (basic(&values[0]), basic(&values[1])) {
        (Basic::Integer(a), Basic::Integer(b)) => Some(a.cmp(&b)),
        (Basic::Text(a), Basic::Text(b)) => Some(a.cmp(b)),
        // Nothing is less or greater than NaN.
        (Basic::Float(a), Basic::Float(b)) => return Ok(Value::Bool(a.partial_cmp(&b).is_some_and(wanted))),
        (Basic::Nothing | Basic::Other | Basic::Bool(_), _) | (_, Basic::Nothing | Basic::Other) => {
            return Err("invalid type for comparison".into());
        }
        _ => None,
    };
    ordering.map(|ordering| Value::Bool(wanted(ordering))).ok_or_else(|| INCOMPATIBLE.into())
}
