//! Migration from istiod's installation: converts an IstioOperator to values of our chart. Fields without a value are reported with position and
//! reason.

mod fields;
mod profile;
mod reasons;

use std::sync::Arc;

use anyhow::{Result, bail};
use config::diagnostic::{Diagnostic, Location};
use config::tree::{self, Node, Position};
use config::yaml::{Scalars, documents};
use serde_json::{Map, Value, json};

use fields::{FIELDS, FieldMapping};

/// `file`: the name of the text, for diagnostics.
pub fn convert(file: &str, text: &str) -> Result<ConvertedValues> {
    Ok(convert_operator(file, &operator(file, text)?))
}

/// The one IstioOperator of a text.
fn operator(file: &str, text: &str) -> Result<Node> {
    let mut found = Vec::new();
    for document in documents(text, Scalars::Objects) {
        match document {
            Ok(node) => found.push(node),
            Err(fault) => bail!("{file}:{}:{}: {}", fault.at.line, fault.at.column, fault.what),
        }
    }
    let node = match &found[..] {
        [node] => node,
        [] => bail!("{file} is empty; it should hold an IstioOperator"),
        [_, second, ..] => bail!(
            "{file}:{}:{}: a second document begins here; write one IstioOperator to a file",
            second.at.line,
            second.at.column
        ),
    };
    let text = |key| node.get(key).and_then(Node::text).unwrap_or_default();
    match (text("kind"), text("apiVersion")) {
        ("IstioOperator", "install.istio.io/v1alpha1") => Ok(node.clone()),
        ("IstioOperator", other) => bail!("{file}: apiVersion is {other:?}; it should be install.istio.io/v1alpha1"),
        (other, _) => bail!("{file}: kind is {other:?}; it should be IstioOperator"),
    }
}

/// Values of the chart, and the fields that have none.
#[derive(Debug)]
pub struct ConvertedValues {
    pub values: Value,
    /// Warnings: what was left out. Errors: what cannot be read.
    pub diagnostics: Vec<Diagnostic>,
}

/// The merge order of istioctl, the last wins: profile, top level of the spec, `values`, `unvalidatedValues`, the pilot component.
const ORDER: [&str; 4] = ["", "values", "unvalidatedValues", "components"];

fn convert_operator(file: &str, operator: &Node) -> ConvertedValues {
    let mut conversion = Conversion { file: file.into(), values: json!({}), diagnostics: Vec::new() };
    if let Some(namespace) = operator.get("metadata").and_then(|meta| meta.get("namespace")) {
        conversion.left_out("metadata.namespace", namespace.at, reasons::NAMESPACE);
    }
    let Some(spec) = operator.get("spec") else {
        return conversion.finished();
    };
    let Some(entries) = spec.entries() else {
        conversion.wrong("spec", spec, "should be a mapping");
        return conversion.finished();
    };
    if let Some(profile) = spec.get("profile") {
        conversion.profile(profile);
    }
    for part in ORDER {
        for entry in entries.iter().filter(|entry| &*entry.key != "profile") {
            let is_top = !ORDER.contains(&&*entry.key);
            if &*entry.key == part || (part.is_empty() && is_top) {
                conversion.visit(&entry.key, entry.key_at, &entry.value);
            }
        }
    }
    conversion.finished()
}

struct Conversion {
    file: Arc<str>,
    values: Value,
    diagnostics: Vec<Diagnostic>,
}

impl Conversion {
    fn finished(mut self) -> ConvertedValues {
        self.diagnostics.sort();
        ConvertedValues { values: self.values, diagnostics: self.diagnostics }
    }

    /// Converts a field that the chart has a value for, descends into one with such fields, and reports the others.
    fn visit(&mut self, path: &str, at: Position, node: &Node) {
        // `unvalidatedValues` have the same meaning as `values`.
        let known = path.replacen("unvalidatedValues", "values", 1);
        let has_parts =
            || FIELDS.iter().any(|it| it.from.strip_prefix(&*known).is_some_and(|rest| rest.starts_with('.')));
        if is_default(&known, node) {
            return;
        }
        if let Some(found) = FIELDS.iter().find(|it| it.from == known) {
            self.take(found, path, node);
        } else if !has_parts() {
            self.left_out(&format!("spec.{path}"), at, reasons::reason(&known));
        } else if let Some(entries) = node.entries() {
            for entry in entries {
                self.visit(&format!("{path}.{}", entry.key), entry.key_at, &entry.value);
            }
        } else {
            self.wrong(&format!("spec.{path}"), node, "should be a mapping");
        }
    }

    fn take(&mut self, found: &FieldMapping, path: &str, node: &Node) {
        let field = format!("spec.{path}");
        match found.shape.mismatch(node) {
            Some(expected) => self.wrong(&field, node, expected),
            None if found.to == fields::ENV => self.variables(&field, node),
            None => put(&mut self.values, found.to, node.to_json()),
        }
    }

    /// Kubernetes' list of variables: plain ones by name, which the chart can override one by one, the others as they are.
    fn variables(&mut self, field: &str, node: &Node) {
        let tree::Value::List(items) = &node.value else { return };
        let mut elsewhere = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let name = item.get("name").and_then(Node::text);
            match (name, item.get("value"), item.get("valueFrom")) {
                (Some(name), Some(value), None) if value.entries().is_none() => {
                    // Names of variables may have dots, which are no paths.
                    let env = Map::from_iter([(name.to_owned(), value.to_json())]);
                    put(&mut self.values, "env", env.into());
                }
                (Some(_), None, Some(_)) => elsewhere.push(item.to_json()),
                _ => self.wrong(&format!("{field}[{index}]"), item, "should have a name, and a value or a valueFrom"),
            }
        }
        if !elsewhere.is_empty() {
            put(&mut self.values, "envVarFrom", elsewhere.into());
        }
    }

    fn profile(&mut self, node: &Node) {
        let Some(name) = node.text() else {
            return self.wrong("spec.profile", node, "should be the name of a profile");
        };
        let (values, reason) = profile::values(name);
        merge(&mut self.values, values);
        if let Some(reason) = reason {
            self.left_out("spec.profile", node.at, reason);
        }
    }

    fn left_out(&mut self, field: &str, at: Position, reason: &str) {
        self.report(Diagnostic::warning(format!("left out: {reason}")), field, at);
    }

    fn wrong(&mut self, field: &str, node: &Node, expected: &str) {
        self.report(Diagnostic::error(format!("{expected}, but it is {}", node.described())), field, node.at);
    }

    fn report(&mut self, diagnostic: Diagnostic, field: &str, Position { line, column }: Position) {
        let at = Location { file: self.file.clone(), line, column };
        self.diagnostics.push(diagnostic.field(field).at(at));
    }
}

/// Null, or a default: the pilot component is enabled, another one is disabled.
fn is_default(path: &str, node: &Node) -> bool {
    match (&node.value, path.strip_prefix("components.")) {
        (tree::Value::Null, _) | (tree::Value::Bool(true), Some("pilot.enabled")) => true,
        (_, Some(component)) => !component.starts_with("pilot") && is_off(node),
        _ => false,
    }
}

fn is_off(node: &Node) -> bool {
    match &node.value {
        tree::Value::List(items) => items.iter().all(is_off),
        _ => node.get("enabled").is_some_and(|it| it.value == tree::Value::Bool(false)),
    }
}

/// At a path of keys; mappings that are there already are merged.
fn put(values: &mut Value, path: &str, value: Value) {
    let nested = path.rsplit('.').fold(value, |inner, key| json!({ key: inner }));
    merge(values, nested);
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests;
