//! The tree of a YAML or JSON text. Every key and value has its position; `de` interprets them.

use std::rc::Rc;

use zeroize::Zeroize;

/// Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    pub const START: Position = Position { line: 1, column: 1 };
}

/// Cheap to clone: collections and strings are shared, as with aliases.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub at: Position,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Rc<str>),
    List(Rc<[Node]>),
    Mapping(Rc<[Entry]>),
}

/// One entry of a mapping with unique keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: Rc<str>,
    pub key_at: Position,
    pub value: Node,
}

impl Node {
    /// The value under a key. `None`: no such key, or null, which means the same.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries()?.iter().find(|e| &*e.key == key).map(|e| &e.value).filter(|node| node.value != Value::Null)
    }

    pub fn entries(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Mapping(entries) => Some(entries),
            _ => None,
        }
    }

    /// Zeroizes strings that nobody else shares: they may be private keys.
    pub(crate) fn wipe(&mut self) {
        match &mut self.value {
            Value::Text(text) => {
                if let Some(text) = Rc::get_mut(text) {
                    text.zeroize();
                }
            }
            Value::List(items) => Rc::get_mut(items).into_iter().flatten().for_each(Node::wipe),
            Value::Mapping(entries) => {
                Rc::get_mut(entries).into_iter().flatten().for_each(|entry| entry.value.wipe());
            }
            _ => {}
        }
    }

    /// As JSON, without positions. The depth of a text is bounded when it is read, so the recursion is too.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Integer(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(text) => text.as_ref().into(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Mapping(entries) => {
                entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_json())).collect()
            }
        }
    }

    /// The reverse of `to_json`; every position is the start.
    pub fn from_json(json: &serde_json::Value) -> Node {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Value::Integer(integer),
                None => Value::Float(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Value::Text(text.as_str().into()),
            Json::Array(items) => Value::List(items.iter().map(Node::from_json).collect()),
            Json::Object(fields) => Value::Mapping(
                fields
                    .iter()
                    .map(|(key, value)| Entry {
                        key: key.as_str().into(),
                        key_at: Position::START,
                        value: Node::from_json(value),
                    })
                    .collect(),
            ),
        };
        Node { at: Position::START, value }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Describes the value for an error message.
    pub fn described(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Integer(value) => format!("the number {value}"),
            Value::Float(value) => format!("the number {value}"),
            Value::Text(text) => format!("the text {}", quoted(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Mapping(_) => "a mapping".to_owned(),
        }
    }
}

/// Quoted, and truncated to fit on a line.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?} (and {} bytes more)", &text[..end], text.len() - end),
        None => format!("{text:?}"),
    }
}
