//! What one watch has given so far, by name and version, and what a new sight of an object means for the store. The objects themselves
//! are the store's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use config::kind::Kind;
use config::note::{Note, ObjectId, Severity};
use config::object::{AnyObject, parse_tree};
use config::store::{Name, Standing, Update};
use config::tree::{Node, Value};

pub(super) struct Held {
    kind: Kind,
    objects: HashMap<Name, Entry>,
    /// Of names and versions: two that hold the same have the same, whatever the order.
    digest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    version: u64,
    /// How many objects of ours it became: none if it was never good, several for an Endpoints with subsets.
    parts: usize,
    noted: bool,
}

/// Who an object is and which version of it this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: Name,
    pub(super) version: u64,
    /// Which control planes it is for: its label `istio.io/rev`. `None`: all.
    pub(super) revision: Option<String>,
}

/// The label that names the control plane that an object is for.
pub(super) const REVISION: &str = "istio.io/rev";

impl Seen {
    /// `None`: no API server writes such an object.
    pub(super) fn new(node: &Node) -> Option<Seen> {
        let metadata = node.get("metadata")?;
        let text = |key: &str| metadata.get(key).and_then(Node::text);
        let name = Name::new(text("namespace").unwrap_or_default(), text("name")?);
        let revision = metadata.get("labels").and_then(|labels| labels.get(REVISION)?.text().map(str::to_owned));
        Some(Seen { name, version: version(metadata)?, revision })
    }
}

/// The resourceVersion in a metadata.
pub(super) fn version(metadata: &Node) -> Option<u64> {
    metadata.get("resourceVersion")?.text()?.parse().ok()
}

impl Held {
    pub(super) fn new(kind: Kind) -> Held {
        Held { kind, objects: HashMap::new(), digest: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn version(&self, name: &Name) -> Option<u64> {
        self.objects.get(name).map(|entry| entry.version)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.objects.iter().map(|(name, entry)| (name, entry.version))
    }

    /// An object as it is now. One that cannot be used changes nothing but the notes: its last good form stays in force.
    pub(super) fn put(&mut self, seen: Seen, node: &Node, updates: &mut Vec<Update>) {
        let before = self.objects.get(&seen.name).copied();
        if before.is_some_and(|entry| entry.version == seen.version) {
            return;
        }
        let mut parsed = parse_tree(self.kind, node);
        let held = before.map_or(0, |entry| entry.parts);
        let refused = !parsed.refused.is_empty();
        if refused && held > 0 {
            let errors = parsed.notes.iter_mut().filter(|note| note.severity == Severity::Error);
            errors.for_each(|note| note.what.push_str("; its last good version stays in force"));
        }
        if self.kind.is_istio() {
            let standing = Some(Arc::new(Standing { refused, ..standing(&seen, self.kind, node) }));
            updates.push(Update::Standing { id: self.id(&seen.name), standing });
        }
        let parts = if refused { held } else { parsed.objects.len() };
        let noted = !parsed.notes.is_empty();
        if noted || before.is_some_and(|entry| entry.noted) {
            updates.push(self.notes(&seen.name, parsed.notes));
        }
        let name = parsed.objects.first().map_or(seen.name, shared_name);
        updates.extend((parts..held).map(|part| self.gone(&name, part)));
        updates.extend(parsed.objects.into_iter().map(Update::Put));
        self.digest = self.digest.wrapping_add(digest(&name.namespace, &name.name, seen.version));
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(digest(&name.namespace, &name.name, before.version));
        }
        self.objects.insert(name, Entry { version: seen.version, parts, noted });
    }

    pub(super) fn delete(&mut self, name: &Name, updates: &mut Vec<Update>) {
        let Some(Entry { parts, noted, version }) = self.objects.remove(name) else { return };
        self.digest = self.digest.wrapping_sub(digest(&name.namespace, &name.name, version));
        if self.kind.is_istio() {
            updates.push(Update::Standing { id: self.id(name), standing: None });
        }
        updates.extend((0..parts).map(|part| self.gone(name, part)));
        if noted {
            updates.push(self.notes(name, Vec::new()));
        }
    }

    /// Deletes what is not wanted any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(&Name) -> bool, updates: &mut Vec<Update>) {
        let gone: Vec<Name> = self.objects.keys().filter(|name| !wanted(name)).cloned().collect();
        gone.iter().for_each(|name| self.delete(name, updates));
    }

    /// The end of a list: what it did not name is gone.
    pub(super) fn keep_only(&mut self, listed: &HashSet<Name>, updates: &mut Vec<Update>) {
        self.retain(|name| listed.contains(name), updates);
    }

    fn id(&self, name: &Name) -> ObjectId {
        ObjectId { kind: self.kind, namespace: name.namespace.clone(), name: name.name.clone() }
    }

    /// Parts after the first are called `name/1`, `name/2`.
    fn gone(&self, name: &Name, part: usize) -> Update {
        let id = self.id(name);
        let name = if part == 0 { id.name } else { format!("{}/{part}", id.name).into() };
        Update::Delete(ObjectId { name, ..id })
    }

    fn notes(&self, name: &Name, notes: Vec<Note>) -> Update {
        Update::Notes { source: self.id(name).to_string(), notes }
    }
}

/// One part of a `Held`'s digest.
pub(super) fn digest(namespace: &str, name: &str, version: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(format!("{namespace}/{name}/{version}").as_bytes())
}

