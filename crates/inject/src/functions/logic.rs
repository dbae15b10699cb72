//! Functions that choose: defaults, emptiness, failure, types.

use super::arguments::{ANY, TEXT, function, text, variadic};
use crate::template::{Function, Parameter, Value};

pub(super) static FUNCTIONS: &[Function] = &[
    variadic("default", &[ANY], ANY, |_, values| {
        let given = values.get(1).filter(|given| given.truth());
        Ok(given.unwrap_or(&values[0]).clone())
    }),
    function("empty", &[ANY], |_, values| Ok(Value::Bool(!values[0].truth()))),
    variadic("coalesce", &[], ANY, |_, values| {
        Ok(values.iter().find(|value| value.truth()).cloned().unwrap_or(Value::Missing))
    }),
    variadic("all", &[], ANY, |_, values| Ok(Value::Bool(values.iter().all(Value::truth)))),
    variadic("any", &[], ANY, |_, values| Ok(Value::Bool(values.iter().any(Value::truth)))),
    function("ternary", &[ANY, ANY, Parameter::Bool], |_, values| {
        Ok(if values[2].truth() { values[0].clone() } else { values[1].clone() })
    }),
    function("fail", &[TEXT], |_, values| Err(text(&values[0]).to_owned())),
    function("kindOf", &[ANY], |_, values| Ok(Value::text(&values[0].kind_name()))),
    function("kindIs", &[TEXT, ANY], |_, values| Ok(Value::Bool(values[1].kind_name() == text(&values[0])))),
    function("typeOf", &[ANY], |_, values| Ok(Value::text(&values[0].type_name()))),
    function("typeIs", &[TEXT, ANY], |_, values| Ok(Value::Bool(values[1].type_name() == text(&values[0])))),
    function("typeIsLike", &[TEXT, ANY], |_, values| {
        let (wanted, found) = (text(&values[0]), values[1].type_name());
        Ok(Value::Bool(found == wanted || found == format!("*{wanted}")))
    }),
];
