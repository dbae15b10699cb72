//! Holds for content that proxies reject. A rejection surely means a resource, or nothing is held. The proxy that rejects gets a hold of its own at
//! once. Where all proxies of its class and version that have been sent the content reject it, and none has acknowledged it, the hold is the
//! class's, so that a proxy which comes later is not sent it: one proxy that misbehaves keeps nothing from others that take it.

use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use model::Proxy;
use xds::{Connections, Kinds, NackReport, Push, Resource, Seq, TypeUrl, Variant, WatchInfo};

use super::{Views, lock};
use crate::class_limits::ClassClient;
use crate::hold::{HELD_KINDS, Hold, Holds, Instead, ProxySet, Repair, ResourceKey};
use crate::layer::encode;
use crate::member::Member;
use crate::notifications::PendingNotifications;
use crate::render::RenderedResource;

/// Of all proxies. What is rejected beyond that is sent again with the next change, as without holds.
const MAX_HOLDS: usize = 10_000;
/// Of one proxy, so that none uses up the others' share.
const MAX_OWN_HOLDS: usize = 64;
/// A proxy that rejects content later than this after it replaced another has no last good version.
const KEEP_SUPERSEDED: Duration = Duration::from_secs(60);

/// Content that one proxy rejected.
pub struct NackedResource {
    member: Arc<Member>,
    variant: Variant,
    key: ResourceKey,
    refused: Arc<Resource>,
    /// What the proxy acknowledged last of this resource. `None`: nothing, or it is not known any more.
    good: Option<Arc<Resource>>,
    /// Content made without the fault.
    substitute: Option<(Arc<Resource>, Repair)>,
    reason: Arc<str>,
    at: SystemTime,
}

/// Called from streams.
pub type NackListener = Box<dyn Fn(NackedResource) + Send + Sync>;

pub struct HoldInForce {
    pub hold: Arc<Hold>,
    /// Proxies that are connected here and sent something else because of it.
    pub proxies: Vec<Arc<Proxy>>,
}

/// What the proxies of one class and version say to one content.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Verdict {
    acknowledged: usize,
    refused: usize,
    /// Neither: it is on its way.
    pending: usize,
}

impl Verdict {
    fn is_unanimous(self) -> bool {
        self.acknowledged == 0 && self.pending == 0 && self.refused > 0
    }
}

impl NackedResource {
    pub fn proxy(&self) -> &Arc<Proxy> {
        &self.member.proxy
    }

    /// Who opened its stream.
    pub fn client(&self) -> &ClassClient {
        self.member.client()
    }

    pub fn key(&self) -> &ResourceKey {
        &self.key
    }

    pub fn reason(&self) -> &Arc<str> {
        &self.reason
    }

    pub fn refused(&self) -> &Arc<Resource> {
        &self.refused
    }

    /// Its class and version: the resource has the same content for all of them.
    pub fn class(&self) -> ProxySet {
        self.member.class_set()
    }

    /// There is a version that the proxy is sent in its place.
    pub fn has_last_good(&self) -> bool {
        self.good.is_some()
    }

    /// The resource still has the content that the proxy refuses.
    pub fn is_newest(&self) -> bool {
        let newest = self.member.newest(&self.key);
        newest.is_some_and(|newest| newest.version == self.refused.version)
    }

    /// Gives the proxy what the resource is after a repair.
    pub fn substitute(&mut self, made: RenderedResource, repair: Repair) {
        let content = encode(made);
        let is_known = |known: &Resource| known.version == content.version;
        if !is_known(&self.refused) && !self.good.as_deref().is_some_and(is_known) {
            self.substitute = Some((Arc::new(content), repair));
        }
    }
}

impl Views {
    /// Set once. Without a listener nothing is held.
    pub fn set_nack_listener(&self, listener: NackListener) {
        let _ = self.nack_listener.set(listener);
    }

    pub(super) fn report_nacks(&self, rejection: &NackReport<'_>) {
        let Some(listener) = self.nack_listener.get().filter(|_| HELD_KINDS.contains(rejection.kind)) else {
            return;
        };
        let class: Arc<dyn Any + Send + Sync> = rejection.class.clone();
        let Ok(member) = class.downcast::<Member>() else { return };
        let holds = self.holds.load();
        for resource in rejection.culprits() {
            let key = ResourceKey { kind: rejection.kind, name: resource.name.clone() };
            let good = member.last_acknowledged(&holds, &key, rejection.position, resource);
            listener(NackedResource {
                member: member.clone(),
                variant: rejection.variant,
                key,
                refused: resource.clone(),
                good,
                substitute: None,
                reason: rejection.reason.clone(),
                at: SystemTime::now(),
            });
        }
    }

