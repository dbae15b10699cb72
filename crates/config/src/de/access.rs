//! serde access to lists, mappings, messages and oneofs.

use serde::Deserializer;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::path::Path;
use super::{Error, ErrorPlace, FieldError, Reader};
use crate::similar::most_similar;
use crate::tree::{Entry, Node, Value};

impl Reader<'_> {
    pub(super) fn child_error(self, error: Error, path: &Path<'_>, node: &Node) -> Error {
        let place = error.place.unwrap_or_else(|| ErrorPlace { field: path.to_string(), at: node.at, node });
        Error { place: Some(place), ..error }
    }

    /// Whether the entry is written, and readable.
    fn has(self, entry: &Entry) -> bool {
        entry.value.value != Value::Null && self.context.reads(&entry.value)
    }

    fn seeded<'de, T: DeserializeSeed<'de>>(self, seed: T, path: &Path<'_>, node: &Node) -> Result<T::Value, Error> {
        let child = Reader { node, path, context: self.context };
        seed.deserialize(child).map_err(|error| self.child_error(error, path, node))
    }
}

pub(super) struct Items<'a> {
    reader: Reader<'a>,
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

impl<'a> Items<'a> {
    pub(super) fn new(reader: Reader<'a>, items: &'a [Node]) -> Items<'a> {
        Items { reader, items: items.iter().enumerate() }
    }
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let context = self.reader.context;
        let Some((index, node)) = self.items.find(|(_, node)| context.reads(node)) else { return Ok(None) };
        self.reader.seeded(seed, &self.reader.path.item(index), node).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// A mapping whose keys are data.
pub(super) struct Pairs<'a> {
    reader: Reader<'a>,
    entries: std::slice::Iter<'a, Entry>,
    skip_nulls: bool,
    current: Option<&'a Entry>,
}

impl<'a> Pairs<'a> {
    pub(super) fn with_nulls(reader: Reader<'a>, entries: &'a [Entry]) -> Pairs<'a> {
        Pairs { reader, entries: entries.iter(), skip_nulls: false, current: None }
    }

    pub(super) fn without_nulls(reader: Reader<'a>, entries: &'a [Entry]) -> Pairs<'a> {
        Pairs { skip_nulls: true, ..Pairs::with_nulls(reader, entries) }
    }
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let (skip_nulls, context) = (self.skip_nulls, self.reader.context);
        self.current =
            self.entries.find(|entry| !(skip_nulls && entry.value.value == Value::Null) && context.reads(&entry.value));
        let Some(entry) = self.current else { return Ok(None) };
        // The key is read as a node, so that numbers work as keys of maps as they do as values.
        let key = Node { at: entry.key_at, value: Value::Text(entry.key.clone()) };
        let read = self.reader.seeded(seed, &self.reader.path.field(&entry.key), &key);
        // The node of the key is gone by then; its value stands for the entry.
        let blame = |place: ErrorPlace| ErrorPlace { node: &raw const entry.value, ..place };
        read.map(Some).map_err(|error| Error { place: error.place.map(blame), ..error })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let entry = self.current.expect("serde asks for a value only after its key");
        self.reader.seeded(seed, &self.reader.path.field(&entry.key), &entry.value)
    }
}

