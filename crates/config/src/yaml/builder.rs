//! Builds one document from parser events: anchors, aliases, merge keys, unique keys, limits.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{ScalarStyle, Tag};

use super::{MAX_DEPTH, Scalars, TextLimits, YamlError, scalar, too_deep};
use crate::tree::{Entry, Node, Position, Value, quoted};

/// The size of a value with all of its aliases expanded.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    values: u64,
    bytes: u64,
}

pub(super) struct Builder {
    scalars: Scalars,
    limits: TextLimits,
    used: Size,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Node>,
    /// The first error that affects this document but not the next ones.
    fault: Option<YamlError>,
}

/// An open collection.
struct Open {
    at: Position,
    anchor: usize,
    /// The size used before it began.
    before: Size,
    /// Nesting depth inside.
    height: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Mapping { entries: Vec<Entry>, merged: Vec<Entry>, key: Option<Key> },
}

enum Key {
    Merge,
    Named { name: Rc<str>, at: Position },
}

struct Anchored {
    node: Node,
    size: Size,
    height: usize,
}

impl Builder {
    pub(super) fn new(scalars: Scalars, limits: TextLimits, used: Size) -> Builder {
        Builder { scalars, limits, used, open: Vec::new(), anchors: HashMap::new(), root: None, fault: None }
    }

    pub(super) fn used(&self) -> Size {
        self.used
    }

    /// `None`: the document is empty.
    pub(super) fn finished(self) -> Option<Result<Node, YamlError>> {
        match self.fault {
            Some(fault) => Some(Err(fault)),
            None => self.root.map(Ok),
        }
    }

    pub(super) fn scalar(
        &mut self,
        at: Position,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), YamlError> {
        let plain = style == ScalarStyle::Plain;
        if plain && tag.is_none() && text == "<<" && self.wants_key() {
            self.set_key(Key::Merge);
            return Ok(());
        }
        let value = match tag.map(kind_of_tag) {
            None if plain => scalar::value(text, self.scalars),
            None | Some(Some("str")) => Value::Text(text.into()),
            Some(Some("int" | "float" | "bool" | "null")) => scalar::value(text, self.scalars),
            Some(_) => {
                self.spoil_by_tag(at, tag);
                Value::Null
            }
        };
        let size = Size { values: 1, bytes: text.len() as u64 };
        self.spend(at, size)?;
        let node = Node { at, value };
        self.remember(anchor, &node, size, 0);
        self.place(node, 0)
    }

    pub(super) fn alias(&mut self, at: Position, anchor: usize) -> Result<(), YamlError> {
        let Some(Anchored { node, size, height }) = self.anchors.get(&anchor) else {
            return Err(YamlError::rest(at, "the alias stands inside its own anchor, or in another document than it"));
        };
        let (mut node, size, height) = (node.clone(), *size, *height);
        if self.wants_key() {
            node.at = at;
        }
        self.check_depth(at, height)?;
        self.spend(at, size)?;
        self.place(node, height)
    }

    pub(super) fn open_list(&mut self, at: Position, anchor: usize, tag: Option<&Tag>) -> Result<(), YamlError> {
        if !matches!(tag.map(kind_of_tag), None | Some(Some("seq"))) {
            self.spoil_by_tag(at, tag);
        }
        self.begin(at, anchor, Content::List(Vec::new()))
    }

    pub(super) fn open_mapping(&mut self, at: Position, anchor: usize, tag: Option<&Tag>) -> Result<(), YamlError> {
        if !matches!(tag.map(kind_of_tag), None | Some(Some("map"))) {
            self.spoil_by_tag(at, tag);
        }
        self.begin(at, anchor, Content::Mapping { entries: Vec::new(), merged: Vec::new(), key: None })
    }

    pub(super) fn close(&mut self) -> Result<(), YamlError> {
        let Some(Open { at, anchor, before, height, content }) = self.open.pop() else {
            return Ok(());
        };
        let value = match content {
            Content::List(items) => Value::List(items.into()),
            Content::Mapping { entries, merged, .. } => Value::Mapping(self.unique(entries, merged).into()),
        };
        let node = Node { at, value };
        let size = Size { values: self.used.values - before.values, bytes: self.used.bytes - before.bytes };
        self.remember(anchor, &node, size, height + 1);
        self.place(node, height + 1)
    }

