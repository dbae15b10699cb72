//! `meltemi values`: an IstioOperator as values of our chart. What the chart has no value for is named, with its place and why; nothing
//! is dropped in silence.

mod moves;
mod profile;
mod reasons;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use config::note::{Location, Note, Severity};
use config::tree::{self, Node, Position};
use config::yaml::{Scalars, documents};
use serde_json::{Map, Value, json};

use self::moves::{MOVES, Move};
use super::render::json as plain;
use super::{Outcome, print_document};
use crate::args::Values;

pub(crate) fn run(args: &Values) -> Result<Outcome> {
    let (file, text) = read(&args.filename)?;
    let converted = converted(&file, &operator(&file, &text)?);
    converted.notes.iter().for_each(|note| eprintln!("{note}"));
    if converted.notes.iter().any(|note| note.severity == Severity::Error) {
        return Ok(Outcome::Found);
    }
    print_document(&converted.values, args.output);
    Ok(if args.strict && !converted.notes.is_empty() { Outcome::Found } else { Outcome::Done })
}

fn read(file: &Path) -> Result<(String, String)> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        return Ok(("stdin".to_owned(), text));
    }
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    Ok((name, text))
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

#[derive(Debug)]
struct Converted {
    values: Value,
    /// Warnings: what was left out. Errors: what cannot be read.
    notes: Vec<Note>,
}

/// As istioctl merges them, the last wins: profile, top level of the spec, `values`, `unvalidatedValues`, what is said of the pilot component.
const ORDER: [&str; 4] = ["", "values", "unvalidatedValues", "components"];

fn converted(file: &str, operator: &Node) -> Converted {
    let mut conversion = Conversion { file: file.into(), values: json!({}), notes: Vec::new() };
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
    notes: Vec<Note>,
}

impl Conversion {
    fn finished(mut self) -> Converted {
        self.notes.sort();
        Converted { values: self.values, notes: self.notes }
    }

    /// Takes what the chart has a value for, goes into what has such parts, and names the rest.
    fn visit(&mut self, path: &str, at: Position, node: &Node) {
        // Values that nobody checked mean the same as those that somebody did.
        let known = path.replacen("unvalidatedValues", "values", 1);
        let has_parts =
            || MOVES.iter().any(|it| it.from.strip_prefix(&*known).is_some_and(|rest| rest.starts_with('.')));
        if says_nothing(&known, node) {
            return;
        }
        if let Some(found) = MOVES.iter().find(|it| it.from == known) {
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

    fn take(&mut self, found: &Move, path: &str, node: &Node) {
        let field = format!("spec.{path}");
        match found.shape.refusal(node) {
            Some(expected) => self.wrong(&field, node, expected),
            None if found.to == moves::ENV => self.variables(&field, node),
            None => put(&mut self.values, found.to, plain(node)),
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
                    let env = Map::from_iter([(name.to_owned(), plain(value))]);
                    put(&mut self.values, "env", env.into());
                }
                (Some(_), None, Some(_)) => elsewhere.push(plain(item)),
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
        self.note(Note::warning(format!("left out: {reason}")), field, at);
    }

    fn wrong(&mut self, field: &str, node: &Node, expected: &str) {
        self.note(Note::error(format!("{expected}, but it is {}", node.described())), field, node.at);
    }

    fn note(&mut self, note: Note, field: &str, Position { line, column }: Position) {
        let at = Location { file: self.file.clone(), line, column };
        self.notes.push(note.field(field).at(at));
    }
}

/// Not set, or what is so anyway: this component runs, and another that is not wanted is not missed.
fn says_nothing(path: &str, node: &Node) -> bool {
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