fn standing(seen: &Seen, kind: Kind, node: &Node) -> Standing {
    let generation = node.get("metadata").and_then(|metadata| metadata.get("generation"));
    let api_version = node.get("apiVersion").and_then(Node::text);
    let conditions = node.get("status").and_then(|status| status.get("conditions"));
    Standing {
        version: seen.version,
        generation: match generation.map(|generation| &generation.value) {
            Some(Value::Integer(generation)) => *generation,
            _ => 0,
        },
        api_version: api_version.map_or_else(|| format!("{}/{}", kind.group(), kind.versions()[0]).into(), Arc::from),
        revision: seen.revision.as_deref().map(Arc::from),
        refused: false,
        conditions: conditions.map_or_else(String::new, |node| json(node).to_string()).into(),
    }
}

fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Integer(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Text(text) => (&**text).into(),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Mapping(entries) => entries.iter().map(|entry| (&*entry.key, json(&entry.value))).collect(),
    }
}

/// The texts that the object has anyway.
fn shared_name(object: &AnyObject) -> Name {
    let meta = object.meta();
    Name { namespace: Arc::clone(&meta.namespace), name: Arc::clone(&meta.name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::page::{Event, read_event};

    fn seen(held: &mut Held, version: u64, object: &str) -> Vec<String> {
        let metadata = format!(r#"{{"name":"a","namespace":"n","resourceVersion":"{version}"}}"#);
        let line = format!(r#"{{"type":"ADDED","object":{{"metadata":{metadata}{object}}}}}"#);
        let Ok(Event::Put(node)) = read_event(held.kind, line.as_bytes()) else { panic!("{line}") };
        let mut updates = Vec::new();
        held.put(Seen::new(&node).unwrap(), &node, &mut updates);
        shown(updates)
    }

    fn shown(updates: Vec<Update>) -> Vec<String> {
        let shown = updates.into_iter().filter(|update| !matches!(update, Update::Standing { .. }));
        let shown = shown.map(|update| match update {
            Update::Put(object) => format!("put {}", object.id()),
            Update::Delete(id) => format!("delete {id}"),
            Update::Notes { source, notes } => {
                format!("notes {source}: {}", notes.iter().map(ToString::to_string).collect::<String>())
            }
            other => panic!("{other:?}"),
        });
        shown.collect()
    }

    const GOOD: &str = r#","spec":{"hosts":["b"],"http":[{"route":[{"destination":{"host":"b"}}]}]}"#;
    const BAD: &str = r#","spec":{"hosts":["b"],"http":[{"timeout":"soon"}]}"#;

    #[test]
    fn the_same_version_is_no_news() {
        let mut held = Held::new(Kind::VirtualService);
        assert_eq!(seen(&mut held, 1, GOOD), ["put VirtualService n/a"]);
        assert_eq!(seen(&mut held, 1, GOOD), [""; 0]);
        assert_eq!(seen(&mut held, 2, GOOD), ["put VirtualService n/a"]);
    }

    #[test]
    fn the_same_objects_have_the_same_digest_whatever_came_before() {
        let (mut one, mut two) = (Held::new(Kind::VirtualService), Held::new(Kind::VirtualService));
        seen(&mut one, 1, GOOD);
        seen(&mut one, 2, BAD);
        seen(&mut two, 2, BAD);
        assert_eq!(one.digest(), two.digest());
        seen(&mut two, 3, GOOD);
        assert_ne!(one.digest(), two.digest());
        one.delete(&Name::new("n", "a"), &mut Vec::new());
        assert_eq!(one.digest(), 0);
    }

    #[test]
    fn a_bad_version_keeps_the_good_one_and_says_so() {
        let mut held = Held::new(Kind::VirtualService);
        seen(&mut held, 1, GOOD);
        let told = seen(&mut held, 2, BAD);
        assert!(
            told.len() == 1 && told[0].starts_with("notes VirtualService n/a: error: VirtualService n/a: "),
            "{told:?}"
        );
        assert!(told[0].ends_with("its last good version stays in force"), "{told:?}");
        assert_eq!(seen(&mut held, 3, GOOD), ["notes VirtualService n/a: ", "put VirtualService n/a"]);
        seen(&mut held, 4, BAD);
        let mut updates = Vec::new();
        held.delete(&Name::new("n", "a"), &mut updates);
        assert_eq!(shown(updates), ["delete VirtualService n/a", "notes VirtualService n/a: "]);
    }

    #[test]
    fn subsets_come_and_go_as_objects_of_their_own() {
        let subsets = |count: usize| {
            let subset = r#"{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"port":80}]}"#;
            format!(r#","subsets":[{}]"#, vec![subset; count].join(","))
        };
        let mut held = Held::new(Kind::Endpoints);
        assert_eq!(seen(&mut held, 1, &subsets(2)), ["put Endpoints n/a", "put Endpoints n/a/1"]);
        assert_eq!(seen(&mut held, 2, &subsets(1)), ["delete Endpoints n/a/1", "put Endpoints n/a"]);
        let mut updates = Vec::new();
        held.delete(&Name::new("n", "a"), &mut updates);
        assert_eq!(shown(updates), ["delete Endpoints n/a"]);
    }

    #[test]
    fn the_end_of_a_list_removes_what_it_did_not_name() {
        let mut held = Held::new(Kind::VirtualService);
        seen(&mut held, 1, GOOD);
        let mut updates = Vec::new();
        held.keep_only(&HashSet::from([Name::new("n", "a")]), &mut updates);
        assert!(updates.is_empty());
        held.keep_only(&HashSet::new(), &mut updates);
        assert_eq!(shown(updates), ["delete VirtualService n/a"]);
    }
}
