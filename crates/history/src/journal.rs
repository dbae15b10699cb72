//! The journal: pushes with the versions that they replaced, the last layers of classes that are no more, and the classes of proxies. What is in
//! force is read from the server's layers; the past is that, with the pushes since then undone.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use model::ProxyKind;
use views::{LayerKey, LayerSnapshot, PushCause, PushRecord, RecordedChange, Records};
use xds::{Resource, Seq, TypeUrl};

use crate::past_proxies::{PastProxies, PastProxy};
use crate::past_resource::PastResource;
use crate::point::{Point, UnknownPoint, time_text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Of memory beside that of what is in force.
    pub bytes: usize,
    pub age: Duration,
}

/// What the history holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryUse {
    pub bytes: usize,
    pub versions: usize,
    /// The oldest push after which the state is known, and its time.
    pub begin: (Seq, SystemTime),
}

pub struct ResourceHistory {
    limits: HistoryLimits,
    /// The oldest push after which the state is known, and its time. It is not in `pushes`.
    begin: (Seq, SystemTime),
    /// The newest is the last.
    pushes: VecDeque<PastPush>,
    versions: Versions,
    /// Layers that are no more.
    ended: HashMap<LayerKey, EndedLayer>,
    proxies: PastProxies,
    /// In force after all that is recorded.
    layers: LayerSnapshot,
    seq: Seq,
    /// Roughly what was added since the limits were checked.
    unchecked: usize,
}

#[derive(Debug)]
pub struct PastPush {
    pub seq: Seq,
    pub at: SystemTime,
    pub cause: PushCause,
    /// The same changes are stored once.
    groups: Vec<LayerGroup>,
}

/// Layers that changed in the same way.
#[derive(Debug)]
struct LayerGroup {
    changes: Box<[VersionChange]>,
    /// Sorted.
    layers: Box<[LayerKey]>,
}

/// At least one of them is there.
#[derive(Debug, Clone)]
pub struct VersionChange {
    /// `None`: it was added.
    pub before: Option<Arc<PastResource>>,
    /// `None`: it was removed.
    pub after: Option<Arc<PastResource>>,
}

#[derive(Debug)]
pub(crate) struct EndedLayer {
    /// The push after which it was dropped.
    seq: Seq,
    pub(crate) resources: Box<[Arc<PastResource>]>,
}

impl ResourceHistory {
    pub fn new(limits: HistoryLimits, now: SystemTime) -> ResourceHistory {
        ResourceHistory {
            limits,
            begin: (0, now),
            pushes: VecDeque::new(),
            versions: Versions::default(),
            ended: HashMap::new(),
            proxies: PastProxies::default(),
            layers: LayerSnapshot::default(),
            seq: 0,
            unchecked: 0,
        }
    }

    /// What happened since the last call. The newer of it must not have been taken by anybody else.
    pub fn record(&mut self, records: Records) {
        let Records { pushes, joined, layers, seq } = records;
        joined.iter().for_each(|class_move| self.proxies.add(class_move));
        for push in pushes {
            self.record_push(push);
        }
        let previous = std::mem::replace(&mut self.layers, layers);
        self.end_layers(&previous, None, seq);
        self.seq = seq;
    }

    fn record_push(&mut self, push: PushRecord) {
        let mut groups: HashMap<Vec<ChangeAddresses>, LayerGroupDraft> = HashMap::new();
        for (key, changes) in push.changes() {
            let changes: Vec<VersionChange> = changes.into_iter().map(|it| self.versions.change(it)).collect();
            let addresses = changes.iter().map(VersionChange::addresses).collect();
            groups.entry(addresses).or_insert_with(|| (changes, Vec::new())).1.push(key);
        }
        push.moved().iter().for_each(|class_move| self.proxies.add(class_move));
        let previous = std::mem::take(&mut self.layers);
        self.end_layers(&previous, Some(&push.before), push.seq.saturating_sub(1));
        self.end_layers(&push.before, Some(&push.after), push.seq);
        let PushRecord { seq, at, cause, after, .. } = push;
        self.layers = after;
        let groups =
            groups.into_values().map(|(changes, layers)| LayerGroup { changes: changes.into(), layers: layers.into() });
        let push = PastPush { seq, at, cause, groups: groups.collect() };
        self.unchecked +=
            push.memory_bytes() + push.groups.iter().map(|group| group.changes.len() * ROUGHLY).sum::<usize>();
        self.pushes.push_back(push);
    }

