//! Reads journal files of processes before this one: what they recorded becomes the oldest part of the history. Contents stay in the file until
//! somebody asks for them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::ProxyKind;
use prost::Message;
use views::{ChangedObject, LayerKey, PushCause};
use xds::TypeUrl;

use crate::file_format::{FileEntry, SavedEntry, SavedGroup, SavedPush, SavedStay, SavedVersion, entries};
use crate::journal::{LoadedPush, ResourceHistory, VersionChange};
use crate::past_proxies::ClassStay;
use crate::past_resource::PastResource;
use crate::state::PastState;

/// Reads a part of a file. `None`: it is gone.
pub type SavedReader = Arc<dyn Fn(Range<u64>) -> Option<Vec<u8>> + Send + Sync>;

struct FileLoader {
    read: SavedReader,
    versions: HashMap<u64, Arc<PastResource>>,
    /// By their number in the file.
    layers: HashMap<u64, (LayerKey, PastState)>,
}

impl ResourceHistory {
    /// To be called before anything is recorded, the oldest file first. `bytes`: of the whole file.
    pub fn load(&mut self, bytes: &[u8], read: SavedReader) {
        let mut loader = FileLoader { read, versions: HashMap::new(), layers: HashMap::new() };
        for (place, entry) in entries(bytes) {
            match entry {
                SavedEntry::Start(start) => self.begin_at(start.seq, time(start.at_ms)),
                SavedEntry::Version(version) => loader.version(place, version),
                SavedEntry::Layer(layer) => {
                    let versions = layer.versions.iter().filter_map(|id| loader.versions.get(id).cloned());
                    let state = versions.map(|it| ((it.kind, it.name.clone()), it)).collect();
                    loader.layers.insert(layer.key, (self.new_past_layer(), state));
                }
                SavedEntry::Push(push) => {
                    let push = loader.push(push);
                    self.add_loaded(push);
                }
                SavedEntry::Stay(stay) => self.add_stay(&loader, stay),
            }
        }
        for (key, state) in loader.layers.into_values() {
            self.add_ended(key, state.into_values().collect());
        }
    }

    fn add_stay(&mut self, loader: &FileLoader, stay: SavedStay) {
        let layers: Vec<LayerKey> =
            stay.layers.iter().filter_map(|number| Some(loader.layers.get(number)?.0)).collect();
        let Ok(layers) = layers.try_into() else { return };
        let kind = if stay.gateway { ProxyKind::Gateway } else { ProxyKind::Sidecar };
        let class_stay = ClassStay { since: stay.since, layers };
        self.proxies_mut().add_stay(stay.proxy.into(), &stay.namespace.into(), kind, class_stay);
    }
}

impl FileLoader {
    fn version(&mut self, place: Range<u64>, saved: SavedVersion) {
        let Some(kind) = TypeUrl::from_url(&saved.type_url) else { return };
        let base = self.versions.get(&saved.base).cloned();
        let (id, read) = (saved.id, self.read.clone());
        let is_difference = saved.base != 0;
        if is_difference && base.is_none() {
            return;
        }
        self.versions.insert(id, Arc::new(PastResource::saved(kind, saved, SavedContent { read, place, base })));
    }

    fn push(&mut self, SavedPush { seq, at_ms, cause, objects, more, groups }: SavedPush) -> LoadedPush {
        let objects = objects.into_iter().map(|it| ChangedObject {
            object: it.object.into(),
            namespace: it.namespace.into(),
            deleted: it.deleted,
        });
        let cause = PushCause { text: cause, objects: objects.collect(), more: usize::try_from(more).unwrap_or(0) };
        let groups = groups.iter().map(|group| self.group(group)).collect();
        LoadedPush { seq, at: time(at_ms), cause, groups }
    }

    fn group(&mut self, SavedGroup { layers, changes }: &SavedGroup) -> (Vec<VersionChange>, Vec<LayerKey>) {
        let side = |id: &u64| self.versions.get(id).cloned();
        let changes = changes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[before, after]| VersionChange { before: side(before), after: side(after) });
        let changes: Vec<VersionChange> = changes.filter(|it| it.before.is_some() || it.after.is_some()).collect();
        let mut keys = Vec::new();
        for number in layers {
            let Some((key, state)) = self.layers.get_mut(number) else { continue };
            keys.push(*key);
            for change in &changes {
                let name = (change.resource().kind, change.resource().name.clone());
                match &change.after {
                    Some(after) => drop(state.insert(name, after.clone())),
                    None => drop(state.remove(&name)),
                }
            }
        }
        keys.sort_unstable();
        (changes, keys)
    }
}

/// The content of a version in a file.
#[derive(Clone)]
pub(crate) struct SavedContent {
    read: SavedReader,
    place: Range<u64>,
    /// The version that it is a difference from.
    base: Option<Arc<PastResource>>,
}

impl SavedContent {
    pub(crate) fn base(&self) -> Option<&Arc<PastResource>> {
        self.base.as_ref()
    }

    /// `None`: the file is gone.
    pub(crate) fn version(&self) -> Option<SavedVersion> {
        let bytes = (self.read)(self.place.clone())?;
        match FileEntry::decode(&*bytes).ok()?.body? {
            SavedEntry::Version(version) => Some(version),
            _ => None,
        }
    }
}

impl std::fmt::Debug for SavedContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedContent").field("place", &self.place).finish_non_exhaustive()
    }
}

fn time(at_ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms)
}
