//! The holds of one stream, and what is known of the content that its proxy rejects.

use std::any::Any;
use std::sync::{Arc, PoisonError};

use xds::{Changes, Class, Resource, Seq, TypeUrl, Variant};

use super::Member;
use crate::class_limits::ClassClient;
use crate::hold::{HELD_KINDS, Hold, Holds, ProxyHolds, ProxySet, ResourceKey};
use crate::table::cached_changes;

impl Member {
    /// `None`: the class is not one of [`Views`](crate::Views).
    pub(crate) fn of(class: &dyn Class) -> Option<&Member> {
        (class as &dyn Any).downcast_ref::<Member>()
    }

    /// The proxy alone, whichever stream it has.
    pub(crate) fn own_set(&self) -> ProxySet {
        ProxySet::Proxy { id: self.proxy.id.clone(), client: self.opener.client.clone() }
    }

    /// The proxies of its class with its version.
    pub(crate) fn class_set(&self) -> ProxySet {
        ProxySet::Class { class: self.handle.load().id, version: self.proxy.metadata.istio_version.clone() }
    }

    /// The holds that are in force for its stream.
    pub(crate) fn holds_in_force(&self) -> Vec<Arc<Hold>> {
        let holds = self.own_holds();
        let is_in_force = |hold: &&Arc<Hold>| {
            let newest = self.newest(&hold.key);
            newest
                .and_then(|newest| holds.in_force(hold.key.kind, &newest).cloned())
                .is_some_and(|it| Arc::ptr_eq(&it, hold))
        };
        holds.iter().filter(is_in_force).cloned().collect()
    }

    /// Who opened its stream.
    pub(crate) fn client(&self) -> &ClassClient {
        &self.opener.client
    }

    pub(super) fn own_holds(&self) -> ProxyHolds {
        self.holds_among(&self.holds.load())
    }

    /// Those of its stream. Nothing is left out of a state-of-the-world stream: a complete response without the resource would remove what the proxy
    /// has, where one with it leaves that in force.
    pub(crate) fn holds_among(&self, holds: &Holds) -> ProxyHolds {
        let of_proxy = holds.of(&self.own_set(), &self.class_set());
        if self.opener.variant == Variant::Sotw { of_proxy.with_content() } else { of_proxy }
    }

    /// `None`: none of this type. Mostly there are none at all, which costs one look at shared memory.
    pub(super) fn holds_of(&self, kind: TypeUrl) -> Option<ProxyHolds> {
        if self.holds.load().is_empty() || !HELD_KINDS.contains(kind) {
            return None;
        }
        Some(self.own_holds()).filter(|holds| holds.concerns(kind))
    }

    /// The content of a resource that would be sent without holds.
    pub(crate) fn newest(&self, key: &ResourceKey) -> Option<Arc<Resource>> {
        self.handle.load().view().snapshot().find(key.kind, &key.name).cloned()
    }

    pub(crate) fn is_newest(&self, hold: &Hold) -> bool {
        self.newest(&hold.key).is_some_and(|newest| newest.version == hold.refused.version)
    }

    /// The sequence at which the content of a resource became what it is.
    pub(crate) fn changed_at(&self, key: &ResourceKey) -> Option<Seq> {
        let view = self.handle.load().view();
        let view = view.snapshot();
        view.tables_of(key.kind).find_map(|table| table.entry(&key.name)).map(|(_, changed)| changed)
    }

    pub(super) fn apply_holds(
        &self,
        holds: &ProxyHolds,
        kind: TypeUrl,
        since: Seq,
        answer: Arc<Changes>,
    ) -> Arc<Changes> {
        let handle = self.handle.load();
        let view = handle.view();
        let snapshot = view.snapshot();
        let apply = |answer| holds.apply(kind, since, answer, |name| snapshot.find(kind, name).cloned());
        let moved_at = self.moves.lock().unwrap_or_else(PoisonError::into_inner).moved_at;
        if holds.has_own() || since < moved_at && since > 0 {
            return apply(answer);
        }
        // The same for all of the class, which so share its encoding.
        let version = self.proxy.metadata.istio_version.clone();
        let question = (kind, since, snapshot.stamp(), self.holds.load().seq(), version, self.opener.variant);
        let mut answers = handle.held_answers.lock().unwrap_or_else(PoisonError::into_inner);
        cached_changes(&mut answers, question, || Changes::clone(&apply(answer)))
    }

    /// What the proxy acknowledged last of a resource whose content it rejects. `position`: it has accepted everything up to there, except for what
    /// was held.
    pub(crate) fn last_acknowledged(
        &self,
        holds: &Holds,
        key: &ResourceKey,
        position: Seq,
        rejected: &Resource,
    ) -> Option<Arc<Resource>> {
        let sets = [self.own_set(), self.class_set()];
        let is_bad = |version: &str| {
            *version == *rejected.version || sets.iter().any(|set| holds.has_refused(set, key, version))
        };
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.accepted(key, position, &is_bad).or_else(|| good.get(key).cloned()).or_else(|| {
            let pinned = |set| holds.last(set, key)?.instead.content().cloned();
            sets.iter().find_map(pinned)
        });
        let found = found.filter(|found| !is_bad(&found.version))?;
        good.insert(key.clone(), found.clone());
        Some(found)
    }

    /// The newest content up to a sequence, in the tables of the class and of the one that the stream left.
    fn accepted(&self, key: &ResourceKey, position: Seq, is_bad: &dyn Fn(&str) -> bool) -> Option<Arc<Resource>> {
        let view = self.handle.load().view();
        let snapshot = view.snapshot();
        let moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let left = moves.previous_tables.iter().filter(|(kind, _)| *kind == key.kind).map(|(_, table)| table);
        let tables = snapshot.tables_of(key.kind).chain(left);
        let versions = tables.flat_map(|table| {
            let now = table.entry(&key.name).map(|(resource, changed)| (resource.clone(), changed));
            [now, table.superseded_entry(&key.name)]
        });
        let accepted = versions.flatten().filter(|(content, at)| *at <= position && !is_bad(&content.version));
        accepted.max_by_key(|(_, at)| *at).map(|(content, _)| content)
    }
}
