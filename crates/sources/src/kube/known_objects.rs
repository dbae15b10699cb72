//! The objects of one watch by name and version, and the store updates that follow from an observed object. The objects themselves
//! are in the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use config::diagnostic::{Diagnostic, ObjectId, Severity};
use config::kind::Kind;
use config::object::{AnyObject, parse_tree};
use config::store::{Name, ObjectStatus, Update};
use config::tree::{Node, Value};

pub(super) struct KnownObjects {
    kind: Kind,
    objects: HashMap<Name, Entry>,
    /// A digest of names and versions, independent of their order.
    digest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    version: u64,
    /// The number of objects in the store: none if it was never valid, several for an Endpoints with subsets.
    parts: usize,
    reported: bool,
}

/// Name and version of an observed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObservedObject {
    pub(super) name: Name,
    pub(super) version: u64,
    /// The revision that it is for: its label `istio.io/rev`. `None`: all.
    pub(super) revision: Option<String>,
}

/// The label with the revision that an object is for.
pub(super) const REVISION: &str = "istio.io/rev";

impl ObservedObject {
    /// `None`: not an object that an API server writes.
    pub(super) fn new(node: &Node) -> Option<ObservedObject> {
        let metadata = node.get("metadata")?;
        let text = |key: &str| metadata.get(key).and_then(Node::text);
        let name = Name::new(text("namespace").unwrap_or_default(), text("name")?);
        let revision = metadata.get("labels").and_then(|labels| labels.get(REVISION)?.text().map(str::to_owned));
        Some(ObservedObject { name, version: version(metadata)?, revision })
    }
}

/// The resourceVersion of a metadata.
pub(super) fn version(metadata: &Node) -> Option<u64> {
    metadata.get("resourceVersion")?.text()?.parse().ok()
}

impl KnownObjects {
    pub(super) fn new(kind: Kind) -> KnownObjects {
        KnownObjects { kind, objects: HashMap::new(), digest: 0 }
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

    /// Adds or updates an object. An invalid one changes only the diagnostics: its last good version stays in force.
    pub(super) fn put(&mut self, seen: ObservedObject, node: &Node, updates: &mut Vec<Update>) {
        let before = self.objects.get(&seen.name).copied();
        if before.is_some_and(|entry| entry.version == seen.version) {
            return;
        }
        let mut parsed = parse_tree(self.kind, node);
        let known = before.map_or(0, |entry| entry.parts);
        let rejected = !parsed.rejected.is_empty();
        if rejected && known > 0 {
            let errors = parsed.diagnostics.iter_mut().filter(|diagnostic| diagnostic.severity == Severity::Error);
            errors.for_each(|diagnostic| diagnostic.what.push_str("; its last good version stays in force"));
        }
        if self.kind.is_istio() {
            let status = Some(Arc::new(ObjectStatus { rejected, ..object_status(&seen, self.kind, node) }));
            updates.push(Update::ObjectStatus { id: self.id(&seen.name), status });
        }
        let parts = if rejected { known } else { parsed.objects.len() };
        let reported = !parsed.diagnostics.is_empty();
        if reported || before.is_some_and(|entry| entry.reported) {
            updates.push(self.diagnostics(&seen.name, parsed.diagnostics));
        }
        let name = parsed.objects.first().map_or(seen.name, shared_name);
        updates.extend((parts..known).map(|part| self.deletion(&name, part)));
        updates.extend(parsed.objects.into_iter().map(Update::Put));
        self.digest = self.digest.wrapping_add(digest(&name.namespace, &name.name, seen.version));
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(digest(&name.namespace, &name.name, before.version));
        }
        self.objects.insert(name, Entry { version: seen.version, parts, reported });
    }

    pub(super) fn delete(&mut self, name: &Name, updates: &mut Vec<Update>) {
        let Some(Entry { parts, reported, version }) = self.objects.remove(name) else { return };
        self.digest = self.digest.wrapping_sub(digest(&name.namespace, &name.name, version));
        if self.kind.is_istio() {
            updates.push(Update::ObjectStatus { id: self.id(name), status: None });
        }
        updates.extend((0..parts).map(|part| self.deletion(name, part)));
        if reported {
            updates.push(self.diagnostics(name, Vec::new()));
        }
    }

    /// Deletes objects that are out of scope.
    pub(super) fn retain(&mut self, wanted: impl Fn(&Name) -> bool, updates: &mut Vec<Update>) {
        let gone: Vec<Name> = self.objects.keys().filter(|name| !wanted(name)).cloned().collect();
        gone.iter().for_each(|name| self.delete(name, updates));
    }

    /// The end of a list: objects that it did not contain are deleted.
    pub(super) fn keep_only(&mut self, listed: &HashSet<Name>, updates: &mut Vec<Update>) {
        self.retain(|name| listed.contains(name), updates);
    }

    fn id(&self, name: &Name) -> ObjectId {
        ObjectId { kind: self.kind, namespace: name.namespace.clone(), name: name.name.clone() }
    }

    /// Parts after the first are called `name/1`, `name/2`.
    fn deletion(&self, name: &Name, part: usize) -> Update {
        let id = self.id(name);
        let name = if part == 0 { id.name } else { format!("{}/{part}", id.name).into() };
        Update::Delete(ObjectId { name, ..id })
    }

    fn diagnostics(&self, name: &Name, diagnostics: Vec<Diagnostic>) -> Update {
        Update::Diagnostics { source: self.id(name).to_string(), diagnostics }
    }
}

