//! Go's template language: parsing once, rendering often, within limits. Its own functions are in `builtins`; those of the injector are in
//! `crate::functions`. Pure: no clock, no environment.

mod budget;
mod builtins;
mod constant;
mod error;
mod evaluate;
mod format;
mod function;
mod node;
mod parser;
mod printf;
mod render;
mod token;
mod value;

pub(crate) use budget::Budget;
pub(crate) use constant::radix;
pub use error::ParseError;
pub(crate) use error::RenderError;
pub(crate) use format::{Writer, quoted, sprint};
pub(crate) use function::{Body, Function, Parameter};
pub(crate) use value::{IntegerType, Record, Value};

use error::position;
use parser::Definitions;

/// A parsed template with its definitions.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    name: String,
    text: String,
    definitions: Definitions,
}

impl Template {
    /// `functions`: besides the built-in ones, which they may replace.
    pub(crate) fn parse(
        name: &str,
        text: &str,
        functions: fn(&str) -> Option<&'static Function>,
    ) -> Result<Template, ParseError> {
        let definitions = parser::parse(name, text, functions)?;
        Ok(Template { name: name.to_owned(), text: text.to_owned(), definitions })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn render(&self, data: &Value) -> Result<String, RenderError> {
        render::render(&self.definitions, &self.name, data).map_err(|failed| {
            let (line, column) = position(&self.text, failed.failure.at);
            RenderError {
                template: self.name.clone(),
                definition: failed.definition.to_string(),
                line,
                // As Go counts: from 0.
                column: column - 1,
                node: shortened(failed.failure.node),
                what: failed.failure.what,
            }
        })
    }
}

/// The built-in function of that name.
pub(crate) fn builtin(name: &str) -> Option<&'static Function> {
    builtins::BUILTINS.iter().find(|function| function.name == name)
}

/// Go shows twenty bytes of a long action.
fn shortened(node: String) -> String {
    match node.char_indices().map(|(at, _)| at).find(|at| *at >= 20) {
        Some(end) => format!("{}...", &node[..end]),
        None => node,
    }
}

#[cfg(test)]
mod go_engine;
#[cfg(test)]
mod tests;
