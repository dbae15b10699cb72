//! YAML and JSON text into trees, one per document. Bounded in size, depth and what aliases may grow to.

mod builder;
mod scalar;

use saphyr_parser::{Event, Marker, Parser, ScanError, StrInput};

use self::builder::{Builder, Size};
use crate::tree::{Node, Position, Value};

pub use scalar::Scalars;

/// Bytes of one text.
pub const MAX_BYTES: usize = 16 << 20;
/// Collections within collections.
pub const MAX_DEPTH: usize = 100;
/// Values of one text, aliases counted as often as they are used.
pub const MAX_VALUES: u64 = 1_000_000;
/// Bytes of all texts of one text's values, aliases counted as often as they are used.
pub const MAX_EXPANDED_BYTES: u64 = 2 * MAX_BYTES as u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at: Position,
    pub what: String,
    pub extent: Extent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The text is broken from here on: it may be half-written.
    Rest,
    /// This document cannot be used; the next ones can.
    Document,
}

impl Fault {
    fn rest(at: Position, what: impl Into<String>) -> Fault {
        Fault { at, what: what.into(), extent: Extent::Rest }
    }

    fn document(at: Position, what: impl Into<String>) -> Fault {
        Fault { at, what: what.into(), extent: Extent::Document }
    }
}

/// The documents of a text; ends after a fault that spoils the rest. Empty documents are left out.
pub fn documents(text: &str, scalars: Scalars) -> Documents<'_> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let next = match refused_at_sight(text) {
        Some(fault) => Next::Refused(fault),
        None => Next::Document,
    };
    Documents { text, parser: Parser::new_from_str(text), scalars, used: Size::default(), next }
}

pub struct Documents<'a> {
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    scalars: Scalars,
    /// By the documents so far: the limits are those of the whole text.
    used: Size,
    next: Next,
}

enum Next {
    Document,
    Refused(Fault),
    End,
}

impl Iterator for Documents<'_> {
    type Item = Result<Node, Fault>;

    fn next(&mut self) -> Option<Result<Node, Fault>> {
        loop {
            match std::mem::replace(&mut self.next, Next::End) {
                Next::End => return None,
                Next::Refused(fault) => return Some(Err(fault)),
                Next::Document => match self.document() {
                    Ok(None) => return None,
                    Ok(Some(Ok(Node { value: Value::Null, .. }))) => self.next = Next::Document,
                    Ok(Some(document)) => {
                        self.next = Next::Document;
                        return Some(document);
                    }
                    Err(fault) => self.next = Next::Refused(fault),
                },
            }
        }
    }
}

impl Documents<'_> {
    /// The next document, or what is wrong with it. `None`: there are no more. `Err`: nothing further can be read.
    fn document(&mut self) -> Result<Option<Result<Node, Fault>>, Fault> {
        let mut builder = Builder::new(self.scalars, self.used);
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

fn refused_at_sight(text: &str) -> Option<Fault> {
    if text.len() > MAX_BYTES {
        let what = format!("the text has {} bytes; at most {} MiB are read", text.len(), MAX_BYTES >> 20);
        return Some(Fault::rest(Position::START, what));
    }
    let at = end_of(&text[..text.find('\0')?]);
    Some(Fault::rest(at, "a NUL byte; the file is damaged or is not a text"))
}

fn scan_fault(error: &ScanError, text: &str) -> Fault {
    let info = error.info();
    if info.contains("recursion limit") {
        return Fault::rest(position(*error.marker()), too_deep());
    }
    let hint = if info.contains("tab") {
        "; indent with spaces"
    } else if info.contains("<document start>") {
        "; separate documents by a line with ---"
    } else {
        ""
    };
    // The parser believes that every text ends with a line break.
    let at = position(*error.marker()).min(end_of(text));
    Fault::rest(at, format!("not valid YAML: {info}{hint}"))
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

/// Lines and columns are bounded by `MAX_BYTES`.
fn narrowed(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
