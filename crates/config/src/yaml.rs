//! YAML and JSON text into trees, one per document. Bounded in size, depth and alias expansion.

mod builder;
mod limits;
mod scalar;

use saphyr_parser::{Event, Marker, Parser, ScanError, StrInput};

use self::builder::{Builder, Size};
use crate::tree::{Node, Position, Value};

pub use limits::{LIST_HEAD, MAX_BYTES, MAX_LIST_BYTES, MAX_VALUES, TextLimits, is_list};
pub use scalar::Scalars;

/// Nesting depth of collections.
pub const MAX_DEPTH: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    pub at: Position,
    pub what: String,
    pub extent: Extent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The text is broken from here on: it may be half-written.
    Rest,
    /// This document is invalid; the next ones may be valid.
    Document,
}

impl YamlError {
    fn rest(at: Position, what: impl Into<String>) -> YamlError {
        YamlError { at, what: what.into(), extent: Extent::Rest }
    }

    fn document(at: Position, what: impl Into<String>) -> YamlError {
        YamlError { at, what: what.into(), extent: Extent::Document }
    }
}

/// The documents of a text; ends after an error that affects the rest. Empty documents are left out.
pub fn documents(text: &str, scalars: Scalars) -> Documents<'_> {
    documents_within(text, scalars, TextLimits::of_bytes(MAX_BYTES))
}

pub fn documents_within(text: &str, scalars: Scalars, limits: TextLimits) -> Documents<'_> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let next = match whole_text_fault(text, limits) {
        Some(fault) => Next::Rejected(fault),
        None => Next::Document,
    };
    Documents { text, parser: Parser::new_from_str(text), scalars, limits, used: Size::default(), next }
}

pub struct Documents<'a> {
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    scalars: Scalars,
    limits: TextLimits,
    /// Used by the documents so far: the limits apply to the whole text.
    used: Size,
    next: Next,
}

enum Next {
    Document,
    Rejected(YamlError),
    End,
}

impl Iterator for Documents<'_> {
    type Item = Result<Node, YamlError>;

    fn next(&mut self) -> Option<Result<Node, YamlError>> {
        loop {
            match std::mem::replace(&mut self.next, Next::End) {
                Next::End => return None,
                Next::Rejected(fault) => return Some(Err(fault)),
                Next::Document => match self.document() {
                    Ok(None) => return None,
                    Ok(Some(Ok(Node { value: Value::Null, .. }))) => self.next = Next::Document,
                    Ok(Some(document)) => {
                        self.next = Next::Document;
                        return Some(document);
                    }
                    Err(fault) => self.next = Next::Rejected(fault),
                },
            }
        }
    }
}

impl Documents<'_> {
    /// The next document, or its error. `None`: there are no more. `Err`: nothing further can be parsed.
    fn document(&mut self) -> Result<Option<Result<Node, YamlError>>, YamlError> {
        let mut builder = Builder::new(self.scalars, self.limits, self.used);
        while let Some(event) = self.parser.next_event() {
            let (event, span) = event.map_err(|error| scan_fault(&error, self.text))?;
            let at = position(span.start);
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd => return Ok(None),
                Event::DocumentEnd => {
                    self.used = builder.used();
                    return Ok(builder.finished());
                }
                Event::Alias(anchor) => builder.alias(at, anchor)?,
                Event::Scalar(text, style, anchor, tag) => builder.scalar(at, &text, style, anchor, tag.as_deref())?,
                Event::SequenceStart(anchor, tag) => builder.open_list(at, anchor, tag.as_deref())?,
                Event::MappingStart(anchor, tag) => builder.open_mapping(at, anchor, tag.as_deref())?,
                Event::SequenceEnd | Event::MappingEnd => builder.close()?,
            }
        }
        Ok(None)
    }
}

fn whole_text_fault(text: &str, limits: TextLimits) -> Option<YamlError> {
    if text.len() > limits.bytes {
        let what = format!("the text has {} bytes; at most {} MiB are read", text.len(), limits.bytes >> 20);
        return Some(YamlError::rest(Position::START, what));
    }
    let at = end_of(&text[..text.find('\0')?]);
    Some(YamlError::rest(at, "a NUL byte; the file is damaged or is not a text"))
}

fn scan_fault(error: &ScanError, text: &str) -> YamlError {
    let info = error.info();
    if info.contains("recursion limit") {
        return YamlError::rest(position(*error.marker()), too_deep());
    }
    let hint = if info.contains("tab") {
        "; indent with spaces"
    } else if info.contains("<document start>") {
        "; separate documents by a line with ---"
    } else {
        ""
    };
    // The parser assumes that every text ends with a line break.
    let at = position(*error.marker()).min(end_of(text));
    YamlError::rest(at, format!("not valid YAML: {info}{hint}"))
}

fn too_deep() -> String {
    format!("lists and mappings are nested deeper than {MAX_DEPTH} levels")
}

fn end_of(text: &str) -> Position {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line: narrowed(line), column: narrowed(column) }
}

fn position(marker: Marker) -> Position {
    Position { line: narrowed(marker.line()), column: narrowed(marker.col() + 1) }
}

/// Lines and columns are bounded by the size of the text.
fn narrowed(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