    /// Holds what was refused, for `term`. `streams`: of all proxies. The caller sends the notifications.
    pub fn hold_refused(
        &self,
        nacked: &[NackedResource],
        streams: &Connections,
        term: Duration,
    ) -> PendingNotifications {
        let _refreshing = lock(&self.refreshing);
        let (before, seq) = self.holds_and_next_seq();
        let mut holds = before.clone();
        let mut count = before.len();
        for resource in nacked {
            let Some((refused, instead)) = resource.decide(&holds) else { continue };
            let proxies = resource.member.own_set();
            if holds.len_of(&proxies) >= MAX_OWN_HOLDS || count >= MAX_HOLDS {
                continue;
            }
            count += 1;
            let (key, reason, since) = (resource.key.clone(), resource.reason.clone(), resource.at);
            holds = holds.with(Hold { key, proxies, refused, instead, reason, since, expires: since + term }, seq);
        }
        let holds = self.with_classes(holds, streams, seq);
        self.put_in_force(holds, seq)
    }

    /// Ends the holds that have expired, and holds for a whole class what all of it has refused by now. To be called every second.
    pub fn review_holds(&self, streams: &Connections, now: SystemTime) -> PendingNotifications {
        let _refreshing = lock(&self.refreshing);
        let (before, seq) = self.holds_and_next_seq();
        if before.is_empty() {
            return PendingNotifications::new(seq, Vec::new());
        }
        let holds = before.without(|hold| hold.expires <= now, seq).unwrap_or_else(|| before.clone());
        let holds = self.with_classes(holds, streams, seq);
        let holds = if holds.have_ended() {
            let positions = positions(streams);
            let is_behind = |set: &ProxySet, kind, at| positions.get(&(set.clone(), kind)).is_some_and(|it| *it < at);
            holds.compact(is_behind)
        } else {
            holds
        };
        self.put_in_force(holds, seq)
    }

    /// The holds in force.
    pub fn holds_in_force(&self) -> Vec<HoldInForce> {
        let mut found: BTreeMap<(ProxySet, ResourceKey), HoldInForce> = BTreeMap::new();
        if self.holds.load().is_empty() {
            return Vec::new();
        }
        for member in self.members() {
            for hold in member.holds_in_force() {
                let key = (hold.proxies.clone(), hold.key.clone());
                let new = || HoldInForce { hold, proxies: Vec::new() };
                found.entry(key).or_insert_with(new).proxies.push(member.proxy.clone());
            }
        }
        found.into_values().collect()
    }

    /// The current holds.
    pub fn holds(&self) -> Arc<Holds> {
        self.holds.load_full()
    }

    /// Forgets content that was replaced too long ago to be rejected.
    pub(super) fn drop_superseded(&self) {
        let Some(before) = Instant::now().checked_sub(KEEP_SUPERSEDED) else { return };
        let classes = self.state().engine.classes.clone();
        for entry in classes.values() {
            entry.view.snapshot().tables().for_each(|(_, table)| table.drop_superseded(before));
        }
    }

    /// Holds of single proxies become those of their class where all of it refuses. One pass over proxies and one over streams, however many are held:
    /// an object that all proxies reject is one hold for each class.
    fn with_classes(&self, mut holds: Holds, streams: &Connections, seq: Seq) -> Holds {
        let mut own: BTreeMap<ProxySet, Vec<Arc<Hold>>> = BTreeMap::new();
        for hold in holds.iter() {
            own.entry(hold.proxies.clone()).or_default().push(hold.clone());
        }
        let mut candidates: BTreeMap<ProxySet, BTreeMap<HeldContent, Candidate>> = BTreeMap::new();
        for member in self.members() {
            for hold in own.get(&member.own_set()).into_iter().flatten().filter(|hold| member.is_newest(hold)) {
                let Some(changed) = member.changed_at(&hold.key) else { continue };
                let of_class = candidates.entry(member.class_set()).or_default();
                let content = (hold.key.clone(), hold.refused.version.clone());
                of_class.entry(content).or_insert_with(|| Candidate::new(changed)).own.push(hold.clone());
            }
        }
        if candidates.is_empty() {
            return holds;
        }
        streams.for_each_watched(|connection, watched| {
            let Some(member) = Member::of(connection.class.as_ref()) else { return };
            for (content, candidate) in candidates.get_mut(&member.class_set()).into_iter().flatten() {
                candidate.hear(&holds, member, content, connection.variant, watched);
            }
        });
        let mut ended: HashSet<*const Hold> = HashSet::new();
        for (set, candidate) in candidates.iter().flat_map(|(set, of_class)| of_class.values().map(move |it| (set, it)))
        {
            if candidate.verdict.is_unanimous() {
                holds = holds.with(Hold { proxies: set.clone(), ..Hold::clone(&candidate.own[0]) }, seq);
                ended.extend(candidate.own.iter().map(Arc::as_ptr));
            }
        }
        holds.without(|hold| ended.contains(&std::ptr::from_ref(hold)), seq).unwrap_or(holds)
    }

