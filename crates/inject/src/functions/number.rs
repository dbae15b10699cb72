//! Arithmetic, on 64-bit integers and on floats.

use super::arguments::{ANY, INT, Returned, function, int, variadic};
use super::conversion::{to_float, to_integer};
use crate::template::{Function, IntegerType, Parameter, Value};

pub(super) static FUNCTIONS: &[Function] = &[
    variadic("add", &[], ANY, |_, values| folded(values, Some(0), i64::checked_add)),
    function("add1", &[ANY], |_, values| integer(to_integer(&values[0]).checked_add(1))),
    function("sub", &[ANY, ANY], |_, values| integer(to_integer(&values[0]).checked_sub(to_integer(&values[1])))),
    function("div", &[ANY, ANY], |_, values| divided(values, i64::checked_div)),
    function("mod", &[ANY, ANY], |_, values| divided(values, i64::checked_rem)),
    variadic("mul", &[ANY], ANY, |_, values| folded(values, Some(1), i64::checked_mul)),
    variadic("max", &[ANY], ANY, |_, values| integer(values.iter().map(to_integer).max())),
    variadic("biggest", &[ANY], ANY, |_, values| integer(values.iter().map(to_integer).max())),
    variadic("min", &[ANY], ANY, |_, values| integer(values.iter().map(to_integer).min())),
    variadic("maxf", &[ANY], ANY, |_, values| {
        Ok(Value::Float(values.iter().map(to_float).fold(f64::NEG_INFINITY, f64::max)))
    }),
    variadic("minf", &[ANY], ANY, |_, values| {
        Ok(Value::Float(values.iter().map(to_float).fold(f64::INFINITY, f64::min)))
    }),
    variadic("addf", &[], ANY, |_, values| Ok(Value::Float(values.iter().map(to_float).sum()))),
    function("add1f", &[ANY], |_, values| Ok(Value::Float(to_float(&values[0]) + 1.0))),
    variadic("subf", &[ANY], ANY, |_, values| floats(values, |a, b| a - b)),
    variadic("mulf", &[ANY], ANY, |_, values| floats(values, |a, b| a * b)),
    variadic("divf", &[ANY], ANY, |_, values| floats(values, |a, b| a / b)),
    function("floor", &[ANY], |_, values| Ok(Value::Float(to_float(&values[0]).floor()))),
    function("ceil", &[ANY], |_, values| Ok(Value::Float(to_float(&values[0]).ceil()))),
    variadic("round", &[ANY, INT], Parameter::Float, |_, values| {
        let at = values.get(2).map_or(0.5, to_float);
        Ok(Value::Float(rounded(to_float(&values[0]), int(&values[1]), at)))
    }),
];

fn integer(number: Option<i64>) -> Returned {
    number.map(|number| Value::Integer(number, IntegerType::Int64)).ok_or_else(|| "integer overflow".to_owned())
}

fn folded(values: &[Value], start: Option<i64>, step: fn(i64, i64) -> Option<i64>) -> Returned {
    integer(values.iter().fold(start, |sum, value| step(sum?, to_integer(value))))
}

fn divided(values: &[Value], operation: fn(i64, i64) -> Option<i64>) -> Returned {
    let result = operation(to_integer(&values[0]), to_integer(&values[1]));
    result.map(|number| Value::Integer(number, IntegerType::Int64)).ok_or_else(|| "integer divide by zero".to_owned())
}

fn floats(values: &[Value], operation: fn(f64, f64) -> f64) -> Returned {
    let mut numbers = values.iter().map(to_float);
    let first = numbers.next().unwrap_or_default();
    Ok(Value::Float(numbers.fold(first, operation)))
}

/// To so many decimals; up from a fraction of `at` on.
fn rounded(number: f64, decimals: i64, at: f64) -> f64 {
    let scale = 10_f64.powi(i32::try_from(decimals).unwrap_or(0));
    let scaled = number * scale;
    let whole = if scaled.fract().abs() >= at { scaled.ceil() } else { scaled.floor() };
    whole / scale
}
