//! The store: one writer that turns updates into numbered, immutable snapshots. Where updates come from is not its concern.

mod filled;
mod listing;
mod mesh_text;
mod size;
mod standing;

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::catalogue::for_each_kind;
use crate::jwks::{FetchedKeys, KeySource};
use crate::kind::Kind;
use crate::mesh::{MeshConfig, MeshNetworks};
use crate::meta::Object;
use crate::note::{Note, ObjectId};
use crate::object::AnyObject;

use self::mesh_text::{Live, in_config_map};

pub use self::filled::filled;
pub use self::mesh_text::MeshText;
pub use self::standing::Standing;

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
    /// Where the control plane runs; its ConfigMap `istio` holds the mesh config.
    pub pod_namespace: String,
    /// A mesh config that goes before the ConfigMap's. `None`: the ConfigMap decides.
    pub mesh_config: Option<MeshText>,
}

#[derive(Debug, Clone)]
pub enum Update {
    Put(AnyObject),
    Delete(ObjectId),
    /// What a fetch of keys brought. `None`: they must not be used any longer.
    Keys {
        source: KeySource,
        keys: Option<Arc<str>>,
    },
    /// Takes the place of the earlier notes of that source, e.g. of a file.
    Notes {
        source: String,
        notes: Vec<Note>,
    },
    /// Takes the place of the mesh config that was given at the start.
    MeshConfig(MeshText),
    /// What an API server says of an object of Istio's kinds. `None`: it is gone.
    Standing {
        id: ObjectId,
        standing: Option<Arc<Standing>>,
    },
}

macro_rules! define_snapshot {
    ($($variant:ident $table:ident $spec:ty;)*) => {
        /// All objects at one moment. `clone` is cheap: tables share what they have in common.
        #[derive(Debug, Clone)]
        pub struct Snapshot {
            /// Grows by one with each change of objects or mesh config; notes and places do not count.
            pub seq: u64,
            $(pub $table: Table<$spec>,)*
            pub mesh: Arc<MeshConfig>,
            pub networks: Arc<MeshNetworks>,
            pub keys: FetchedKeys,
            /// Of Istio's kinds, where the source is an API server.
            pub standings: imbl::OrdMap<ObjectId, Arc<Standing>>,
            /// Sorted, without repetitions.
            pub notes: Vec<Note>,
        }

        impl Snapshot {
            pub fn empty() -> Snapshot {
                Snapshot { seq: 0, $($table: Table::new(),)* mesh: Arc::default(), networks: Arc::default(), keys: FetchedKeys::new(), standings: imbl::OrdMap::new(), notes: Vec::new() }
            }

            /// The part that `keep` keeps, made from the part of what was `before`. Credentials and mesh config stay as they are.
            pub fn part(&self, before: &Snapshot, part: &Snapshot, keep: impl Fn(&Name) -> bool) -> Snapshot {
                Snapshot {
                    $($table: match Kind::$variant {
                        Kind::Secret | Kind::ConfigMap => self.$table.clone(),
                        _ => kept(&before.$table, &part.$table, &self.$table, &keep),
                    },)*
                    ..self.clone()
                }
            }

            /// Tables that grew much since, as at the start, lose their empty places.
            fn settle(&mut self, before: &Snapshot) {
                $(if self.$table.len() > 2 * before.$table.len() {
                    self.$table = filled(std::mem::take(&mut self.$table));
                })*
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
    /// Notes, or the place where an object was read.
    Telling,
    Content,
}

/// What is in both before and now costs nothing.
fn kept<S: PartialEq>(before: &Table<S>, part: &Table<S>, now: &Table<S>, keep: &impl Fn(&Name) -> bool) -> Table<S> {
    let mut kept = part.clone();
    for item in before.diff(now) {
        match item {
            DiffItem::Add(name, object) | DiffItem::Update { new: (name, object), .. } if keep(name) => {
                kept.insert(name.clone(), object.clone());
            }
            DiffItem::Remove(name, _) => drop(kept.remove(name)),
            _ => {}
        }
    }
    kept
}

fn put<S: Clone + PartialEq>(table: &mut Table<S>, object: Arc<Object<S>>) -> Change {
    let name = Name { namespace: object.meta.namespace.clone(), name: object.meta.name.clone() };
    let change = match table.get(&name) {
        Some(old) if **old != *object => Change::Content,
        Some(old) if old.meta.at != object.meta.at => Change::Telling,
        Some(_) => return Change::None,
        None => Change::Content,
    };
    table.insert(name, object);
    change
}

fn replace_keys(held: &mut FetchedKeys, source: KeySource, keys: Option<Arc<str>>) -> Change {
    if held.get(&source) == keys.as_ref() {
        return Change::None;
    }
    match keys {
        Some(keys) => drop(held.insert(source, keys)),
        None => drop(held.remove(&source)),
    }
    Change::Content
}

fn replace_standing(
    held: &mut imbl::OrdMap<ObjectId, Arc<Standing>>,
    id: ObjectId,
    standing: Option<Arc<Standing>>,
) -> Change {
    if held.get(&id) == standing.as_ref() {
        return Change::None;
    }
    match standing {
        Some(standing) => drop(held.insert(id, standing)),
        None => drop(held.remove(&id)),
    }
    Change::Telling
}

pub struct Store {
    snapshot: Arc<Snapshot>,
    pod_namespace: Arc<str>,
    given: Option<MeshText>,
    notes: BTreeMap<String, Vec<Note>>,
    mesh: Live,
    networks: Live,
}

impl Store {
    pub fn new(options: StoreOptions) -> Store {
        let mut store = Store {
            snapshot: Arc::new(Snapshot::empty()),
            pod_namespace: options.pod_namespace.into(),
            given: options.mesh_config,
            notes: BTreeMap::new(),
            mesh: Live::default(),
            networks: Live::default(),
        };
        let mut first = Snapshot::empty();
        store.refresh_texts(&mut first);
        first.notes = store.sorted_notes();
        store.snapshot = Arc::new(first);
        store
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.clone()
    }

    /// The same snapshot if nothing changed; an object equal to the one that it replaces is no change.
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
        next.notes = self.sorted_notes();
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
            Update::Notes { source, notes } => self.replace_notes(source, notes),
            Update::Standing { id, standing } => replace_standing(&mut next.standings, id, standing),
            Update::MeshConfig(text) => {
                // Whether that changes anything is found when the texts are read.
                self.given = Some(text);
                Change::None
            }
        }
    }

    fn replace_notes(&mut self, source: String, notes: Vec<Note>) -> Change {
        let same = self.notes.get(&source).map_or(&[][..], Vec::as_slice) == notes;
        if notes.is_empty() {
            self.notes.remove(&source);
        } else {
            self.notes.insert(source, notes);
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

    fn sorted_notes(&self) -> Vec<Note> {
        let own = self.mesh.notes.iter().chain(&self.networks.notes);
        let mut notes = self.notes.values().flatten().chain(own).cloned().collect::<Vec<_>>();
        notes.sort();
        notes.dedup();
        notes
    }
}

#[cfg(test)]
mod tests;