    fn holds_and_next_seq(&self) -> (Holds, Seq) {
        let state = self.state();
        (state.engine.holds.clone(), state.engine.seq + 1)
    }

    /// Replaces the holds, and returns the streams for which that changes something. `seq`: of the change, if there is one.
    fn put_in_force(&self, holds: Holds, seq: Seq) -> PendingNotifications {
        let mut affected = Vec::new();
        for member in self.members().into_iter().filter(|_| holds.seq() == seq) {
            let now = member.holds_among(&holds);
            let kinds: Kinds = HELD_KINDS.iter().filter(|kind| now.changed_since(*kind, seq - 1)).collect();
            if kinds != Kinds::NONE {
                affected.push((member, kinds));
            }
        }
        if holds.seq() == seq {
            let (cause, streams) = ("content that proxies rejected is held, or no longer".to_owned(), affected.len());
            self.journal.begin(Push { seq, cause, streams, ..Push::default() });
        }
        let mut state = self.state();
        state.engine.seq = if holds.seq() == seq { seq } else { state.engine.seq };
        state.engine.holds = holds.clone();
        self.holds.store(Arc::new(holds));
        PendingNotifications::new(state.engine.seq, affected)
    }

    fn members(&self) -> Vec<Arc<Member>> {
        let classes = self.state().engine.classes.clone();
        classes.values().flat_map(|entry| entry.members.iter().filter_map(Weak::upgrade)).collect()
    }
}

impl NackedResource {
    /// What is held back, and what is sent in its place. `None`: nothing is held, because the resource has other content by now, or the stream
    /// cannot leave it out.
    fn decide(&self, holds: &Holds) -> Option<(Arc<Resource>, Instead)> {
        let newest = self.member.newest(&self.key)?;
        let of_proxy = self.member.holds_among(holds);
        let in_force = of_proxy.in_force(self.key.kind, &newest);
        // A complete response without the resource would remove what the proxy has.
        let left_out = (self.variant == Variant::Delta).then_some(Instead::LeftOut);
        let instead = match in_force.map(|hold| &hold.instead) {
            None if newest.version != self.refused.version => None,
            None => self.last_good().or_else(|| self.repaired()).or(left_out),
            // What was sent in its place was refused too.
            Some(instead) if instead.content().is_some_and(|it| it.version == self.refused.version) => {
                self.last_good().or(left_out)
            }
            // The last good version was sent at once, and lacks what others have changed in the resource.
            Some(Instead::Pinned(_)) if newest.version == self.refused.version => self.repaired(),
            Some(_) => None,
        };
        Some((newest, instead?))
    }

    fn last_good(&self) -> Option<Instead> {
        self.good.clone().map(Instead::Pinned)
    }

    fn repaired(&self) -> Option<Instead> {
        self.substitute.clone().map(|(content, repair)| Instead::Repaired { content, repair })
    }
}

/// The least that a stream has accepted of a type, by the sets that its proxy is in. Streams that begin are sent everything.
fn positions(streams: &Connections) -> BTreeMap<(ProxySet, TypeUrl), Seq> {
    let mut least: BTreeMap<(ProxySet, TypeUrl), Seq> = BTreeMap::new();
    streams.for_each_watched(|connection, watched| {
        let Some(member) = Member::of(connection.class.as_ref()) else { return };
        let begun = watched.iter().filter(|it| HELD_KINDS.contains(it.kind) && it.position > 0);
        for watch in begun {
            for set in [member.own_set(), member.class_set()] {
                let position = least.entry((set, watch.kind)).or_insert(watch.position);
                *position = watch.position.min(*position);
            }
        }
    });
    least
}

/// A resource, and the version of its content that is held back.
type HeldContent = (ResourceKey, Arc<str>);

/// Holds of single proxies of one class, for the same content.
struct Candidate {
    own: Vec<Arc<Hold>>,
    /// When the resource got the content.
    changed: Seq,
    verdict: Verdict,
}

impl Candidate {
    fn new(changed: Seq) -> Candidate {
        Candidate { own: Vec::new(), changed, verdict: Verdict::default() }
    }

    /// What one stream of the class says to the content.
    fn hear(
        &mut self,
        holds: &Holds,
        member: &Member,
        (key, version): &HeldContent,
        variant: Variant,
        watched: &[WatchInfo],
    ) {
        let Some(watch) = watched.iter().find(|watch| watch.kind == key.kind) else { return };
        if !watch.wildcard && !watch.names.contains(&key.name) {
            return;
        }
        // A complete response without the resource would remove what the proxy has.
        let cannot_leave_out = variant == Variant::Sotw && self.own[0].instead.content().is_none();
        match () {
            () if cannot_leave_out => self.verdict.pending += 1,
            () if holds.has_refused(&member.own_set(), key, version) => self.verdict.refused += 1,
            () if watch.position >= self.changed => self.verdict.acknowledged += 1,
            () => self.verdict.pending += 1,
        }
    }
}
