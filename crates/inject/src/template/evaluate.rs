//! Evaluation of pipelines: fields, variables, constants and calls, with Go's rules for what is missing. Control flow is in `render`.

use std::sync::Arc;

use super::budget::Budget;
use super::function::{Body, Function, Parameter};
use super::node::{Command, Number, Operand, OperandKind, Pipeline};
use super::value::Value;

/// What failed, and the offset and text of the part of the template that did.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) at: usize,
    pub(super) node: String,
    pub(super) what: String,
}

impl Failure {
    pub(super) fn new(at: usize, node: &(impl ToString + ?Sized), what: impl Into<String>) -> Failure {
        Failure { at, node: node.to_string(), what: what.into() }
    }
}

pub(super) type Evaluated = Result<Value, Failure>;

/// Variables in scope, the innermost last.
pub(super) struct Scope {
    pub(super) variables: Vec<(Arc<str>, Value)>,
    pub(super) budget: Budget,
}

impl Scope {
    pub(super) fn set(&mut self, name: &Arc<str>, value: Value) {
        if let Some(found) = self.variables.iter_mut().rev().find(|(known, _)| known == name) {
            found.1 = value;
        }
    }

    /// The value of a pipeline; its variables are declared or assigned.
    pub(super) fn pipeline(&mut self, dot: &Value, pipeline: &Pipeline) -> Evaluated {
        let value = self.value(dot, pipeline)?;
        for name in &pipeline.variables {
            if pipeline.assigns {
                self.set(name, value.clone());
            } else {
                self.variables.push((name.clone(), value.clone()));
            }
        }
        Ok(value)
    }

    pub(super) fn value(&self, dot: &Value, pipeline: &Pipeline) -> Evaluated {
        let mut last = None;
        for command in &pipeline.commands {
            // An interface that holds nil is no value at all once it leaves a command.
            last = Some(match self.command(dot, command, last)? {
                Value::Null => Value::Missing,
                value => value,
            });
        }
        Ok(last.unwrap_or(Value::Missing))
    }

    /// `last`: the value of the command before, which becomes the last argument.
    fn command(&self, dot: &Value, command: &Command, last: Option<Value>) -> Evaluated {
        let first = &command.operands[0];
        self.budget.spend(1).map_err(|what| Failure::new(command.at, command, what))?;
        let has_arguments = command.operands.len() > 1 || last.is_some();
        if let OperandKind::Function(function) = &first.kind {
            return self.call(dot, function, command, last);
        }
        if has_arguments {
            let what = match &first.kind {
                OperandKind::Field(fields)
                | OperandKind::Variable { fields, .. }
                | OperandKind::Chain { fields, .. }
                    if !fields.is_empty() =>
                {
                    let field = fields.last().map(|field| &**field).unwrap_or_default();
                    // Fails first if the field cannot be evaluated.
                    self.operand(dot, first)?;
                    format!("{field} is not a method but has arguments")
                }
                _ => format!("can't give argument to non-function {first}"),
            };
            return Err(Failure::new(first.at, first, what));
        }
        match &first.kind {
            OperandKind::Nil => Err(Failure::new(first.at, first, "nil is not a command")),
            _ => self.operand(dot, first),
        }
    }

