//! The fields of pods and of mesh and proxy config: Go's names, JSON's names, types, and how lists of them are merged. The tables are text
//! files beside this one. `typed` checks JSON by them, `record` shows it to templates.

mod record;
mod table;
mod typed;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::template::IntegerType;

pub(crate) use record::SchemaRecord;
pub(crate) use typed::{drop_unknown, typed};

/// One struct or message.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) name: &'static str,
    pub(crate) dialect: Dialect,
    pub(crate) fields: Vec<Field>,
}

/// Protobuf messages have getters, and pointers to them are never missing from JSON's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Kubernetes,
    Protobuf,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) go: &'static str,
    pub(crate) json: &'static str,
    pub(crate) kind: FieldKind,
    /// The fields of its type are fields of the struct itself.
    pub(crate) inline: bool,
    pub(crate) omit_empty: bool,
    /// How a list is merged. `None`: it is replaced.
    pub(crate) merge: Option<ListMerge>,
    /// Empty: not part of a oneof.
    pub(crate) oneof: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListMerge {
    /// Items with an equal value of this field are merged.
    Key(&'static str),
    /// Strings, without duplicates.
    Set,
}

#[derive(Debug, Clone)]
pub(crate) enum FieldKind {
    Text,
    Bool,
    Integer(IntegerType),
    Float,
    Time,
    Quantity,
    IntOrString,
    /// Any JSON.
    Any,
    /// `1.5s`.
    Duration,
    /// A message around one value: BoolValue.
    Wrapper,
    Enum(&'static str),
    /// The place of the type in its table.
    Struct(usize),
    Pointer(Box<FieldKind>),
    List(Box<FieldKind>),
    Map(Box<FieldKind>),
}

/// Names and numbers of an enum.
pub(crate) type EnumValues = Vec<(&'static str, i64)>;

#[derive(Debug, Default)]
struct Schemas {
    types: Vec<Schema>,
    enums: HashMap<&'static str, EnumValues>,
}

static KUBERNETES: LazyLock<Schemas> = LazyLock::new(|| table::parse(include_str!("pod.schema"), Dialect::Kubernetes));
static PROTOBUF: LazyLock<Schemas> = LazyLock::new(|| table::parse(include_str!("mesh.schema"), Dialect::Protobuf));

fn schemas(dialect: Dialect) -> &'static Schemas {
    match dialect {
        Dialect::Kubernetes => &KUBERNETES,
        Dialect::Protobuf => &PROTOBUF,
    }
}

impl Schema {
    pub(crate) fn pod() -> &'static Schema {
        Schema::named("Pod", Dialect::Kubernetes)
    }

    /// Of a type that this crate names; those that fields refer to are found by their place.
    pub(crate) fn named(name: &str, dialect: Dialect) -> &'static Schema {
        let found = schemas(dialect).types.iter().find(|schema| schema.name == name);
        found.expect("a type that is asked for by its name is in the table")
    }

    /// The field of a JSON name, also of inlined structs.
    pub(crate) fn json_field(&'static self, name: &str) -> Option<&'static Field> {
        self.find(&|field| field.json == name)
    }

    /// The field of a Go name, also of inlined structs.
    pub(crate) fn go_field(&'static self, name: &str) -> Option<&'static Field> {
        self.find(&|field| field.go == name)
    }

    fn find(&'static self, wanted: &dyn Fn(&Field) -> bool) -> Option<&'static Field> {
        self.fields.iter().find(|field| wanted(field)).or_else(|| {
            let inlined = self.fields.iter().filter(|field| field.inline);
            inlined.filter_map(|field| field.kind.schema(self.dialect)).find_map(|schema| schema.find(wanted))
        })
    }
}

impl FieldKind {
    /// The struct that this is, points to or has as items.
    pub(crate) fn schema(&self, dialect: Dialect) -> Option<&'static Schema> {
        match self {
            FieldKind::Struct(place) => schemas(dialect).types.get(*place),
            FieldKind::Pointer(inner) | FieldKind::List(inner) | FieldKind::Map(inner) => inner.schema(dialect),
            _ => None,
        }
    }
}

fn enum_values(name: &str) -> &'static EnumValues {
    PROTOBUF.enums.get(name).expect("an enum that the table refers to is in the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_enum_that_a_table_refers_to_is_in_it() {
        for schema in [&KUBERNETES, &PROTOBUF].into_iter().flat_map(|schemas| &schemas.types) {
            for field in &schema.fields {
                assert!(!matches!(field.kind, FieldKind::Enum(name) if enum_values(name).is_empty()));
            }
        }
    }

    #[test]
    fn fields_of_inlined_structs_are_found() {
        let volume = Schema::named("Volume", Dialect::Kubernetes);
        assert_eq!(volume.json_field("emptyDir").map(|field| field.go), Some("EmptyDir"));
        assert_eq!(volume.go_field("HostPath").map(|field| field.json), Some("hostPath"));
    }
}
