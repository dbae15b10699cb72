//! Holds: content that some proxies are not sent, and what they are sent instead. They are an input of the engine, beside the objects: what a proxy
//! is served equals a computation from scratch on the current objects and the current holds. Who makes holds is decided elsewhere.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use imbl::OrdMap;
use xds::{Changes, HeldBack, Kinds, Resource, Seq, TypeUrl};

use crate::class_limits::ClassClient;
use crate::key_fingerprint::KeyFingerprint;

/// Types that can be held. Load assignments and secrets must always be the newest: traffic to endpoints that are gone, or an expired certificate,
/// is worse than what a proxy rejects of them.
pub const HELD_KINDS: Kinds = Kinds::of(&[TypeUrl::Cluster, TypeUrl::Listener, TypeUrl::Route, TypeUrl::Extension]);

/// Identifies a class: proxies with equal keys. The same for as long as the process lives, also if all proxies of the class leave and return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(pub(crate) [KeyFingerprint; 3]);

/// The proxies that a hold is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProxySet {
    /// Proxies of a class with the same version, as they report it.
    Class { class: ClassId, version: Arc<str> },
    /// One proxy, by the name in its node (`pod.namespace`) and by who connected with it: a client that claims the name of another's proxy
    /// holds nothing back from that one.
    Proxy { id: Arc<str>, client: ClassClient },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceKey {
    pub kind: TypeUrl,
    pub name: Arc<str>,
}

/// In force while the resource has exactly the content that is held back: any other content of it is sent.
#[derive(Debug, Clone)]
pub struct Hold {
    pub key: ResourceKey,
    pub proxies: ProxySet,
    /// The content that is held back.
    pub refused: Arc<Resource>,
    pub instead: Instead,
    pub reason: Arc<str>,
    pub since: SystemTime,
    /// From then on the content is sent again.
    pub expires: SystemTime,
}

/// What proxies are sent in place of the content that is held back.
#[derive(Debug, Clone)]
pub enum Instead {
    /// What they acknowledged last.
    Pinned(Arc<Resource>),
    /// The newest content but for the object to blame.
    Repaired { content: Arc<Resource>, repair: Repair },
    /// Nothing, as if there were no such resource. It is not removed either: a proxy keeps what it has.
    LeftOut,
}

/// What is done about the object to blame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// It is left out: as it was before its last edit is not known, or it is new.
    Without(Arc<str>),
    /// It is taken as it was before it was edited.
    Earlier(Arc<str>),
}

impl Instead {
    /// `None`: nothing is sent.
    pub fn content(&self) -> Option<&Arc<Resource>> {
        match self {
            Instead::Pinned(content) | Instead::Repaired { content, .. } => Some(content),
            Instead::LeftOut => None,
        }
    }

    /// The only object of which proxies are not sent the newest. `None`: they are sent nothing new of the resource.
    fn culprit(&self) -> Option<&Arc<str>> {
        match self {
            Instead::Repaired { repair: Repair::Without(object) | Repair::Earlier(object), .. } => Some(object),
            Instead::Pinned(_) | Instead::LeftOut => None,
        }
    }
}

impl fmt::Display for ProxySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxySet::Class { version, .. } if version.is_empty() => write!(f, "all of its class"),
            ProxySet::Class { version, .. } => write!(f, "all of its class with version {version}"),
            ProxySet::Proxy { id, .. } => write!(f, "{id}"),
        }
    }
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instead::Pinned(_) => write!(f, "the last good version"),
            Instead::Repaired { repair: Repair::Without(object), .. } => write!(f, "what it is without {object}"),
            Instead::Repaired { repair: Repair::Earlier(object), .. } => {
                write!(f, "what it is with {object} as it was before")
            }
            Instead::LeftOut => write!(f, "nothing"),
        }
    }
}

/// All holds, and those that ended while streams may not have noticed it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Holds {
    sets: OrdMap<ProxySet, OrdMap<ResourceKey, HoldEntry>>,
    /// Of the last change.
    seq: Seq,
}

