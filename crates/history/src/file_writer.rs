//! Writes what is recorded as the entries of a journal file. A version is written once, whole or as the difference from the one that it replaced.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use model::ProxyKind;
use views::{LayerKey, LayerSnapshot};
use xds::Seq;
use xxhash_rust::xxh3::Xxh3;

use crate::bytes_difference::BytesDifference;
use crate::file_format::{
    self, SavedEntry, SavedGroup, SavedLayer, SavedObject, SavedPush, SavedStart, SavedStay, SavedVersion,
};
use crate::journal::PastPush;
use crate::past_resource::PastResource;

/// Where the bytes of a file go.
pub type JournalSink = Box<dyn FnMut(&[u8]) + Send>;

/// So many differences one from the other before a version is written whole.
const MAX_CHAIN: u8 = 32;

/// Texts of what must not be on disk: an EnvoyFilter can put a key into any message.
const SECRETS: [&[u8]; 2] = [b"PRIVATE KEY", b"ISTIO_META_WASM_IMAGE_PULL_SECRET"];

pub(crate) struct FileWriter {
    sink: JournalSink,
    /// By a hash of what tells versions apart.
    versions: HashMap<u128, WrittenVersion>,
    layers: HashSet<LayerKey>,
}

#[derive(Clone, Copy)]
struct WrittenVersion {
    id: u64,
    /// The number of differences down to a whole one.
    chain: u8,
}

impl FileWriter {
    pub(crate) fn new(sink: JournalSink, seq: Seq, at: SystemTime) -> FileWriter {
        let mut writer = FileWriter { sink, versions: HashMap::new(), layers: HashSet::new() };
        writer.write(SavedEntry::Start(SavedStart { seq, at_ms: milliseconds(at) }));
        writer
    }

    fn write(&mut self, entry: SavedEntry) {
        let mut bytes = Vec::new();
        file_format::append(&mut bytes, entry);
        (self.sink)(&bytes);
    }

    /// Everything in a layer, unless the file has it. Returns whether the file has it now.
    pub(crate) fn layer(&mut self, key: LayerKey, layers: &LayerSnapshot) -> bool {
        if self.layers.contains(&key) {
            return true;
        }
        let Some(resources) = layers.resources(key) else { return false };
        let versions =
            resources.map(|(kind, resource)| self.version(&PastResource::new(kind, resource), None).id).collect();
        self.write(SavedEntry::Layer(SavedLayer { key: key.number(), versions }));
        self.layers.insert(key)
    }

    pub(crate) fn push(&mut self, push: &PastPush) {
        let groups = push.groups().map(|(changes, layers)| {
            let layers = layers.iter().filter(|key| self.layers.contains(key)).map(|key| key.number()).collect();
            (changes, layers)
        });
        let groups: Vec<(_, Vec<u64>)> = groups.filter(|(_, layers): &(_, Vec<u64>)| !layers.is_empty()).collect();
        let groups = groups.into_iter().map(|(changes, layers)| {
            let mut ids = Vec::new();
            for change in changes {
                let before = change.before.as_ref().map(|version| self.version(version, None));
                let after = change.after.as_ref().map(|it| self.version(it, change.before.as_ref().zip(before)));
                ids.extend([before, after].map(|version| version.map_or(0, |version| version.id)));
            }
            SavedGroup { layers, changes: ids }
        });
        let groups = groups.collect();
        let objects = push.cause.objects.iter().map(|it| SavedObject {
            object: it.object.to_string(),
            namespace: it.namespace.to_string(),
            deleted: it.deleted,
        });
        self.write(SavedEntry::Push(SavedPush {
            seq: push.seq,
            at_ms: milliseconds(push.at),
            cause: push.cause.text.clone(),
            objects: objects.collect(),
            more: push.cause.more as u64,
            groups,
        }));
    }

    pub(crate) fn stay(&mut self, proxy: &str, namespace: &str, kind: ProxyKind, since: Seq, layers: [LayerKey; 3]) {
        self.write(SavedEntry::Stay(SavedStay {
            proxy: proxy.to_owned(),
            namespace: namespace.to_owned(),
            gateway: kind == ProxyKind::Gateway,
            since,
            layers: layers.map(LayerKey::number).to_vec(),
        }));
    }

    /// `base`: the version that it replaced.
    fn version(
        &mut self,
        version: &PastResource,
        base: Option<(&Arc<PastResource>, WrittenVersion)>,
    ) -> WrittenVersion {
        let key = key(version);
        if let Some(known) = self.versions.get(&key) {
            return *known;
        }
        let id = self.versions.len() as u64 + 1;
        let entry = version.entry();
        let is_secret = SECRETS.iter().any(|text| entry.windows(text.len()).any(|part| part == *text));
        let mut saved = SavedVersion {
            id,
            type_url: version.kind.url().to_owned(),
            name: version.name.to_string(),
            version: version.version.to_string(),
            made_from: version.made_from.iter().map(ToString::to_string).collect(),
            bytes: version.bytes as u64,
            ..SavedVersion::default()
        };
        let difference =
            base.filter(|(_, written)| !is_secret && written.chain < MAX_CHAIN).and_then(|(base, written)| {
                let difference = BytesDifference::between(&base.entry(), &entry)?;
                (difference.memory_bytes() < entry.len() / 2).then_some((difference, written))
            });
        let chain = match difference {
            Some((difference, base)) => {
                (saved.splices, saved.content) = difference.into_parts();
                saved.base = base.id;
                base.chain + 1
            }
            // No difference from it can be applied.
            None if is_secret => MAX_CHAIN,
            None => {
                saved.content = entry;
                0
            }
        };
        self.write(SavedEntry::Version(saved));
        let written = WrittenVersion { id, chain };
        self.versions.insert(key, written);
        written
    }
}

fn key(version: &PastResource) -> u128 {
    let mut hash = Xxh3::new();
    for text in [version.kind.url(), &*version.name, &*version.version]
        .into_iter()
        .chain(version.made_from.iter().map(|it| &**it))
    {
        hash.update(text.as_bytes());
        hash.update(&[0]);
    }
    hash.digest128()
}

fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
