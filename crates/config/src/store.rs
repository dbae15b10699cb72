//! The store: one writer that turns updates into numbered, immutable snapshots. It does not know the sources of updates.

mod dense_table;
mod edits;
mod listing;
mod mesh_text;
mod object_status;
mod size;
mod variation;

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::catalogue::for_each_kind;
use crate::diagnostic::{Diagnostic, ObjectId};
use crate::jwks::{FetchedKeys, KeySource};
use crate::kind::Kind;
use crate::mesh::{MeshConfig, MeshNetworks};
use crate::meta::Object;
use crate::object::AnyObject;

use self::mesh_text::{TextState, in_config_map};

pub use self::dense_table::dense_table;
pub use self::edits::Edit;
pub use self::mesh_text::MeshText;
pub use self::object_status::ObjectStatus;

pub type Table<S> = imbl::OrdMap<Name, Arc<Object<S>>>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Empty for kinds without a namespace.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Name {
    pub fn new(namespace: &str, name: &str) -> Name {
        Name { namespace: namespace.into(), name: name.into() }
    }
}

#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The namespace of the control plane; its ConfigMap `istio` holds the mesh config.
    pub pod_namespace: String,
    /// A mesh config that overrides the ConfigMap. `None`: the ConfigMap's.
    pub mesh_config: Option<MeshText>,
}

#[derive(Debug, Clone)]
pub enum Update {
    Put(AnyObject),
    Delete(ObjectId),
    /// The result of a JWKS fetch. `None`: the keys must not be used any longer.
    Keys {
        source: KeySource,
        keys: Option<Arc<str>>,
    },
    /// Replaces the earlier diagnostics of that source, e.g. of a file.
    Diagnostics {
        source: String,
        diagnostics: Vec<Diagnostic>,
    },
    /// Replaces the mesh config that was given at the start.
    MeshConfig(MeshText),
    /// Status of an object of Istio's kinds at the API server. `None`: it is gone.
    ObjectStatus {
        id: ObjectId,
        status: Option<Arc<ObjectStatus>>,
    },
}

macro_rules! define_snapshot {
    ($($variant:ident $table:ident $spec:ty;)*) => {
        /// All objects at one time. Cheap to clone: tables share their nodes.
        #[derive(Debug, Clone)]
        pub struct Snapshot {
            /// Incremented with each change of objects or mesh config; diagnostics and locations do not count.
            pub seq: u64,
            $(pub $table: Table<$spec>,)*
            pub mesh: Arc<MeshConfig>,
            pub networks: Arc<MeshNetworks>,
            pub keys: FetchedKeys,
            /// Of Istio's kinds, if the source is an API server.
            pub object_statuses: imbl::OrdMap<ObjectId, Arc<ObjectStatus>>,
            /// Sorted, without duplicates.
            pub diagnostics: Vec<Diagnostic>,
        }

        impl Snapshot {
            pub fn empty() -> Snapshot {
                Snapshot { seq: 0, $($table: Table::new(),)* mesh: Arc::default(), networks: Arc::default(), keys: FetchedKeys::new(), object_statuses: imbl::OrdMap::new(), diagnostics: Vec::new() }
            }

            /// The objects that `keep` selects, updated incrementally from `part`, the result for `before`. Credentials and mesh config stay.
            pub fn part(&self, before: &Snapshot, part: &Snapshot, keep: impl Fn(&Name) -> bool) -> Snapshot {
                Snapshot {
                    $($table: match Kind::$variant {
                        Kind::Secret | Kind::ConfigMap => self.$table.clone(),
                        _ => filtered(&before.$table, &part.$table, &self.$table, &keep),
                    },)*
                    ..self.clone()
                }
            }

            /// Compacts tables that grew much, as at the start.
            fn settle(&mut self, before: &Snapshot) {
                $(if self.$table.len() > 2 * before.$table.len() {
                    self.$table = dense_table(std::mem::take(&mut self.$table));
                })*
            }

            /// It has this object, with this content and location.
            pub fn holds(&self, object: &AnyObject) -> bool {
                match object {
                    $(AnyObject::$variant(object) => holds(&self.$table, object),)*
                }
            }

            pub fn find(&self, id: &ObjectId) -> Option<AnyObject> {
                let name = Name { namespace: id.namespace.clone(), name: id.name.clone() };
                match id.kind {
                    $(Kind::$variant => self.$table.get(&name).cloned().map(AnyObject::$variant),)*
                }
            }

            fn put(&mut self, object: AnyObject) -> Change {
                match object {
                    $(AnyObject::$variant(object) => put(&mut self.$table, object),)*
                }
            }

            fn delete(&mut self, kind: Kind, name: &Name) -> Change {
                let removed = match kind {
                    $(Kind::$variant => self.$table.remove(name).is_some(),)*
                };
                if removed { Change::Content } else { Change::None }
            }
        }
    };
}
for_each_kind!(define_snapshot);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    None,
    /// Diagnostics, or the location of an object.
    Telling,
    Content,
}

/// Visits only the differences between `before` and `now`.
fn filtered<S: PartialEq>(
    before: &Table<S>,
    part: &Table<S>,
    now: &Table<S>,
    keep: &impl Fn(&Name) -> bool,
) -> Table<S> {
    let mut remaining = part.clone();
    for item in before.diff(now) {
        match item {
            DiffItem::Add(name, object) | DiffItem::Update { new: (name, object), .. } if keep(name) => {
                remaining.insert(name.clone(), object.clone());
            }
            DiffItem::Remove(name, _) => drop(remaining.remove(name)),
            _ => {}
        }
    }
    remaining
}