#[derive(Debug, Clone)]
struct HoldEntry {
    /// When the hold began or ended.
    at: Seq,
    hold: Arc<Hold>,
    ended: bool,
}

impl Holds {
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    /// Those that have not ended. They may be without effect at present, because the resource has other content.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Hold>> {
        let entries = self.sets.values().flat_map(|set| set.values());
        entries.filter(|entry| !entry.ended).map(|entry| &entry.hold)
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Those of some proxies.
    pub(crate) fn len_of(&self, proxies: &ProxySet) -> usize {
        self.sets.get(proxies).map_or(0, |set| set.values().filter(|entry| !entry.ended).count())
    }

    /// The holds after one more. It replaces the one of the same resource and proxies.
    #[must_use]
    pub(crate) fn with(&self, hold: Hold, seq: Seq) -> Self {
        let mut set = self.sets.get(&hold.proxies).cloned().unwrap_or_default();
        let hold = Arc::new(hold);
        set.insert(hold.key.clone(), HoldEntry { at: seq, hold: hold.clone(), ended: false });
        Self { sets: self.sets.update(hold.proxies.clone(), set), seq }
    }

    /// The holds after the end of some. `None`: none of them ends.
    pub(crate) fn without(&self, ends: impl Fn(&Hold) -> bool, seq: Seq) -> Option<Self> {
        let ending: Vec<Arc<Hold>> = self.iter().filter(|hold| ends(hold)).cloned().collect();
        let mut next = Self { sets: self.sets.clone(), seq };
        for hold in &ending {
            let entry = HoldEntry { at: seq, hold: hold.clone(), ended: true };
            next.sets.entry(hold.proxies.clone()).or_default().insert(hold.key.clone(), entry);
        }
        (!ending.is_empty()).then_some(next)
    }

    /// Some ended, and are not forgotten.
    pub(crate) fn have_ended(&self) -> bool {
        self.sets.values().flat_map(|set| set.values()).any(|entry| entry.ended)
    }

    /// Forgets holds that ended, where no stream is that has not answered since. `is_behind`: whether such proxies have one that has not accepted the
    /// resources of a type up to a sequence.
    #[must_use]
    pub(crate) fn compact(&self, is_behind: impl Fn(&ProxySet, TypeUrl, Seq) -> bool) -> Self {
        let mut next = self.clone();
        for (proxies, set) in &self.sets {
            let is_done =
                |(key, entry): &(&ResourceKey, &HoldEntry)| entry.ended && !is_behind(proxies, key.kind, entry.at);
            let done: Vec<ResourceKey> = set.iter().filter(is_done).map(|(key, _)| key.clone()).collect();
            if done.is_empty() {
                continue;
            }
            let mut left = set.clone();
            done.iter().for_each(|key| drop(left.remove(key)));
            if left.is_empty() {
                next.sets.remove(proxies)
            } else {
                next.sets.insert(proxies.clone(), left)
            };
        }
        next
    }

    /// What holds mean for one proxy.
    pub(crate) fn of(&self, proxy: &ProxySet, class: &ProxySet) -> ProxyHolds {
        let set = |proxies| self.sets.get(proxies).cloned().unwrap_or_default();
        ProxyHolds([set(proxy), set(class)])
    }

    /// Whether this content is held back from these proxies.
    pub(crate) fn has_refused(&self, proxies: &ProxySet, key: &ResourceKey, version: &str) -> bool {
        let entry = self.sets.get(proxies).and_then(|set| set.get(key)).filter(|entry| !entry.ended);
        entry.is_some_and(|entry| *entry.hold.refused.version == *version)
    }

    /// The last hold of a resource, which may have ended.
    pub(crate) fn last(&self, proxies: &ProxySet, key: &ResourceKey) -> Option<&Arc<Hold>> {
        self.sets.get(proxies)?.get(key).map(|entry| &entry.hold)
    }
}

