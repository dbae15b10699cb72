//! Functions on lists.

use super::arguments::{ANY, INT, Returned, deep_equal, function, int, items, variadic};
use super::conversion::to_integer;
use crate::template::{Body, Budget, Function, Parameter, Value};

pub(super) static FUNCTIONS: &[Function] = &[
    variadic("list", &[], ANY, |_, values| Ok(Value::list(values.to_vec()))),
    variadic("tuple", &[], ANY, |_, values| Ok(Value::list(values.to_vec()))),
    function("first", &[ANY], |_, values| Ok(items("first", &values[0])?.first().cloned().unwrap_or(Value::Missing))),
    function("mustFirst", &[ANY], |_, values| {
        Ok(items("first", &values[0])?.first().cloned().unwrap_or(Value::Missing))
    }),
    function("last", &[ANY], |_, values| Ok(items("last", &values[0])?.last().cloned().unwrap_or(Value::Missing))),
    function("mustLast", &[ANY], |_, values| Ok(items("last", &values[0])?.last().cloned().unwrap_or(Value::Missing))),
    function("rest", &[ANY], |budget, values| part(budget, "rest", &values[0], 1, 0)),
    function("mustRest", &[ANY], |budget, values| part(budget, "rest", &values[0], 1, 0)),
    function("initial", &[ANY], |budget, values| part(budget, "initial", &values[0], 0, 1)),
    function("mustInitial", &[ANY], |budget, values| part(budget, "initial", &values[0], 0, 1)),
    function("reverse", &[ANY], reverse),
    function("mustReverse", &[ANY], reverse),
    function("append", &[ANY, ANY], push),
    function("mustAppend", &[ANY, ANY], push),
    function("push", &[ANY, ANY], push),
    function("mustPush", &[ANY, ANY], push),
    function("prepend", &[ANY, ANY], prepend),
    function("mustPrepend", &[ANY, ANY], prepend),
    function("uniq", &[ANY], uniq),
    function("mustUniq", &[ANY], uniq),
    function("compact", &[ANY], compact),
    function("mustCompact", &[ANY], compact),
    variadic("without", &[ANY], ANY, without),
    variadic("mustWithout", &[ANY], ANY, without),
    function("has", &[ANY, ANY], has),
    function("mustHas", &[ANY, ANY], has),
    variadic("slice", &[ANY], ANY, slice),
    variadic("mustSlice", &[ANY], ANY, slice),
    variadic("concat", &[], ANY, concat),
    function("chunk", &[INT, ANY], chunk),
    function("mustChunk", &[INT, ANY], chunk),
    function("until", &[INT], |budget, values| {
        let end = int(&values[0]);
        steps(budget, 0, end, if end < 0 { -1 } else { 1 })
    }),
    function("untilStep", &[INT, INT, INT], |budget, values| {
        steps(budget, int(&values[0]), int(&values[1]), int(&values[2]))
    }),
    Function { name: "seq", parameters: &[], rest: Some(Parameter::Int), body: Body::Call(seq) },
];

fn part(budget: &Budget, name: &str, value: &Value, from_start: usize, from_end: usize) -> Returned {
    let items = items(name, value)?;
    if items.is_empty() {
        return Ok(Value::Missing);
    }
    budget.spend(items.len())?;
    Ok(Value::list(items[from_start..items.len() - from_end].to_vec()))
}

fn reverse(budget: &Budget, values: &[Value]) -> Returned {
    let items = items("reverse", &values[0])?;
    budget.spend(items.len())?;
    Ok(Value::list(items.iter().rev().cloned().collect()))
}

fn push(budget: &Budget, values: &[Value]) -> Returned {
    let items = items("push", &values[0])?;
    budget.spend(items.len())?;
    Ok(Value::list(items.iter().chain(&values[1..2]).cloned().collect()))
}

