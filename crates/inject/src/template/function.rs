//! What a function of templates is: its name, the types of its parameters, its body. Arguments are converted as Go's reflection does.

use super::budget::Budget;
use super::value::{IntegerType, Value};

pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// The type of any further arguments. `None`: there are none.
    pub(crate) rest: Option<Parameter>,
    pub(crate) body: Body,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Body {
    Call(fn(&Budget, &[Value]) -> Result<Value, String>),
    /// Stops at the first argument that is false.
    And,
    /// Stops at the first argument that is true.
    Or,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameter {
    Any,
    Text,
    Bool,
    Int,
    Float,
    /// `[]interface{}` or any list.
    List,
    /// `map[string]interface{}`.
    Map,
    /// `map[string]string`.
    TextMap,
    Record,
}

impl Parameter {
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Parameter::Any => "interface {}",
            Parameter::Text => "string",
            Parameter::Bool => "bool",
            Parameter::Int => "int",
            Parameter::Float => "float64",
            Parameter::List => "[]interface {}",
            Parameter::Map => "map[string]interface {}",
            Parameter::TextMap => "map[string]string",
            Parameter::Record => "struct",
        }
    }

    /// A value that is not a constant of the template, as this parameter takes it.
    pub(super) fn accept(self, value: Value) -> Result<Value, String> {
        let fits = match (self, &value) {
            (Parameter::Any, Value::Null) => return Ok(Value::Missing),
            (Parameter::List | Parameter::Map | Parameter::TextMap | Parameter::Record, Value::Missing) => true,
            (_, Value::Missing) if self != Parameter::Any => {
                return Err(format!("invalid value; expected {}", self.type_name()));
            }
            (Parameter::Any, _)
            | (Parameter::Text, Value::Text(_))
            | (Parameter::Bool, Value::Bool(_))
            | (Parameter::Int, Value::Integer(_, IntegerType::Int))
            | (Parameter::Float, Value::Float(_))
            | (Parameter::List, Value::List(_))
            | (Parameter::Map, Value::Map(_))
            | (Parameter::TextMap, Value::TextMap(_))
            | (Parameter::Record, Value::Record(_)) => true,
            _ => false,
        };
        if fits {
            Ok(value)
        } else {
            Err(format!("wrong type for value; expected {}; got {}", self.type_name(), value.type_name()))
        }
    }
}