fn holds<S: PartialEq>(table: &Table<S>, object: &Object<S>) -> bool {
    table.get(&name(object)).is_some_and(|known| known.meta.at == object.meta.at && **known == *object)
}

fn name<S>(object: &Object<S>) -> Name {
    Name { namespace: object.meta.namespace.clone(), name: object.meta.name.clone() }
}

fn put<S: Clone + PartialEq>(table: &mut Table<S>, object: Arc<Object<S>>) -> Change {
    let name = name(&object);
    let change = match table.get(&name) {
        Some(old) if **old != *object => Change::Content,
        Some(old) if old.meta.at != object.meta.at => Change::Telling,
        Some(_) => return Change::None,
        None => Change::Content,
    };
    table.insert(name, object);
    change
}

fn replace_keys(current: &mut FetchedKeys, source: KeySource, keys: Option<Arc<str>>) -> Change {
    if current.get(&source) == keys.as_ref() {
        return Change::None;
    }
    match keys {
        Some(keys) => drop(current.insert(source, keys)),
        None => drop(current.remove(&source)),
    }
    Change::Content
}

fn replace_object_status(
    current: &mut imbl::OrdMap<ObjectId, Arc<ObjectStatus>>,
    id: ObjectId,
    status: Option<Arc<ObjectStatus>>,
) -> Change {
    if current.get(&id) == status.as_ref() {
        return Change::None;
    }
    match status {
        Some(status) => drop(current.insert(id, status)),
        None => drop(current.remove(&id)),
    }
    Change::Telling
}

pub struct Store {
    snapshot: Arc<Snapshot>,
    pod_namespace: Arc<str>,
    given: Option<MeshText>,
    diagnostics: BTreeMap<String, Vec<Diagnostic>>,
    mesh: TextState,
    networks: TextState,
}

impl Store {
    pub fn new(options: StoreOptions) -> Store {
        let mut store = Store {
            snapshot: Arc::new(Snapshot::empty()),
            pod_namespace: options.pod_namespace.into(),
            given: options.mesh_config,
            diagnostics: BTreeMap::new(),
            mesh: TextState::default(),
            networks: TextState::default(),
        };
        let mut first = Snapshot::empty();
        store.refresh_texts(&mut first);
        first.diagnostics = store.sorted_notes();
        store.snapshot = Arc::new(first);
        store
    }

    /// A store that goes on from these objects, for a computation beside the store that they are of.
    pub fn from_snapshot(options: StoreOptions, objects: &Snapshot) -> Store {
        let snapshot = Snapshot { diagnostics: Vec::new(), ..objects.clone() };
        Store { snapshot: Arc::new(snapshot), ..Store::new(options) }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.clone()
    }

    /// Returns the same snapshot if nothing changed; replacing an object by an equal one is no change.
    pub fn apply(&mut self, updates: Vec<Update>) -> Arc<Snapshot> {
        let mut next = (*self.snapshot).clone();
        let mut change = Change::None;
        for update in updates {
            change = change.max(self.apply_one(&mut next, update));
        }
        change = change.max(self.refresh_texts(&mut next));
        if change == Change::None {
            return self.snapshot();
        }
        next.diagnostics = self.sorted_notes();
        if change == Change::Content {
            next.settle(&self.snapshot);
            next.seq += 1;
        }
        self.snapshot = Arc::new(next);
        self.snapshot()
    }

    fn apply_one(&mut self, next: &mut Snapshot, update: Update) -> Change {
        match update {
            Update::Put(object) => next.put(object),
            Update::Delete(id) => next.delete(id.kind, &Name { namespace: id.namespace, name: id.name }),
            Update::Keys { source, keys } => replace_keys(&mut next.keys, source, keys),
            Update::Diagnostics { source, diagnostics } => self.replace_notes(source, diagnostics),
            Update::ObjectStatus { id, status } => replace_object_status(&mut next.object_statuses, id, status),
            Update::MeshConfig(text) => {
                // Whether that changes anything is decided when the texts are parsed.
                self.given = Some(text);
                Change::None
            }
        }
    }

    fn replace_notes(&mut self, source: String, diagnostics: Vec<Diagnostic>) -> Change {
        let same = self.diagnostics.get(&source).map_or(&[][..], Vec::as_slice) == diagnostics;
        if diagnostics.is_empty() {
            self.diagnostics.remove(&source);
        } else {
            self.diagnostics.insert(source, diagnostics);
        }
        if same { Change::None } else { Change::Telling }
    }

    fn refresh_texts(&mut self, next: &mut Snapshot) -> Change {
        let mesh = match &self.given {
            Some(given) => (None, given.clone()),
            None => in_config_map(next, &self.pod_namespace, "mesh"),
        };
        let networks = in_config_map(next, &self.pod_namespace, "meshNetworks");
        let change = self.mesh.refresh(mesh, &mut next.mesh, MeshConfig::parse);
        change.max(self.networks.refresh(networks, &mut next.networks, MeshNetworks::parse))
    }

    fn sorted_notes(&self) -> Vec<Diagnostic> {
        let own = self.mesh.diagnostics.iter().chain(&self.networks.diagnostics);
        let mut diagnostics = self.diagnostics.values().flatten().chain(own).cloned().collect::<Vec<_>>();
        diagnostics.sort();
        diagnostics.dedup();
        diagnostics
    }
}

#[cfg(test)]
mod tests;