/// One summand of the digest.
pub(super) fn digest(namespace: &str, name: &str, version: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(format!("{namespace}/{name}/{version}").as_bytes())
}

fn object_status(seen: &ObservedObject, kind: Kind, node: &Node) -> ObjectStatus {
    let generation = node.get("metadata").and_then(|metadata| metadata.get("generation"));
    let api_version = node.get("apiVersion").and_then(Node::text);
    let conditions = node.get("status").and_then(|status| status.get("conditions"));
    ObjectStatus {
        version: seen.version,
        generation: match generation.map(|generation| &generation.value) {
            Some(Value::Integer(generation)) => *generation,
            _ => 0,
        },
        api_version: api_version.map_or_else(|| format!("{}/{}", kind.group(), kind.versions()[0]).into(), Arc::from),
        revision: seen.revision.as_deref().map(Arc::from),
        rejected: false,
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

/// Reuses the strings of the object.
fn shared_name(object: &AnyObject) -> Name {
    let meta = object.meta();
    Name { namespace: Arc::clone(&meta.namespace), name: Arc::clone(&meta.name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::page::{Event, read_event};

    fn seen(known: &mut KnownObjects, version: u64, object: &str) -> Vec<String> {
        let metadata = format!(r#"{{"name":"a","namespace":"n","resourceVersion":"{version}"}}"#);
        let line = format!(r#"{{"type":"ADDED","object":{{"metadata":{metadata}{object}}}}}"#);
        let Ok(Event::Put(node)) = read_event(known.kind, line.as_bytes()) else { panic!("{line}") };
        let mut updates = Vec::new();
        known.put(ObservedObject::new(&node).unwrap(), &node, &mut updates);
        shown(updates)
    }

    fn shown(updates: Vec<Update>) -> Vec<String> {
        let shown = updates.into_iter().filter(|update| !matches!(update, Update::ObjectStatus { .. }));
        let shown = shown.map(|update| match update {
            Update::Put(object) => format!("put {}", object.id()),
            Update::Delete(id) => format!("delete {id}"),
            Update::Diagnostics { source, diagnostics } => {
                format!("notes {source}: {}", diagnostics.iter().map(ToString::to_string).collect::<String>())
            }
            other => panic!("{other:?}"),
        });
        shown.collect()
    }

    const GOOD: &str = r#","spec":{"hosts":["b"],"http":[{"route":[{"destination":{"host":"b"}}]}]}"#;
    const BAD: &str = r#","spec":{"hosts":["b"],"http":[{"timeout":"soon"}]}"#;

    #[test]
    fn an_unchanged_version_sends_no_update() {
        let mut known = KnownObjects::new(Kind::VirtualService);
        assert_eq!(seen(&mut known, 1, GOOD), ["put VirtualService n/a"]);
        assert_eq!(seen(&mut known, 1, GOOD), [""; 0]);
        assert_eq!(seen(&mut known, 2, GOOD), ["put VirtualService n/a"]);
    }

    #[test]
    fn the_digest_depends_only_on_the_current_objects() {
        let (mut one, mut two) = (KnownObjects::new(Kind::VirtualService), KnownObjects::new(Kind::VirtualService));
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
    fn an_invalid_version_keeps_the_last_good_one_with_a_diagnostic() {
        let mut known = KnownObjects::new(Kind::VirtualService);
        seen(&mut known, 1, GOOD);
        let updates = seen(&mut known, 2, BAD);
        assert!(
            updates.len() == 1 && updates[0].starts_with("notes VirtualService n/a: error: VirtualService n/a: "),
            "{updates:?}"
        );
        assert!(updates[0].ends_with("its last good version stays in force"), "{updates:?}");
        assert_eq!(seen(&mut known, 3, GOOD), ["notes VirtualService n/a: ", "put VirtualService n/a"]);
        seen(&mut known, 4, BAD);
        let mut updates = Vec::new();
        known.delete(&Name::new("n", "a"), &mut updates);
        assert_eq!(shown(updates), ["delete VirtualService n/a", "notes VirtualService n/a: "]);
    }

    #[test]
    fn subsets_come_and_go_as_objects_of_their_own() {
        let subsets = |count: usize| {
            let subset = r#"{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"port":80}]}"#;
            format!(r#","subsets":[{}]"#, vec![subset; count].join(","))
        };
        let mut known = KnownObjects::new(Kind::Endpoints);
        assert_eq!(seen(&mut known, 1, &subsets(2)), ["put Endpoints n/a", "put Endpoints n/a/1"]);
        assert_eq!(seen(&mut known, 2, &subsets(1)), ["delete Endpoints n/a/1", "put Endpoints n/a"]);
        let mut updates = Vec::new();
        known.delete(&Name::new("n", "a"), &mut updates);
        assert_eq!(shown(updates), ["delete Endpoints n/a"]);
    }

    #[test]
    fn the_end_of_a_list_removes_objects_that_it_lacks() {
        let mut known = KnownObjects::new(Kind::VirtualService);
        seen(&mut known, 1, GOOD);
        let mut updates = Vec::new();
        known.keep_only(&HashSet::from([Name::new("n", "a")]), &mut updates);
        assert!(updates.is_empty());
        known.keep_only(&HashSet::new(), &mut updates);
        assert_eq!(shown(updates), ["delete VirtualService n/a"]);
    }
}
