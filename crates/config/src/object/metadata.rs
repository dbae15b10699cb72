//! `metadata`: the identity of an object, and its other common fields.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};

use super::name;
use crate::de::{FieldError, Outcome, Rules, read, unknown_field};
use crate::diagnostic::ObjectId;
use crate::intern::{self, intern_str};
use crate::kind::Kind;
use crate::labels::Labels;
use crate::meta::{Meta, Owner};
use crate::tree::{Node, quoted};

/// All fields that an API server writes. Those that are not in `Raw` are not used.
const FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Kubernetes sets this label on every Namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

pub(super) fn identity(kind: Kind, node: &Node) -> Result<ObjectId, FieldError> {
    let Some(metadata) = node.get("metadata") else {
        return Err(problem("metadata", node, format!("it is missing; a {kind} needs at least metadata.name")));
    };
    if metadata.entries().is_none() {
        return Err(problem("metadata", metadata, format!("expected a mapping, found {}", metadata.described())));
    }
    let Some(node) = metadata.get("name") else {
        return Err(problem("metadata.name", metadata, format!("it is missing; give the {kind} a name")));
    };
    let name = checked(node, "metadata.name", |name| name::fault(kind, name))?;
    let namespace = match metadata.get("namespace") {
        Some(node) if kind.is_namespaced() && node.text() != Some("") => {
            checked(node, "metadata.namespace", name::label_fault)?
        }
        _ if kind.is_namespaced() => "default",
        _ => "",
    };
    Ok(ObjectId { kind, namespace: intern_str(namespace), name: name.into() })
}

fn checked<'a>(node: &'a Node, field: &str, fault: impl Fn(&str) -> Option<String>) -> Result<&'a str, FieldError> {
    let Some(text) = node.text() else {
        return Err(problem(field, node, format!("expected a string, found {}; put it in quotes", node.described())));
    };
    match fault(text) {
        Some(what) => Err(problem(field, node, what)),
        None => Ok(text),
    }
}

fn problem(field: &str, node: &Node, what: String) -> FieldError {
    FieldError { field: field.to_owned(), at: node.at, what }
}

/// Everything but the location.
pub(super) fn meta(id: &ObjectId, node: &Node) -> Outcome<Meta> {
    let Some(metadata) = node.get("metadata") else {
        return Outcome { value: Some(Meta::default()), errors: Vec::new(), warnings: Vec::new() };
    };
    let unknown = metadata.entries().unwrap_or_default().iter().filter(|entry| !FIELDS.contains(&&*entry.key));
    let warnings = unknown.map(|entry| FieldError {
        field: format!("metadata.{}", entry.key),
        at: entry.key_at,
        what: unknown_field(&entry.key, FIELDS),
    });
    let read = read::<Raw>(metadata, "metadata", Rules::Kubernetes).map(|raw| raw.into_meta(id));
    Outcome { warnings: warnings.collect(), ..read }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    labels: Labels,
    annotations: Labels,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    generate_name: String,
    owner_references: Vec<RawOwner>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawOwner {
    #[serde(deserialize_with = "intern::text")]
    kind: Arc<str>,
    #[serde(deserialize_with = "intern::text")]
    name: Arc<str>,
    controller: bool,
}

/// Unix seconds.
struct Time(i64);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = text.parse::<jiff::Timestamp>();
        time.map(|time| Time(time.as_second())).map_err(|_| {
            de::Error::custom(format!("{} is not a time; write it like 2026-01-31T12:00:00Z", quoted(&text)))
        })
    }
}

impl Raw {
    fn into_meta(self, id: &ObjectId) -> Meta {
        let mut labels = self.labels;
        if id.kind == Kind::Namespace {
            labels.insert(NAMESPACE_NAME, &id.name);
        }
        let controller = self.owner_references.into_iter().find(|owner| owner.controller);
        Meta {
            name: id.name.clone(),
            namespace: id.namespace.clone(),
            labels,
            annotations: self.annotations,
            created: self.creation_timestamp.map(|Time(seconds)| seconds),
            has_generated_name: !self.generate_name.is_empty(),
            controller: controller.map(|RawOwner { kind, name, .. }| Box::new(Owner { kind, name })),
            at: None,
            deleting: self.deletion_timestamp.is_some(),
        }
    }
}
