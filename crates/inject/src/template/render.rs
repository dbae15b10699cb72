//! Execution of a syntax tree: text, actions, branches, loops and invocations write the output.

use std::sync::Arc;

use super::budget::{Budget, MAX_TEXT};
use super::evaluate::{Failure, Scope};
use super::format::display;
use super::node::{Branch, Node, Pipeline};
use super::parser::Definitions;
use super::value::{IntegerType, Value};

/// Invocations inside invocations. Go allows more than our stack holds.
const MAX_DEPTH: usize = 100;

/// A failure and the definition in which it happened.
pub(super) struct RenderFailure {
    pub(super) definition: Arc<str>,
    pub(super) failure: Failure,
}

pub(super) fn render(definitions: &Definitions, name: &str, data: &Value) -> Result<String, RenderFailure> {
    let scope = Scope { variables: vec![("$".into(), data.clone())], budget: Budget::new() };
    let mut renderer = Renderer { definitions, definition: name.into(), scope, output: String::new(), depth: 0 };
    let nodes = definitions.get(name).map_or(&[][..], Vec::as_slice);
    match renderer.nodes(data, nodes) {
        Ok(_) => Ok(renderer.output),
        Err(failure) => Err(RenderFailure { definition: renderer.definition, failure }),
    }
}

struct Renderer<'a> {
    definitions: &'a Definitions,
    definition: Arc<str>,
    scope: Scope,
    output: String,
    depth: usize,
}

/// How a list of nodes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl Renderer<'_> {
    fn nodes(&mut self, dot: &Value, nodes: &[Node]) -> Result<Flow, Failure> {
        for node in nodes {
            let flow = self.node(dot, node)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Value, node: &Node) -> Result<Flow, Failure> {
        match node {
            Node::Text(text) => {
                self.write(text, 0)?;
                Ok(Flow::Next)
            }
            Node::Action(pipeline) => {
                let value = self.scope.pipeline(dot, pipeline)?;
                if pipeline.variables.is_empty() {
                    let text = display(&self.scope.budget, &value);
                    let text = text.map_err(|what| Failure::new(pipeline.at, pipeline, what))?;
                    self.write(&text, pipeline.at)?;
                }
                Ok(Flow::Next)
            }
            Node::If(branch) => self.choose(dot, branch, false),
            Node::With(branch) => self.choose(dot, branch, true),
            Node::Range(branch) => self.range(dot, branch),
            Node::Template { at, name, argument } => {
                self.invoke(dot, *at, name, argument.as_ref())?;
                Ok(Flow::Next)
            }
            Node::Break => Ok(Flow::Break),
            Node::Continue => Ok(Flow::Continue),
        }
    }

    fn write(&mut self, text: &str, at: usize) -> Result<(), Failure> {
        if self.output.len() + text.len() > MAX_TEXT {
            return Err(Failure::new(at, "output", format!("the output has more than {} MiB", MAX_TEXT >> 20)));
        }
        self.output.push_str(text);
        Ok(())
    }

    /// `narrows`: of `with`, whose value becomes the dot.
    fn choose(&mut self, dot: &Value, branch: &Branch, narrows: bool) -> Result<Flow, Failure> {
        let variables = self.scope.variables.len();
        let value = self.scope.pipeline(dot, &branch.pipeline)?;
        let flow = if value.truth() {
            self.nodes(if narrows { &value } else { dot }, &branch.then)
        } else {
            self.nodes(dot, &branch.otherwise)
        };
        self.scope.variables.truncate(variables);
        flow
    }

    fn range(&mut self, dot: &Value, branch: &Branch) -> Result<Flow, Failure> {
        let variables = self.scope.variables.len();
        let value = self.scope.value(dot, &branch.pipeline)?;
        let failure = |what: String| Failure::new(branch.at, &branch.pipeline, what);
        if matches!(value, Value::Integer(..) | Value::Enum(..)) && branch.pipeline.variables.len() > 1 {
            let shown = display(&self.scope.budget, &value).map_err(failure)?;
            return Err(failure(format!("can't use {shown} to iterate over more than one variable")));
        }
        let items = items(&value, &self.scope.budget).map_err(failure)?;
        let mut flow = Flow::Next;
        if items.is_empty() {
            self.declare(&branch.pipeline, None);
            flow = self.nodes(dot, &branch.otherwise)?;
        }
        for (key, item) in items {
            self.scope.budget.spend(1).map_err(failure)?;
            self.declare(&branch.pipeline, Some((key, item.clone())));
            let item = if item.is_nothing() { Value::Missing } else { item };
            let ended = self.nodes(&item, &branch.then);
            self.scope.variables.truncate(variables);
            if ended? == Flow::Break {
                break;
            }
        }
        self.scope.variables.truncate(variables);
        Ok(flow)
    }

    /// One variable takes the item, two take key and item.
    fn declare(&mut self, pipeline: &Pipeline, pair: Option<(Value, Value)>) {
        let (key, item) = pair.unwrap_or((Value::Missing, Value::Missing));
        let values = if pipeline.variables.len() == 1 { vec![item] } else { vec![key, item] };
        for (name, value) in pipeline.variables.iter().zip(values) {
            if pipeline.assigns {
                self.scope.set(name, value);
            } else {
                self.scope.variables.push((name.clone(), value));
            }
        }
    }

    fn invoke(&mut self, dot: &Value, at: usize, name: &Arc<str>, argument: Option<&Pipeline>) -> Result<(), Failure> {
        let failure = |what: String| Failure::new(at, &format!("{{{{template {name:?}}}}}"), what);
        let Some(nodes) = self.definitions.get(name) else {
            return Err(failure(format!("template {name:?} not defined")));
        };
        if self.depth == MAX_DEPTH {
            return Err(failure(format!("exceeded maximum template depth ({MAX_DEPTH})")));
        }
        let data = match argument {
            Some(pipeline) => self.scope.pipeline(dot, pipeline)?,
            None => Value::Missing,
        };
        let outer = std::mem::replace(&mut self.scope.variables, vec![("$".into(), data.clone())]);
        let caller = std::mem::replace(&mut self.definition, name.clone());
        self.depth += 1;
        self.nodes(&data, nodes)?;
        self.depth -= 1;
        self.definition = caller;
        self.scope.variables = outer;
        Ok(())
    }
}

/// Keys and items of what can be ranged over; maps in the order of their keys.
fn items(value: &Value, budget: &Budget) -> Result<Vec<(Value, Value)>, String> {
    let numbered = |(at, item): (usize, Value)| (Value::int(i64::try_from(at).unwrap_or(i64::MAX)), item);
    Ok(match value {
        Value::Missing | Value::Null => Vec::new(),
        Value::List(list) => list.iter().cloned().enumerate().map(numbered).collect(),
        Value::Map(entries) => {
            entries.borrow().iter().map(|(key, item)| (Value::Text(key.clone()), item.clone())).collect()
        }
        Value::TextMap(entries) => {
            entries.iter().map(|(key, item)| (Value::Text(key.clone()), Value::Text(item.clone()))).collect()
        }
        Value::Integer(count, kind) => {
            budget.spend(usize::try_from(*count).unwrap_or(0))?;
            (0..*count).map(|at| (Value::Integer(at, *kind), Value::Integer(at, *kind))).collect()
        }
        Value::Enum(..) => return items(&Value::Integer(0, IntegerType::Int32), budget),
        other => return Err(format!("range can't iterate over {}", display(budget, other)?)),
    })
}
