//! Pushes for a history: each with the layers before and after it, which are shared with the engine. What changed in them is computed later, off
//! the path of the push. Secrets are in no layer.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use imbl::HashMap;
use model::Proxy;
use xds::{Resource, Seq, TypeUrl};

use crate::layer::Layer;
use crate::layer_cache::{LayerEntry, LayerId};
use crate::layer_caches::LayerIds;
use crate::plan;
use crate::table::Table;

/// Why there was a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushCause {
    /// For people.
    pub text: String,
    /// What changed.
    pub objects: Vec<ChangedObject>,
    /// The number of objects that changed too.
    pub more: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedObject {
    /// Such as `VirtualService shop/cart`, as in the provenance of resources.
    pub object: Arc<str>,
    /// Empty: it has none, or is not an object.
    pub namespace: Arc<str>,
    pub deleted: bool,
}

impl PushCause {
    /// A cause that is not an object.
    pub fn text(text: &str) -> PushCause {
        PushCause { text: text.to_owned(), ..PushCause::default() }
    }
}

/// Identifies a layer for as long as the process lives: its id, and which of the three layers of a class it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerKey(u64);

impl LayerKey {
    fn new(part: usize, id: LayerId) -> LayerKey {
        LayerKey(id << 2 | part as u64)
    }

    fn part(self) -> usize {
        (self.0 & 3) as usize
    }

    fn id(self) -> LayerId {
        self.0 >> 2
    }

    pub(crate) fn of_class([first, second, third]: LayerIds) -> [LayerKey; 3] {
        [LayerKey::new(0, first), LayerKey::new(1, second), LayerKey::new(2, third)]
    }
}

/// All layers at one moment. Cheap to clone.
#[derive(Clone, Default)]
pub struct LayerSnapshot {
    pub(crate) layers: [HashMap<LayerId, LayerEntry>; 3],
    /// Counts how often layers were dropped before.
    pub(crate) drops: u64,
}

impl LayerSnapshot {
    /// `None`: it does not exist, or no longer.
    pub fn resources(&self, key: LayerKey) -> Option<impl Iterator<Item = (TypeUrl, &Arc<Resource>)>> {
        let tables = self.layer(key)?.tables();
        Some(tables.flat_map(|(kind, table)| table.resources().map(move |resource| (kind, resource))))
    }

    pub fn contains(&self, key: LayerKey) -> bool {
        self.layer(key).is_some()
    }

    /// The layers that the next snapshot does not have any more.
    pub fn dropped_in(&self, next: &LayerSnapshot) -> Vec<LayerKey> {
        if self.drops == next.drops {
            return Vec::new();
        }
        let of_part = |(part, layers)| HashMap::keys(layers).map(move |id| LayerKey::new(part, *id));
        let keys = self.layers.iter().enumerate().flat_map(of_part);
        keys.filter(|key| !next.contains(*key)).collect()
    }

    fn layer(&self, key: LayerKey) -> Option<&Arc<Layer>> {
        self.layers.get(key.part())?.get(&key.id()).map(|entry| &entry.layer)
    }
}

/// A push that was not taken yet.
pub struct PushRecord {
    pub seq: Seq,
    pub at: SystemTime,
    pub cause: PushCause,
    /// May contain duplicates.
    pub(crate) classes: Vec<LayerIds>,
    pub(crate) moved: Vec<ClassMove>,
    pub before: LayerSnapshot,
    pub after: LayerSnapshot,
}

/// A resource that was added, replaced or removed in a layer.
pub struct RecordedChange {
    pub kind: TypeUrl,
    /// `None`: it was added.
    pub before: Option<Arc<Resource>>,
    /// `None`: it was removed.
    pub after: Option<Arc<Resource>>,
}

/// A proxy and the layers of its class from then on.
#[derive(Debug, Clone)]
pub struct ClassMove {
    pub proxy: Arc<Proxy>,
    pub layers: [LayerKey; 3],
    pub since: Seq,
    /// It joined while the push was computed: what is recorded of it since the push before is not true.
    pub overtaken: bool,
}

impl PushRecord {
    pub fn moved(&self) -> &[ClassMove] {
        &self.moved
    }

    /// The layers that changed, sorted, and what changed in each.
    pub fn changes(&self) -> Vec<(LayerKey, Vec<RecordedChange>)> {
        let keys: BTreeSet<LayerKey> = self.classes.iter().flat_map(|ids| LayerKey::of_class(*ids)).collect();
        let changes = keys.into_iter().filter_map(|key| {
            let (before, after) = (self.before.layer(key)?, self.after.layer(key)?);
            let changes = if Arc::ptr_eq(before, after) { Vec::new() } else { layer_changes(before, after) };
            (!changes.is_empty()).then_some((key, changes))
        });
        changes.collect()
    }

    /// Joins a push with the one after it: nobody took it in time.
    fn merge(&mut self, next: PushRecord) {
        let PushRecord { seq, at, cause, classes, moved, before: _, after } = next;
        (self.seq, self.at, self.after) = (seq, at, after);
        self.classes.extend(classes);
        self.moved.extend(moved);
        if cause.text != self.cause.text {
            self.cause.text = format!("{}, {}", self.cause.text, cause.text);
        }
        let room = MAX_OBJECTS.saturating_sub(self.cause.objects.len()).min(cause.objects.len());
        self.cause.more += cause.more + cause.objects.len() - room;
        self.cause.objects.extend(cause.objects.into_iter().take(room));
    }
}

/// Pushes that may wait to be taken: each keeps what it replaced in memory.
const MAX_PENDING: usize = 64;
/// Objects that are named of pushes that are joined.
const MAX_OBJECTS: usize = 1000;

/// What happened since it was last taken.
#[derive(Default)]
pub struct Records {
    /// The newest is the last.
    pub pushes: Vec<PushRecord>,
    /// Proxies that joined a class.
    pub joined: Vec<ClassMove>,
    /// In force now.
    pub layers: LayerSnapshot,
    pub seq: Seq,
}

impl Records {
    pub(crate) fn push(&mut self, record: PushRecord) {
        let is_full = self.pushes.len() >= MAX_PENDING;
        match self.pushes.last_mut().filter(|_| is_full) {
            Some(last) => last.merge(record),
            None => self.pushes.push(record),
        }
    }
}

fn layer_changes(before: &Layer, after: &Layer) -> Vec<RecordedChange> {
    static EMPTY: OnceLock<Arc<Table>> = OnceLock::new();
    let mut changes = Vec::new();
    for (kind, now) in after.tables() {
        let was = before.table(kind).unwrap_or_else(|| EMPTY.get_or_init(Arc::default));
        if !Arc::ptr_eq(was, now) {
            table_changes(&mut changes, kind, was, now);
        }
    }
    changes
}

/// Of large tables only what changed is visited.
fn table_changes(changes: &mut Vec<RecordedChange>, kind: TypeUrl, was: &Table, now: &Table) {
    let answer = now.since(was.seq);
    if answer.full {
        let all = plan::table_changes(kind, was, now).into_iter();
        changes.extend(all.map(|it| RecordedChange { kind, before: it.before, after: it.after }));
        return;
    }
    for resource in &answer.changed {
        let before = was.get(&resource.name);
        if before.is_none_or(|before| before.version != resource.version) {
            changes.push(RecordedChange { kind, before: before.cloned(), after: Some(resource.clone()) });
        }
    }
    let gone = answer.removed.iter().filter_map(|name| was.get(name));
    changes.extend(gone.map(|before| RecordedChange { kind, before: Some(before.clone()), after: None }));
}