    /// Keeps what was in the layers that are no more. `next`: `None` for those in force.
    fn end_layers(&mut self, previous: &LayerSnapshot, next: Option<&LayerSnapshot>, seq: Seq) {
        for key in previous.dropped_in(next.unwrap_or(&self.layers)) {
            let resources = previous.resources(key).into_iter().flatten();
            let resources = resources.map(|(kind, resource)| self.versions.intern(kind, resource)).collect();
            self.ended.insert(key, EndedLayer { seq, resources });
        }
    }

    /// Drops what is beyond the limits. Costs time by the size of the history.
    pub fn trim(&mut self, now: SystemTime) {
        self.unchecked = 0;
        let oldest = now.checked_sub(self.limits.age).unwrap_or(SystemTime::UNIX_EPOCH);
        let old = self.pushes.iter().take_while(|push| push.at < oldest).count();
        self.drop_oldest(old);
        while self.memory_bytes() > self.limits.bytes && !self.pushes.is_empty() {
            self.drop_oldest(self.pushes.len().div_ceil(DROPPED_SHARE));
        }
    }

    /// Whether so much was recorded that the limits should be checked.
    pub fn is_trim_due(&self) -> bool {
        self.unchecked > self.limits.bytes / DROPPED_SHARE
    }

    fn drop_oldest(&mut self, count: usize) {
        if let Some(last) = self.pushes.drain(..count).next_back() {
            self.begin = (last.seq, last.at);
        }
        let begin = self.begin.0;
        self.ended.retain(|_, layer| layer.seq > begin);
        let Self { layers, ended, proxies, .. } = self;
        proxies.trim(begin, |key| layers.contains(key) || ended.contains_key(&key));
        self.versions.drop_unused();
    }

    /// The newest is the last.
    pub fn pushes(&self) -> impl DoubleEndedIterator<Item = &PastPush> {
        self.pushes.iter()
    }

    /// The push after which something was in force. `None`: not before the oldest one.
    pub fn seq_at(&self, point: Point, now: SystemTime) -> Result<Seq, UnknownPoint> {
        let (begin, begin_at) = self.begin;
        let too_old = || UnknownPoint::TooOld { push: begin, at: time_text(begin_at) };
        let at = match point {
            Point::Push(seq) if seq > self.seq => return Err(UnknownPoint::NotYet(seq)),
            Point::Push(seq) => return if seq < begin { Err(too_old()) } else { Ok(seq) },
            Point::Time(at) => at,
            Point::Ago(ago) => now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH),
        };
        if at < begin_at {
            return Err(too_old());
        }
        Ok(self.pushes.iter().rev().find(|push| push.at <= at).map_or(begin, |push| push.seq))
    }

    /// The newest.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The push of this number, if it is recorded.
    pub fn push(&self, seq: Seq) -> Option<&PastPush> {
        let at = self.pushes.binary_search_by_key(&seq, |push| push.seq).ok()?;
        self.pushes.get(at)
    }

    /// The namespace of a proxy. `None`: it is not known.
    pub fn namespace_of(&self, proxy: &str) -> Option<&Arc<str>> {
        self.proxies.get(proxy).map(|proxy| &proxy.namespace)
    }

    /// `None`: the proxy is not known.
    pub fn kind_of(&self, proxy: &str) -> Option<ProxyKind> {
        self.proxies.get(proxy).map(|proxy| proxy.kind)
    }

    pub(crate) fn proxy(&self, proxy: &str) -> Option<&PastProxy> {
        self.proxies.get(proxy)
    }

    pub(crate) fn begin(&self) -> Seq {
        self.begin.0
    }

    pub(crate) fn layers(&self) -> &LayerSnapshot {
        &self.layers
    }

    pub(crate) fn ended(&self, key: LayerKey) -> Option<&EndedLayer> {
        self.ended.get(&key)
    }

    pub fn usage(&self) -> HistoryUse {
        HistoryUse { bytes: self.memory_bytes(), versions: self.versions.len(), begin: self.begin }
    }

    fn memory_bytes(&self) -> usize {
        let pushes: usize = self.pushes.iter().map(PastPush::memory_bytes).sum();
        let ended: usize = self.ended.values().map(|layer| size_of_val(&*layer.resources)).sum();
        pushes + ended + self.versions.memory_bytes() + self.proxies.memory_bytes()
    }
}

