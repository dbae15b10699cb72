//! The syntax tree of a template.

use std::fmt;
use std::sync::Arc;

use super::function::Function;

#[derive(Debug, Clone)]
pub(super) enum Node {
    Text(Arc<str>),
    Action(Pipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { at: usize, name: Arc<str>, argument: Option<Pipeline> },
    Break,
    Continue,
}

#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) at: usize,
    pub(super) pipeline: Pipeline,
    pub(super) then: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

#[derive(Debug, Clone)]
pub(super) struct Pipeline {
    pub(super) at: usize,
    pub(super) variables: Vec<Arc<str>>,
    /// `=`; otherwise `:=`.
    pub(super) assigns: bool,
    pub(super) commands: Vec<Command>,
}

#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) at: usize,
    /// Not empty.
    pub(super) operands: Vec<Operand>,
}

#[derive(Debug, Clone)]
pub(super) struct Operand {
    pub(super) at: usize,
    pub(super) kind: OperandKind,
}

#[derive(Debug, Clone)]
pub(super) enum OperandKind {
    Dot,
    Nil,
    Bool(bool),
    Number(Number),
    Text { value: Arc<str>, source: Arc<str> },
    Function(&'static Function),
    Field(Vec<Arc<str>>),
    Variable { name: Arc<str>, fields: Vec<Arc<str>> },
    Chain { operand: Box<Operand>, fields: Vec<Arc<str>> },
    Pipeline(Box<Pipeline>),
}

/// A constant may be an integer, a float or both, like Go's.
#[derive(Debug, Clone)]
pub(super) struct Number {
    pub(super) source: Arc<str>,
    pub(super) integer: Option<i64>,
    pub(super) float: f64,
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let names: Vec<&str> = self.variables.iter().map(|name| &**name).collect();
            write!(f, "{} {} ", names.join(", "), if self.assigns { "=" } else { ":=" })?;
        }
        write_joined(f, &self.commands, " | ")
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, operand) in self.operands.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{operand}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OperandKind::Dot => f.write_str("."),
            OperandKind::Nil => f.write_str("nil"),
            OperandKind::Bool(value) => write!(f, "{value}"),
            OperandKind::Number(number) => f.write_str(&number.source),
            OperandKind::Text { source, .. } => f.write_str(source),
            OperandKind::Function(function) => f.write_str(function.name),
            OperandKind::Field(fields) => write_fields(f, fields),
            OperandKind::Variable { name, fields } => {
                f.write_str(name)?;
                write_fields(f, fields)
            }
            OperandKind::Chain { operand, fields } => {
                write!(f, "{operand}")?;
                write_fields(f, fields)
            }
            OperandKind::Pipeline(pipeline) => write!(f, "({pipeline})"),
        }
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[Arc<str>]) -> fmt::Result {
    fields.iter().try_for_each(|field| write!(f, ".{field}"))
}

fn write_joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T], separator: &str) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_str(separator)?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}
