//! The path of a value in an object: `spec.http[0].route[1].weight`.

use std::fmt;

use super::access::camel_case;
use crate::tree::{Node, Position, Value};

/// Linked towards the root, so that a child path costs no allocation.
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

pub(crate) enum Found<'n> {
    Here(&'n Node),
    Around(&'n Node),
}

enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

impl<'a> Path<'a> {
    pub(crate) fn root(name: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Field(name) }
    }

    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    pub(crate) fn item(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Item(index) }
    }

    /// The value at this path in a tree; where nothing is written, the nearest enclosing value.
    pub(crate) fn find<'n>(&self, root: &'n Node) -> Found<'n> {
        let around = match self.parent {
            None => return Found::Here(root),
            Some(parent) => parent.find(root),
        };
        let Found::Here(node) = around else { return around };
        let child = match (&self.step, &node.value) {
            (Step::Item(index), Value::List(items)) => items.get(*index),
            (Step::Field(name), Value::Mapping(entries)) => {
                let exact = entries.iter().find(|entry| *entry.key == **name);
                exact
                    .or_else(|| entries.iter().find(|entry| camel_case(&entry.key) == **name))
                    .map(|entry| &entry.value)
            }
            _ => None,
        };
        child.filter(|child| child.value != Value::Null).map_or(Found::Around(node), Found::Here)
    }

    fn is_empty(&self) -> bool {
        self.parent.is_none() && matches!(self.step, Step::Field(""))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = self.parent.filter(|parent| !parent.is_empty());
        if let Some(parent) = parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Item(index) => write!(f, "[{index}]"),
            Step::Field(name) if !is_plain(name) && !self.is_empty() => write!(f, "[{name:?}]"),
            Step::Field(name) if parent.is_some() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
        }
    }
}

/// A name with other characters could not be distinguished from a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || b == b'@')
}

/// The position of the value at a path as it is displayed, or of the innermost part of the path that is written.
pub(crate) fn place(node: &Node, path: &str) -> Position {
    let path = path.strip_prefix('.').unwrap_or(path);
    match &node.value {
        Value::List(items) => {
            let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) else {
                return node.at;
            };
            let item = index.parse::<usize>().ok().and_then(|index| items.get(index));
            item.map_or(node.at, |item| place(item, rest))
        }
        Value::Mapping(entries) => {
            let written = entries.iter().find_map(|entry| Some((entry, after_key(path, &entry.key)?)));
            written.map_or(node.at, |(entry, rest)| place(&entry.value, rest))
        }
        _ => node.at,
    }
}

/// The rest of a path after the key, which may be spelled in `snake_case`, or quoted.
fn after_key<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
    if let Some(rest) = path.strip_prefix(key).filter(|rest| ends(rest)) {
        return Some(rest);
    }
    if path.starts_with("[\"") {
        return path.strip_prefix(&*format!("[{key:?}]"));
    }
    let (name, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
    name.eq_ignore_ascii_case(&key.replace('_', "")).then_some(rest)
}