/// The limits are checked after this share (1/n) of the bytes was added, and this share of the pushes is dropped at a time.
const DROPPED_SHARE: usize = 8;
/// Of a version and its difference.
const ROUGHLY: usize = 400;

type LayerGroupDraft = (Vec<VersionChange>, Vec<LayerKey>);
type ChangeAddresses = [Option<usize>; 2];

impl VersionChange {
    /// Equal versions are one.
    fn addresses(&self) -> ChangeAddresses {
        [&self.before, &self.after].map(|side| side.as_ref().map(|version| Arc::as_ptr(version).addr()))
    }

    /// What it is a change of.
    pub fn resource(&self) -> &Arc<PastResource> {
        self.after.as_ref().or(self.before.as_ref()).expect("at least one is there")
    }
}

impl PastPush {
    /// What changed in one of these layers.
    pub(crate) fn changes_of(&self, layers: &[LayerKey]) -> impl Iterator<Item = &VersionChange> {
        let concerns = |group: &&LayerGroup| layers.iter().any(|key| group.layers.binary_search(key).is_ok());
        self.groups.iter().filter(concerns).flat_map(|group| &group.changes)
    }

    /// Every change, once for all layers that it was the same in.
    pub fn changes(&self) -> impl Iterator<Item = &VersionChange> {
        let mut known = HashSet::new();
        let all = self.groups.iter().flat_map(|group| &group.changes);
        all.filter(move |change| known.insert(change.addresses()))
    }

    fn memory_bytes(&self) -> usize {
        let named = self.cause.objects.len() * size_of::<views::ChangedObject>() + self.cause.text.len();
        let groups = self
            .groups
            .iter()
            .map(|group| size_of_val(&*group.changes) + size_of_val(&*group.layers) + size_of::<LayerGroup>());
        size_of::<PastPush>() + named + groups.sum::<usize>()
    }
}

/// The versions that something refers to, each once.
#[derive(Debug, Default)]
struct Versions(HashMap<VersionKey, Vec<Weak<PastResource>>>);

type VersionKey = (TypeUrl, Arc<str>, Arc<str>);

impl Versions {
    fn intern(&mut self, kind: TypeUrl, resource: &Arc<Resource>) -> Arc<PastResource> {
        let of_key = self.0.entry((kind, resource.name.clone(), resource.version.clone())).or_default();
        let same = |it: &Arc<PastResource>| it.made_from == resource.provenance;
        if let Some(known) = of_key.iter().filter_map(Weak::upgrade).find(same) {
            return known;
        }
        let new = Arc::new(PastResource::new(kind, resource));
        of_key.retain(|it| it.strong_count() > 0);
        of_key.push(Arc::downgrade(&new));
        new
    }

    fn change(&mut self, RecordedChange { kind, before, after }: RecordedChange) -> VersionChange {
        let after = after.map(|resource| {
            let version = self.intern(kind, &resource);
            version.put_in_force(&resource);
            version
        });
        let before = before.map(|resource| self.intern(kind, &resource));
        if let (Some(before), Some(after)) = (&before, &after) {
            before.replaced_by(after);
        }
        VersionChange { before, after }
    }

    fn drop_unused(&mut self) {
        self.0.retain(|_, versions| {
            versions.retain(|version| version.strong_count() > 0);
            !versions.is_empty()
        });
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn memory_bytes(&self) -> usize {
        /// An entry of the map, with its list.
        const ENTRY: usize = size_of::<VersionKey>() + 48;
        let live = self.0.values().flatten().filter_map(Weak::upgrade);
        self.0.len() * ENTRY + live.map(|version| version.memory_bytes()).sum::<usize>()
    }
}