/// A mapping whose keys are the fields of a message.
pub(super) struct Fields<'a> {
    reader: Reader<'a>,
    entries: std::slice::Iter<'a, Entry>,
    known: &'static [&'static str],
    current: Option<&'a Entry>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(reader: Reader<'a>, entries: &'a [Entry], known: &'static [&'static str]) -> Fields<'a> {
        Fields { reader, entries: entries.iter(), known, current: None }
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        for entry in self.entries.by_ref().filter(|entry| self.reader.has(entry)) {
            if let Some(name) = known_name(self.reader, &entry.key, self.known) {
                self.current = Some(entry);
                return seed.deserialize(StrDeserializer::<Error>::new(name)).map(Some);
            }
            warn_unknown(self.reader, entry, self.known);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let entry = self.current.expect("serde asks for a value only after its key");
        self.reader.seeded(seed, &self.reader.path.field(&entry.key), &entry.value)
    }
}

/// The field name of the type; protobuf's JSON also accepts the name of the .proto file.
fn known_name(reader: Reader<'_>, key: &str, known: &'static [&'static str]) -> Option<&'static str> {
    let find = |name: &str| known.iter().copied().find(|k| *k == name);
    find(key).or_else(|| if reader.is_protobuf() && key.contains('_') { find(&camel_case(key)) } else { None })
}

pub(super) fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut name, part| {
        let mut chars = part.chars();
        name.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        name.push_str(chars.as_str());
        name
    })
}

fn warn_unknown(reader: Reader<'_>, entry: &Entry, known: &[&str]) {
    if !reader.is_protobuf() {
        return;
    }
    let what = unknown_field(&entry.key, known);
    let field = reader.path.field(&entry.key).to_string();
    reader.context.warnings.borrow_mut().push(FieldError { field, at: entry.key_at, what });
}

/// The text of the warning; the diagnostic names the field.
pub(crate) fn unknown_field(name: &str, known: &[&str]) -> String {
    let hint = most_similar(name, known).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    format!("unknown field, left out{hint}")
}

/// One variant of an enum, by name, by number, or as the only key of a mapping.
pub(super) struct OneOf<'a> {
    reader: Reader<'a>,
    variant: &'static str,
    /// `None`: the variant has no content.
    content: Option<&'a Entry>,
}

impl<'a> OneOf<'a> {
    pub(super) fn new(reader: Reader<'a>, variants: &'static [&'static str]) -> Result<OneOf<'a>, Error> {
        let named = |name: &str| variants.iter().copied().find(|variant| *variant == name);
        let unit = match &reader.node.value {
            Value::Text(text) => named(text),
            Value::Integer(number) if reader.is_protobuf() => {
                usize::try_from(*number).ok().and_then(|number| variants.get(number).copied())
            }
            Value::Mapping(entries) => return OneOf::keyed(reader, entries, variants),
            _ => None,
        };
        let unit = unit.ok_or_else(|| unknown_variant(reader, variants))?;
        Ok(OneOf { reader, variant: unit, content: None })
    }

    fn keyed(reader: Reader<'a>, entries: &'a [Entry], variants: &'static [&'static str]) -> Result<OneOf<'a>, Error> {
        let mut chosen: Option<OneOf<'a>> = None;
        for entry in entries.iter().filter(|entry| reader.has(entry)) {
            let Some(variant) = known_name(reader, &entry.key, variants) else {
                warn_unknown(reader, entry, variants);
                continue;
            };
            if let Some(other) = chosen {
                return Err(
                    reader.error(format!("{} and {variant} exclude each other; keep one of them", other.variant))
                );
            }
            chosen = Some(OneOf { reader, variant, content: Some(entry) });
        }
        chosen.ok_or_else(|| reader.error(format!("expected one of {}", variants.join(", "))))
    }
}

fn unknown_variant(reader: Reader<'_>, variants: &[&str]) -> Error {
    let meant = reader.node.text().and_then(|text| most_similar(text, variants));
    let hint = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    reader.error(format!("expected one of {}, found {}{hint}", variants.join(", "), reader.found()))
}

impl<'de> EnumAccess<'de> for OneOf<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let name: StrDeserializer<'_, Error> = self.variant.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for OneOf<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(self.reader.error(format!("expected the text {:?}, found a mapping", self.variant))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        let Some(entry) = self.content else {
            return Err(self.reader.error(format!("expected a mapping with the key {}", self.variant)));
        };
        self.reader.seeded(seed, &self.reader.path.field(&entry.key), &entry.value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content(|child| child.deserialize_seq(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.content(|child| child.deserialize_struct("", fields, visitor))
    }
}

impl OneOf<'_> {
    fn content<T>(self, read: impl FnOnce(Reader<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let Some(entry) = self.content else {
            return Err(self.reader.error(format!("expected a mapping with the key {}", self.variant)));
        };
        let path = self.reader.path.field(&entry.key);
        read(Reader { node: &entry.value, path: &path, context: self.reader.context })
    }
}
