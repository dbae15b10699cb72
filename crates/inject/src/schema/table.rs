//! The text form of the schema tables, which are part of the program: a mistake in them is one of ours.

use std::collections::HashMap;

use super::{Dialect, Field, FieldKind, ListMerge, Schema, Schemas};
use crate::template::IntegerType;

pub(super) fn parse(text: &'static str, dialect: Dialect) -> Schemas {
    let mut schemas = Schemas { types: HashMap::new(), enums: HashMap::new() };
    let lines = || text.lines().filter(|line| !line.starts_with('#'));
    for line in lines().filter_map(|line| line.strip_prefix("enum ")) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let values = words
            .filter_map(|word| word.split_once('='))
            .filter_map(|(name, number)| Some((name, number.parse().ok()?)));
        schemas.enums.insert(name, values.collect());
    }
    let mut current = None;
    for line in lines().filter(|line| !line.starts_with("enum ")) {
        if let Some(field) = line.strip_prefix("  ") {
            let schema = current.and_then(|name| schemas.types.get_mut(name));
            if let (Some(schema), Some(field)) = (schema, parse_field(field, &schemas.enums)) {
                schema.fields.push(field);
            }
        } else {
            let name = line.strip_prefix("message ").unwrap_or(line);
            schemas.types.insert(name, Schema { name, dialect, fields: Vec::new() });
            current = Some(name);
        }
    }
    schemas
}

fn parse_field(line: &'static str, enums: &HashMap<&'static str, super::EnumValues>) -> Option<Field> {
    let mut words = line.split(' ');
    let (go, json, kind) = (words.next()?, words.next()?, words.next()?);
    let mut field =
        Field { go, json, kind: parse_kind(kind, enums), inline: false, omit_empty: false, merge: None, oneof: "" };
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

fn parse_kind(text: &'static str, enums: &HashMap<&'static str, super::EnumValues>) -> FieldKind {
    let inner = |text| Box::new(parse_kind(text, enums));
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
        name if enums.contains_key(name) => FieldKind::Enum(name),
        name => FieldKind::Struct(name),
    }
}
