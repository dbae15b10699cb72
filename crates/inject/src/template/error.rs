//! What is wrong with a template, and where: at parsing, and at rendering.

use std::fmt;

/// A template that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    pub line: usize,
    pub column: usize,
    pub what: String,
}

impl ParseError {
    pub(super) fn at(text: &str, offset: usize, what: impl Into<String>) -> ParseError {
        let (line, column) = position(text, offset);
        ParseError { line, column, what: what.into() }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for ParseError {}

/// A template that fails for this data. Written as Go writes it, since users search for these texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenderError {
    /// The name of the whole template, and of the definition that was executed.
    pub template: String,
    pub definition: String,
    pub line: usize,
    pub column: usize,
    /// The part of the action that failed, as it is written.
    pub node: String,
    pub what: String,
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RenderError { template, definition, line, column, node, what } = self;
        write!(f, "template: {template}:{line}:{column}: executing {definition:?} at <{node}>: {what}")
    }
}

impl std::error::Error for RenderError {}

/// Line from 1; column in bytes from 0, as Go counts, plus one.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let column = before.len() - before.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1) + 1;
    (line, column)
}