    fn operand(&self, dot: &Value, operand: &Operand) -> Evaluated {
        match &operand.kind {
            OperandKind::Dot => Ok(dot.clone()),
            OperandKind::Nil => Ok(Value::Missing),
            OperandKind::Bool(value) => Ok(Value::Bool(*value)),
            OperandKind::Number(number) => ideal(number).map_err(|what| Failure::new(operand.at, operand, what)),
            OperandKind::Text { value, .. } => Ok(Value::Text(value.clone())),
            OperandKind::Function(function) => {
                let command = Command { at: operand.at, operands: vec![operand.clone()] };
                self.call(dot, function, &command, None)
            }
            OperandKind::Field(fields) => self.fields(dot.clone(), fields, operand),
            OperandKind::Variable { name, fields } => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let value = found.map_or(Value::Missing, |(_, value)| value.clone());
                self.fields(value, fields, operand)
            }
            OperandKind::Chain { operand: inner, fields } => {
                let value = self.operand(dot, inner)?;
                self.fields(value, fields, operand)
            }
            OperandKind::Pipeline(pipeline) => self.value(dot, pipeline),
        }
    }

    fn fields(&self, start: Value, fields: &[Arc<str>], operand: &Operand) -> Evaluated {
        fields.iter().try_fold(start, |value, name| {
            self.budget
                .spend(1)
                .and_then(|()| field(&value, name))
                .map_err(|what| Failure::new(operand.at, operand, what))
        })
    }

    fn call(&self, dot: &Value, function: &Function, command: &Command, last: Option<Value>) -> Evaluated {
        let arguments = &command.operands[1..];
        let failure = |what: String| Failure::new(command.at, command, what);
        let count = arguments.len() + usize::from(last.is_some());
        let fixed = function.parameters.len();
        if count < fixed || function.rest.is_none() && count > fixed {
            let wanted = if function.rest.is_some() { format!("at least {fixed}") } else { fixed.to_string() };
            let text = format!("wrong number of args for {}: want {wanted} got {count}", function.name);
            return Err(failure(text));
        }
        let body = match function.body {
            Body::Call(body) => body,
            Body::And => return self.until(dot, arguments, last, false),
            Body::Or => return self.until(dot, arguments, last, true),
        };
        let parameter = |at: usize| function.parameters.get(at).copied().or(function.rest).unwrap_or(Parameter::Any);
        let mut values = Vec::with_capacity(count);
        for (at, argument) in arguments.iter().enumerate() {
            values.push(self.argument(dot, argument, parameter(at))?);
        }
        if let Some(last) = last {
            values.push(parameter(values.len()).accept(last).map_err(failure)?);
        }
        self.budget.spend(values.len()).map_err(failure)?;
        let result = body(&self.budget, &values);
        result.map_err(|what| failure(format!("error calling {}: {what}", function.name)))
    }

    /// `and` and `or`: the first argument whose truth is `stop`, else the last one.
    fn until(&self, dot: &Value, arguments: &[Operand], last: Option<Value>, stop: bool) -> Evaluated {
        let mut value = Value::Missing;
        for argument in arguments {
            value = self.argument(dot, argument, Parameter::Any)?;
            if value.truth() == stop {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    /// Constants take the type of the parameter; other values must have it.
    fn argument(&self, dot: &Value, argument: &Operand, parameter: Parameter) -> Evaluated {
        let failure = |what: String| Failure::new(argument.at, argument, what);
        let mismatch = || Err(failure(format!("expected {}; found {argument}", constant_name(parameter))));
        match (&argument.kind, parameter) {
            (OperandKind::Nil, Parameter::Text | Parameter::Bool | Parameter::Int | Parameter::Float) => {
                Err(failure(format!("cannot assign nil to {}", parameter.type_name())))
            }
            (OperandKind::Bool(_), Parameter::Any | Parameter::Bool)
            | (OperandKind::Text { .. }, Parameter::Any | Parameter::Text)
            | (OperandKind::Number(_), Parameter::Any) => self.operand(dot, argument),
            (OperandKind::Number(number), Parameter::Int) => match number.integer {
                Some(integer) => Ok(Value::int(integer)),
                None => mismatch(),
            },
            (OperandKind::Number(number), Parameter::Float) => Ok(Value::Float(number.float)),
            (OperandKind::Bool(_) | OperandKind::Text { .. } | OperandKind::Number(_), _) => mismatch(),
            _ => parameter.accept(self.operand(dot, argument)?).map_err(failure),
        }
    }
}

fn constant_name(parameter: Parameter) -> &'static str {
    match parameter {
        Parameter::Int => "integer",
        Parameter::Float => "float",
        other => other.type_name(),
    }
}

/// A number where any type fits: a float if it is written as one.
fn ideal(number: &Number) -> Result<Value, String> {
    let source = &*number.source;
    let hexadecimal = source.contains(['x', 'X']) || source.starts_with('\'');
    match number.integer {
        Some(integer) if hexadecimal || !source.contains(['.', 'e', 'E', 'p', 'P']) => Ok(Value::int(integer)),
        None if !source.contains(['.', 'e', 'E', 'p', 'P']) => Err(format!("{source} overflows int")),
        _ => Ok(Value::Float(number.float)),
    }
}

/// `.name` of a value.
pub(super) fn field(value: &Value, name: &str) -> Result<Value, String> {
    match value {
        Value::Missing => Ok(Value::Missing),
        Value::Null => Err(format!("nil pointer evaluating interface {{}}.{name}")),
        Value::Map(entries) => Ok(entries.borrow().get(name).cloned().unwrap_or(Value::Missing)),
        Value::TextMap(entries) => Ok(entries.get(name).map_or(Value::Missing, |text| Value::Text(text.clone()))),
        Value::Record(record) => match record.field(name) {
            Some(found) => found,
            None => Err(format!("can't evaluate field {name} in type {}", record.type_name())),
        },
        Value::Enum(text, _) if name == "String" => Ok(Value::Text(text.clone())),
        other => Err(format!("can't evaluate field {name} in type {}", other.type_name())),
    }
}