fn prepend(budget: &Budget, values: &[Value]) -> Returned {
    let items = items("prepend", &values[0])?;
    budget.spend(items.len())?;
    Ok(Value::list(values[1..2].iter().chain(items).cloned().collect()))
}

fn contains(budget: &Budget, items: &[Value], wanted: &Value) -> Result<bool, String> {
    for item in items {
        if deep_equal(budget, item, wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(budget: &Budget, values: &[Value]) -> Returned {
    let mut kept: Vec<Value> = Vec::new();
    for item in items("uniq", &values[0])? {
        if !contains(budget, &kept, item)? {
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}

fn compact(budget: &Budget, values: &[Value]) -> Returned {
    let items = items("compact", &values[0])?;
    budget.spend(items.len())?;
    Ok(Value::list(items.iter().filter(|item| item.truth()).cloned().collect()))
}

fn without(budget: &Budget, values: &[Value]) -> Returned {
    let mut kept: Vec<Value> = Vec::new();
    for item in items("without", &values[0])? {
        if !contains(budget, &values[1..], item)? {
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}

fn has(budget: &Budget, values: &[Value]) -> Returned {
    match &values[1] {
        Value::Missing => Ok(Value::Bool(false)),
        haystack => Ok(Value::Bool(contains(budget, items("has", haystack)?, &values[0])?)),
    }
}

fn slice(budget: &Budget, values: &[Value]) -> Returned {
    let items = items("slice", &values[0])?;
    if items.is_empty() {
        return Ok(Value::Missing);
    }
    budget.spend(items.len())?;
    let bound =
        |at: usize, default: usize| values.get(at).map_or(Ok(default), |value| usize::try_from(to_integer(value)));
    let range = bound(1, 0).ok().zip(bound(2, items.len()).ok());
    let part = range.and_then(|(from, to)| items.get(from..to));
    part.map(|part| Value::list(part.to_vec())).ok_or_else(|| "slice bounds out of range".to_owned())
}

fn concat(budget: &Budget, values: &[Value]) -> Returned {
    let mut all = Vec::new();
    for value in values {
        let items = items("concat", value).map_err(|_| format!("cannot concat type {} as list", value.kind_name()))?;
        budget.spend(items.len())?;
        all.extend(items.iter().cloned());
    }
    Ok(Value::list(all))
}

fn chunk(budget: &Budget, values: &[Value]) -> Returned {
    let size = usize::try_from(int(&values[0])).ok().filter(|size| *size > 0);
    let size = size.ok_or("the size of a chunk must be positive")?;
    let items = items("chunk", &values[1])?;
    budget.spend(items.len())?;
    Ok(Value::list(items.chunks(size).map(|chunk| Value::list(chunk.to_vec())).collect()))
}

fn steps(budget: &Budget, start: i64, stop: i64, step: i64) -> Returned {
    let mut numbers = Vec::new();
    let mut at = start;
    while step > 0 && at < stop || step < 0 && at > stop {
        budget.spend(1)?;
        numbers.push(Value::int(at));
        at = at.saturating_add(step);
    }
    Ok(Value::list(numbers))
}

/// Numbers with spaces between, the last one included.
fn seq(budget: &Budget, values: &[Value]) -> Returned {
    let numbers: Vec<i64> = values.iter().map(int).collect();
    let toward = |start: i64, stop: i64| if stop < start { -1 } else { 1 };
    let (start, step, stop) = match numbers[..] {
        [] => return Ok(Value::text("")),
        [stop] => (1, toward(1, stop), stop),
        [start, stop] => (start, toward(start, stop), stop),
        [start, step, stop] if (stop < start) == (step < 0) => (start, step, stop),
        _ => return Ok(Value::text("")),
    };
    let end = stop.saturating_add(if step < 0 { -1 } else { 1 });
    let Value::List(numbers) = steps(budget, start, end, step)? else { return Ok(Value::text("")) };
    let numbers: Vec<String> = numbers.iter().map(|number| int(number).to_string()).collect();
    Ok(Value::text(&numbers.join(" ")))
}
