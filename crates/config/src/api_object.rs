//! Objects of an API server in its protobuf encoding into trees: the same trees as `json` reads, without the fields that no type reads. Which fields
//! there are is in `fields`. Lists, events and the envelope around an object are left to the caller.

mod fields;

use protobuf::{Error, Fields};

use self::fields::{Content, FieldShape, Occurrence};
use crate::json::annotation_matters;
use crate::kind::Kind;
use crate::tree::{Entry, Node, Position, Value};

/// How an object of a kind is encoded. There are many objects of these kinds, and little of each is read.
#[derive(Debug, Clone, Copy)]
pub struct ObjectEncoding {
    kind: Kind,
    fields: &'static [FieldShape],
}

impl ObjectEncoding {
    /// `None`: objects of this kind are read as JSON.
    pub fn of(kind: Kind) -> Option<ObjectEncoding> {
        let fields = match kind {
            Kind::Pod => fields::POD,
            Kind::Service => fields::SERVICE,
            Kind::EndpointSlice => fields::ENDPOINT_SLICE,
            Kind::Node => fields::NODE,
            _ => return None,
        };
        Some(ObjectEncoding { kind, fields })
    }

    /// Positions in the tree have no meaning.
    pub fn read(self, message: &[u8]) -> Result<Node, Error> {
        self.message(self.fields, message)
    }

    fn message(self, shapes: &'static [FieldShape], message: &[u8]) -> Result<Node, Error> {
        let (mut entries, mut lists, mut maps) = (Vec::new(), Vec::new(), Vec::new());
        let mut fields = Fields::new(message);
        while let Some(tag) = fields.tag()? {
            let Some(shape) = shapes.iter().find(|shape| shape.tag() == tag) else {
                fields.skip(tag)?;
                continue;
            };
            if let Content::Labels | Content::Annotations = shape.content {
                let (key, value) = pair(fields.delimited()?)?;
                if matches!(shape.content, Content::Labels) || annotation_matters(self.kind, key) {
                    add(&mut maps, shape.key, entry(key, text(value)));
                }
                continue;
            }
            let Some(value) = self.value(&shape.content, &mut fields)? else { continue };
            match shape.occurrence {
                Occurrence::Repeated => add(&mut lists, shape.key, value),
                Occurrence::Plain if is_default(&value) => {}
                Occurrence::Plain | Occurrence::Optional => entries.push(entry(shape.key, value)),
            }
        }
        entries.extend(lists.into_iter().map(|(key, items)| entry(key, node(Value::List(items.into())))));
        entries.extend(maps.into_iter().map(|(key, pairs)| entry(key, node(Value::Mapping(pairs.into())))));
        Ok(node(Value::Mapping(entries.into())))
    }

    /// `None`: it says nothing.
    fn value(self, content: &'static Content, fields: &mut Fields<'_>) -> Result<Option<Node>, Error> {
        let value = match content {
            Content::Text => text(fields.text()?),
            // Negative ones have ten bytes.
            Content::Integer => node(Value::Integer(fields.varint()? as i64)),
            Content::Bool => node(Value::Bool(fields.varint()? != 0)),
            Content::Message(shapes) => self.message(shapes, fields.delimited()?)?,
            Content::Time => return time(fields.delimited()?),
            Content::IntOrString => int_or_string(fields.delimited()?)?,
            Content::Labels | Content::Annotations => return Ok(None),
        };
        Ok(Some(value))
    }
}

/// Adds one of a repeated field; those of one field usually follow each other.
fn add<T>(groups: &mut Vec<(&'static str, Vec<T>)>, key: &'static str, item: T) {
    match groups.iter_mut().rev().find(|(known, _)| *known == key) {
        Some((_, items)) => items.push(item),
        None => groups.push((key, vec![item])),
    }
}

/// Fields that JSON would leave out: Go encodes them all the same.
fn is_default(node: &Node) -> bool {
    match &node.value {
        Value::Text(text) => text.is_empty(),
        Value::Integer(number) => *number == 0,
        Value::Bool(value) => !value,
        _ => false,
    }
}

/// Seconds since 1970; the unset time is empty.
fn time(message: &[u8]) -> Result<Option<Node>, Error> {
    let (mut fields, mut seconds) = (Fields::new(message), None);
    while let Some(tag) = fields.tag()? {
        match tag {
            0x08 => seconds = Some(fields.varint()? as i64),
            _ => fields.skip(tag)?,
        }
    }
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    Ok(time.map(|time| text(&time.to_string())))
}

fn int_or_string(message: &[u8]) -> Result<Node, Error> {
    let (mut is_name, mut number, mut name) = (false, 0, "");
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            0x08 => is_name = fields.varint()? == 1,
            0x10 => number = fields.varint()? as i64,
            0x1a => name = fields.text()?,
            _ => fields.skip(tag)?,
        }
    }
    Ok(if is_name { text(name) } else { node(Value::Integer(number)) })
}

/// One entry of a map.
fn pair(message: &[u8]) -> Result<(&str, &str), Error> {
    let (mut key, mut value) = ("", "");
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            0x0a => key = fields.text()?,
            0x12 => value = fields.text()?,
            _ => fields.skip(tag)?,
        }
    }
    Ok((key, value))
}

fn entry(key: &str, value: Node) -> Entry {
    Entry { key: key.into(), key_at: Position::START, value }
}

fn text(text: &str) -> Node {
    node(Value::Text(text.into()))
}

fn node(value: Value) -> Node {
    Node { at: Position::START, value }
}

#[cfg(test)]
mod tests;