    fn begin(&mut self, at: Position, anchor: usize, content: Content) -> Result<(), YamlError> {
        if self.wants_key() {
            return Err(YamlError::rest(at, "a key must be a text; a list or a mapping stands here"));
        }
        self.check_depth(at, 1)?;
        let before = self.used;
        self.spend(at, Size { values: 1, bytes: 0 })?;
        self.open.push(Open { at, anchor, before, height: 0, content });
        Ok(())
    }

    /// Adds a finished value where the next one is expected: as key, value, item or root.
    fn place(&mut self, node: Node, height: usize) -> Result<(), YamlError> {
        if self.wants_key() {
            let at = node.at;
            let name = key_text(node.value).unwrap_or_else(|| {
                self.spoil(at, "a key must be a text; put it in quotes");
                "".into()
            });
            self.set_key(Key::Named { name, at });
            return Ok(());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.height = open.height.max(height);
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Mapping { entries, merged, key } => match key.take() {
                Some(Key::Named { name, at }) => entries.push(Entry { key: name, key_at: at, value: node }),
                Some(Key::Merge) => return merge(merged, &node),
                None => {}
            },
        }
        Ok(())
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Mapping { key: None, .. }, .. }))
    }

    fn set_key(&mut self, next: Key) {
        if let Some(Open { content: Content::Mapping { key, .. }, .. }) = self.open.last_mut() {
            *key = Some(next);
        }
    }

    fn remember(&mut self, anchor: usize, node: &Node, size: Size, height: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, height });
        }
    }

    /// The entries with unique keys: written ones come before merged ones, earlier merges before later ones.
    fn unique(&mut self, mut entries: Vec<Entry>, merged: Vec<Entry>) -> Vec<Entry> {
        let mut seen = HashSet::with_capacity(entries.len() + merged.len());
        for entry in &entries {
            if !seen.insert(entry.key.clone()) {
                let what = format!("the key {} is written twice; remove one", quoted(&entry.key));
                self.spoil(entry.key_at, what);
            }
        }
        entries.extend(merged.into_iter().filter(|entry| seen.insert(entry.key.clone())));
        entries
    }

    fn spend(&mut self, at: Position, size: Size) -> Result<(), YamlError> {
        self.used.values = self.used.values.saturating_add(size.values);
        self.used.bytes = self.used.bytes.saturating_add(size.bytes);
        let TextLimits { values, expanded_bytes, .. } = self.limits;
        if self.used.values > values {
            return Err(YamlError::rest(at, format!("more than {values} values, aliases included; split the file")));
        }
        if self.used.bytes > expanded_bytes {
            let limit = expanded_bytes >> 20;
            return Err(YamlError::rest(at, format!("the aliases write out to more than {limit} MiB; use fewer")));
        }
        Ok(())
    }

    fn check_depth(&self, at: Position, height: usize) -> Result<(), YamlError> {
        if self.open.len() + height > MAX_DEPTH {
            return Err(YamlError::rest(at, too_deep()));
        }
        Ok(())
    }

    fn spoil_by_tag(&mut self, at: Position, tag: Option<&Tag>) {
        let tag = tag.map(Tag::to_string).unwrap_or_default();
        self.spoil(at, format!("the tag {} is not known; leave it out", quoted(&tag)));
    }

    fn spoil(&mut self, at: Position, what: impl Into<String>) {
        self.fault.get_or_insert(YamlError::document(at, what));
    }
}

/// `str` for `!!str`; `None` for tags that are not YAML's own.
fn kind_of_tag(tag: &Tag) -> Option<&str> {
    if tag.is_yaml_core_schema() {
        Some(&tag.suffix)
    } else if tag.suffix == "!" && tag.handle.is_empty() {
        Some("str")
    } else {
        None
    }
}

fn key_text(value: Value) -> Option<Rc<str>> {
    match value {
        Value::Text(text) => Some(text),
        Value::Bool(value) => Some(value.to_string().into()),
        Value::Integer(value) => Some(value.to_string().into()),
        Value::Float(value) => Some(value.to_string().into()),
        Value::Null | Value::List(_) | Value::Mapping(_) => None,
    }
}

fn merge(merged: &mut Vec<Entry>, node: &Node) -> Result<(), YamlError> {
    let sources = match &node.value {
        Value::List(items) => &items[..],
        _ => std::slice::from_ref(node),
    };
    for source in sources {
        let entries =
            source.entries().ok_or_else(|| YamlError::rest(source.at, "`<<` takes a mapping or a list of mappings"))?;
        merged.extend_from_slice(entries);
    }
    Ok(())
}
