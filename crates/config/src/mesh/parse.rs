//! Texts into the mesh config and the mesh networks, read as istiod reads them: YAML 1.1 scalars, unknown fields skipped.

use super::{ExtensionProvider, MeshConfig, MeshNetworks};
use crate::de::read_text;
use crate::note::{Note, Severity};
use crate::tree::{Node, Position, Value};
use crate::yaml::{Scalars, documents};

impl MeshConfig {
    /// The config over istiod's defaults, and warnings. `Err`: istiod would drop the whole text, and why.
    pub fn parse(text: &str, file: &str) -> Result<(MeshConfig, Vec<Note>), Vec<Note>> {
        let (mut config, notes) = read_text::<MeshConfig>(file, text, Scalars::MeshConfig)?;
        let found = config.check();
        config.extension_providers = ExtensionProvider::over_built_in(config.extension_providers);
        judged(config, notes, placed(found, text, file))
    }
}

impl MeshNetworks {
    /// `Err`: istiod would drop the whole text, and why.
    pub fn parse(text: &str, file: &str) -> Result<(MeshNetworks, Vec<Note>), Vec<Note>> {
        let (networks, notes) = read_text::<MeshNetworks>(file, text, Scalars::MeshConfig)?;
        let found = networks.check();
        judged(networks, notes, placed(found, text, file))
    }
}

fn judged<T>(value: T, mut notes: Vec<Note>, found: Vec<Note>) -> Result<(T, Vec<Note>), Vec<Note>> {
    notes.extend(found);
    if notes.iter().any(|note| note.severity == Severity::Error) { Err(notes) } else { Ok((value, notes)) }
}

/// Gives each note the place of its field. The text is read again, which costs only those whose config has faults.
fn placed(notes: Vec<Note>, text: &str, file: &str) -> Vec<Note> {
    if notes.is_empty() {
        return notes;
    }
    let Some(Ok(root)) = documents(text, Scalars::MeshConfig).next() else { return notes };
    notes.into_iter().map(|note| Note { at: Some(place(&root, &note.field).in_file(file)), ..note }).collect()
}

/// Where the field stands, or the innermost part of its path that was written.
fn place(node: &Node, path: &str) -> Position {
    let path = path.strip_prefix('.').unwrap_or(path);
    match &node.value {
        Value::List(items) => {
            let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) else {
                return node.at;
            };
            let item = index.parse::<usize>().ok().and_then(|index| items.get(index));
            item.map_or(node.at, |item| place(item, rest))
        }
        Value::Mapping(entries) => {
            let written = entries.iter().find_map(|entry| Some((entry, after_key(path, &entry.key)?)));
            written.map_or(node.at, |(entry, rest)| place(&entry.value, rest))
        }
        _ => node.at,
    }
}

/// What follows the key in a path; the key may be spelt in `snake_case`.
fn after_key<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
    if let Some(rest) = path.strip_prefix(key).filter(|rest| ends(rest)) {
        return Some(rest);
    }
    let (name, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
    name.eq_ignore_ascii_case(&key.replace('_', "")).then_some(rest)
}