/// The holds of one proxy: its own, which go first, and those of its class.
pub(crate) struct ProxyHolds([OrdMap<ResourceKey, HoldEntry>; 2]);

impl ProxyHolds {
    /// Without those that send nothing in place of what is held back.
    pub(crate) fn with_content(self) -> ProxyHolds {
        let has_content = |(_, entry): &(ResourceKey, HoldEntry)| entry.hold.instead.content().is_some();
        ProxyHolds(self.0.map(|set| set.into_iter().filter(has_content).collect()))
    }

    /// The proxy has holds that the others of its class have not.
    pub(crate) fn has_own(&self) -> bool {
        !self.0[0].is_empty()
    }

    fn entries(&self, kind: TypeUrl) -> impl Iterator<Item = &HoldEntry> {
        self.0.iter().flat_map(|set| set.values()).filter(move |entry| entry.hold.key.kind == kind)
    }

    pub(crate) fn concerns(&self, kind: TypeUrl) -> bool {
        self.entries(kind).next().is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.0.iter().flat_map(|set| set.values()).filter(|entry| !entry.ended).map(|entry| &entry.hold)
    }

    pub(crate) fn changed_since(&self, kind: TypeUrl, since: Seq) -> bool {
        self.entries(kind).any(|entry| entry.at > since)
    }

    /// The hold in force of a resource whose newest content is this.
    pub(crate) fn in_force(&self, kind: TypeUrl, newest: &Resource) -> Option<&Arc<Hold>> {
        let of_name = self.entries(kind).filter(|entry| !entry.ended && entry.hold.key.name == newest.name);
        of_name.map(|entry| &entry.hold).find(|hold| hold.refused.version == newest.version)
    }

    /// What the proxy is sent of a resource whose newest content is this. `None`: nothing.
    pub(crate) fn served(&self, kind: TypeUrl, newest: Arc<Resource>) -> Option<Arc<Resource>> {
        match self.in_force(kind, &newest) {
            None => Some(newest),
            Some(hold) => hold.instead.content().cloned(),
        }
    }

    /// The answer of the class to `since`, with these holds. `newest`: the newest content of a name.
    pub(crate) fn apply(
        &self,
        kind: TypeUrl,
        since: Seq,
        answer: Arc<Changes>,
        newest: impl Fn(&str) -> Option<Arc<Resource>>,
    ) -> Arc<Changes> {
        let names: BTreeSet<&Arc<str>> = self.entries(kind).map(|entry| &entry.hold.key.name).collect();
        if names.is_empty() {
            return answer;
        }
        let (mut held, mut added, mut replaced) = (Vec::new(), Vec::new(), BTreeSet::new());
        for name in names {
            let listed = answer.changed.iter().find(|resource| resource.name == *name);
            let Some(resource) = listed.cloned().or_else(|| newest(name)) else { continue };
            let of_name = self.entries(kind).filter(|entry| entry.hold.key.name == *name);
            let is_due = answer.full || listed.is_some() || of_name.map(|entry| entry.at).any(|at| at > since);
            if !is_due {
                continue;
            }
            match self.in_force(kind, &resource) {
                Some(hold) => {
                    replaced.insert(name.clone());
                    added.extend(hold.instead.content().cloned());
                    let culprit = hold.instead.culprit().cloned();
                    held.push(Arc::new(HeldBack { resource, reason: hold.reason.clone(), culprit }));
                }
                None if listed.is_none() => added.push(resource),
                None => {}
            }
        }
        let others = answer.changed.iter().filter(|resource| !replaced.contains(&resource.name)).cloned();
        let seq = self.entries(kind).map(|entry| entry.at).max().unwrap_or_default();
        Arc::new(Changes {
            seq: answer.seq.max(seq),
            changed: others.chain(added).collect(),
            removed: answer.removed.clone(),
            full: answer.full,
            held,
            changed_at: answer.changed_at,
            ..Changes::default()
        })
    }
}

#[cfg(test)]
mod tests;
