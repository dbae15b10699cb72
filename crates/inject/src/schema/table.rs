//! The text form of the schema tables, which are part of the program: a mistake in them is one of ours.

use std::collections::HashMap;

use super::{Dialect, EnumValues, Field, FieldKind, ListMerge, Schema, Schemas};
use crate::template::IntegerType;

pub(super) fn parse(text: &'static str, dialect: Dialect) -> Schemas {
    let lines = || text.lines().filter(|line| !line.starts_with('#'));
    let is_enum = |line: &&str| line.starts_with("enum ");
    let enums = lines().filter(is_enum).map(parse_enum).collect();
    let name_of = |line: &'static str| line.strip_prefix("message ").unwrap_or(line);
    let is_type = |line: &&str| !is_enum(line) && !line.starts_with("  ");
    let places = lines().filter(is_type).enumerate().map(|(place, line)| (name_of(line), place)).collect();
    let names = Names { enums: &enums, places: &places };
    let mut types: Vec<Schema> = Vec::new();
    for line in lines().filter(|line| !is_enum(line)) {
        match line.strip_prefix("  ") {
            None => types.push(Schema { name: name_of(line), dialect, fields: Vec::new() }),
            Some(field) => {
                if let (Some(schema), Some(field)) = (types.last_mut(), parse_field(field, names)) {
                    schema.fields.push(field);
                }
            }
        }
    }
    Schemas { types, enums }
}

fn parse_enum(line: &'static str) -> (&'static str, EnumValues) {
    let mut words = line.split(' ').skip(1);
    let name = words.next().unwrap_or_default();
    let values = words.filter_map(|word| word.split_once('='));
    (name, values.filter_map(|(name, number)| Some((name, number.parse().ok()?))).collect())
}

/// What the type of a field may name.
#[derive(Clone, Copy)]
struct Names<'a> {
    enums: &'a HashMap<&'static str, EnumValues>,
    /// Of types in their table.
    places: &'a HashMap<&'static str, usize>,
}

fn parse_field(line: &'static str, names: Names<'_>) -> Option<Field> {
    let mut words = line.split(' ');
    let (go, json, kind) = (words.next()?, words.next()?, words.next()?);
    let mut field =
        Field { go, json, kind: parse_kind(kind, names), inline: false, omit_empty: false, merge: None, oneof: "" };
    for word in words {
        match word.split_once('=') {
            None if word == "inline" => field.inline = true,
            None => field.omit_empty = true,
            Some(("merge", "")) => field.merge = Some(ListMerge::Set),
            Some(("merge", key)) => field.merge = Some(ListMerge::Key(key)),
            Some((_, oneof)) => field.oneof = oneof,
        }
    }
    Some(field)
}

fn parse_kind(text: &'static str, names: Names<'_>) -> FieldKind {
    let inner = |text| Box::new(parse_kind(text, names));
    if let Some(item) = text.strip_prefix("[]") {
        return FieldKind::List(inner(item));
    }
    if let Some(item) = text.strip_prefix("map:") {
        return FieldKind::Map(inner(item));
    }
    if let Some(target) = text.strip_prefix('*') {
        return match target {
            "Duration" => FieldKind::Duration,
            "Struct" | "Value" | "Any" => FieldKind::Any,
            "BoolValue" | "StringValue" | "Int32Value" | "Int64Value" | "UInt32Value" | "DoubleValue"
            | "FloatValue" => FieldKind::Wrapper,
            target => FieldKind::Pointer(inner(target)),
        };
    }
    match text {
        "string" | "bytes" => FieldKind::Text,
        "bool" => FieldKind::Bool,
        "int" => FieldKind::Integer(IntegerType::Int),
        "int32" => FieldKind::Integer(IntegerType::Int32),
        "int64" | "uint64" => FieldKind::Integer(IntegerType::Int64),
        "uint32" => FieldKind::Integer(IntegerType::Uint32),
        "float" | "double" | "float64" => FieldKind::Float,
        "Time" => FieldKind::Time,
        "Quantity" => FieldKind::Quantity,
        "IntOrString" => FieldKind::IntOrString,
        "Any" => FieldKind::Any,
        name if names.enums.contains_key(name) => FieldKind::Enum(name),
        name => {
            let place = names.places.get(name);
            FieldKind::Struct(*place.expect("a type that the table refers to is in the table"))
        }
    }
}
