//! One type on one stream: its subscription, pending replies and ACK state, and from these the next response. Which resources that holds is
//! collected in `response_content`.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Instant, SystemTime},
};

use crate::{
    Changes, Class, Seq, TypeUrl, Variant, WatchInfo,
    protocol::{
        ack::{AckOutcome, AckState, Content, OutstandingResponse},
        pending_reply::PendingReply,
        response_content::ResponseContent,
        subscription::Subscription,
    },
};

pub(crate) struct Watch {
    pub(crate) kind: TypeUrl,
    /// A request that looks like a repeated ACK is answered once: the proxy may be warming clusters.
    pub(crate) answer_repeated_ack: bool,
    /// The proxy reconnected with the current versions.
    pub(crate) resumed: bool,
    /// There are no changes to send up to this sequence.
    checked: Seq,
    pub(crate) subscription: Subscription,
    pub(crate) ack: AckState,
    deferred_removals: DeferredRemovals,
    pub(crate) pending: PendingReply,
    /// The pending reply of a NACKed response: it is sent together with the next one.
    pub(crate) retry: PendingReply,
    /// Names of a NACKed response that are sent again in parts, to find those that the proxy rejects.
    bisected: Vec<Vec<Arc<str>>>,
}

/// Resources that the class no longer has, but that other resources which the proxy holds may still name.
#[derive(Debug, Default, PartialEq, Eq)]
enum DeferredRemovals {
    #[default]
    None,
    Names(BTreeSet<Arc<str>>),
    /// State of the world: a response that only leaves out what was removed.
    Response,
}

pub(crate) struct NextResponse {
    pub(crate) content: Content,
    /// Of content that is not shared.
    pub(crate) removed: Vec<Arc<str>>,
    pub(crate) version: Seq,
    pub(crate) to_warm: ClustersToWarm,
    pub(crate) outstanding: Box<OutstandingResponse>,
}

/// Clusters of a response whose content is new to the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClustersToWarm {
    All,
    Names(Vec<Arc<str>>),
}

/// The history no longer reaches back to the position of the proxy, and only the proxy knows what it holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HistoryLost;

/// What a response may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMode {
    Everything,
    /// No changes: those of a type that goes first have to wait, so these wait too.
    PendingOnly,
    /// Removals wait until the resources that name them have changed.
    WithoutRemovals,
}

/// More resources than this are not bisected: a proxy would be sent too many responses.
const MAX_BISECTED: usize = 64;

impl Watch {
    pub(crate) fn new(kind: TypeUrl, subscription: Subscription, pending: PendingReply, seq: Seq) -> Watch {
        let ack = if pending.is_empty() { AckState::at(seq) } else { AckState::default() };
        Watch {
            kind,
            subscription,
            ack,
            pending,
            retry: PendingReply::default(),
            bisected: Vec::new(),
            answer_repeated_ack: false,
            resumed: false,
            checked: 0,
            deferred_removals: DeferredRemovals::None,
        }
    }

    /// The next response, if there is anything to send and none is outstanding. `seq`: the newest sequence.
    pub(crate) fn next_response(
        &mut self,
        variant: Variant,
        class: &dyn Class,
        seq: Seq,
        mode: SendMode,
        now: Instant,
    ) -> Result<Option<NextResponse>, HistoryLost> {
        if self.ack.outstanding().is_some() {
            return Ok(None);
        }
        while let Some(names) = self.bisected.pop() {
            let part = PendingReply { names, ..PendingReply::default() };
            if let Some(response) = self.build(variant, class, part, None, now) {
                return Ok(Some(response));
            }
        }
        // The first response holds everything, also if the names that it was requested for were unsubscribed meanwhile.
        let first = self.ack.position() == 0 && self.ack.nacked_seq().is_none();
        self.pending.everything |= first && !self.pending.is_empty();
        let defer = mode == SendMode::WithoutRemovals && self.pending.is_empty() && self.retry.is_empty();
        if defer && variant == Variant::Sotw && self.has_only_removals(class, seq) {
            self.deferred_removals = DeferredRemovals::Response;
            return Ok(None);
        }
        let changes = if mode == SendMode::PendingOnly { None } else { self.changes(class, seq) };
        let Some(changes) = changes else {
            let pending = std::mem::take(&mut self.pending);
            return Ok(if pending.is_empty() { None } else { self.build(variant, class, pending, None, now) });
        };
        let mut pending = std::mem::take(&mut self.pending);
        pending.add(std::mem::take(&mut self.retry));
        if changes.full && !pending.everything {
            if variant == Variant::Delta && self.subscription.wildcard() {
                return Err(HistoryLost);
            }
            pending.everything = true;
        }
        if defer && variant == Variant::Delta && !changes.removed.is_empty() {
            let rest = self.defer_removals(&changes);
            return Ok(self.build(variant, class, pending, Some(&rest), now));
        }
        Ok(self.build(variant, class, pending, Some(&changes), now))
    }

    /// Returns the changes without their removals.
    fn defer_removals(&mut self, changes: &Changes) -> Arc<Changes> {
        let removed = changes.removed.iter().filter(|name| self.subscription.covers(name)).cloned();
        match &mut self.deferred_removals {
            DeferredRemovals::Names(names) => names.extend(removed),
            other => *other = DeferredRemovals::Names(removed.collect()),
        }
        Arc::new(Changes { removed: Vec::new(), ..changes.clone() })
    }

    /// Names were removed since the last ACK.
    pub(crate) fn would_remove(&self, class: &dyn Class, seq: Seq) -> bool {
        let position = self.ack.position();
        position > 0
            && position < seq
            && class.has_changes(self.kind, position)
            && !class.since(self.kind, position).removed.is_empty()
    }

    fn has_only_removals(&self, class: &dyn Class, seq: Seq) -> bool {
        let position = self.ack.position();
        if position == 0 || position >= seq || self.ack.nacked_seq().is_some() {
            return false;
        }
        let changes = class.since(self.kind, position);
        !changes.full && changes.changed.is_empty() && self.is_affected_by(&changes)
    }

    pub(crate) fn defers_removals(&self) -> bool {
        self.deferred_removals != DeferredRemovals::None
    }

    /// Deferred removals are sent next. A resource that exists again by now is sent instead.
    pub(crate) fn release_removals(&mut self) {
        if let DeferredRemovals::Names(names) = std::mem::take(&mut self.deferred_removals) {
            self.pending.add_names(names);
        }
    }

    /// The proxy may hold something older than the newest content.
    pub(crate) fn may_be_outdated(&self, class: &dyn Class, seq: Seq) -> bool {
        let position = self.ack.position();
        self.ack.outstanding().is_some()
            || self.ack.nacked_seq().is_some()
            || !self.pending.is_empty()
            || position > 0 && position < seq && self.is_affected(class, position)
    }

    /// There is something to send, whatever changed.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty() || !self.bisected.is_empty()
    }

    /// Nothing is pending, and changes were checked up to this sequence.
    pub(crate) fn is_up_to_date(&self, seq: Seq) -> bool {
        self.pending.is_empty() && self.checked >= seq
    }

    /// What a request says about the last response. The pending reply of a NACKed response goes into the next one.
    pub(crate) fn apply_ack(&mut self, nonce: &str, error: Option<Arc<str>>) -> AckOutcome {
        let mut outcome = self.ack.apply(nonce, error);
        match &mut outcome {
            AckOutcome::Nack(response) => {
                let mut pending = std::mem::take(&mut response.pending);
                pending.forget_versions();
                pending.reply_required = false;
                self.retry.add(pending);
            }
            AckOutcome::Ack(response) if response.ack_seq.is_some() => self.retry = PendingReply::default(),
            _ => {}
        }
        outcome
    }

    /// A NACK may mean any of several resources: each half is sent by itself next.
    pub(crate) fn bisect(&mut self, rejected: &OutstandingResponse) {
        let mut names: Vec<Arc<str>> = rejected.content.resources().iter().map(|it| it.name.clone()).collect();
        names.sort();
        if (2..=MAX_BISECTED).contains(&names.len()) {
            let second = names.split_off(names.len() / 2);
            self.bisected.extend([second, names]);
        }
    }

    /// Clusters were sent: the load assignments of those names are sent again.
    pub(crate) fn resend_for_warming(&mut self, clusters: &ClustersToWarm) {
        let names = match clusters {
            ClustersToWarm::All => {
                self.pending.everything = true;
                self.pending.forget_versions();
                &[][..]
            }
            ClustersToWarm::Names(names) => names,
        };
        self.pending.add_any_version(names.iter().filter(|name| self.subscription.covers(name)).cloned());
        self.answer_repeated_ack |= *clusters == ClustersToWarm::All || !names.is_empty();
    }

    /// There are changes that cannot be sent because a response is outstanding.
    pub(crate) fn has_blocked_changes(&self, class: &dyn Class, seq: Seq) -> bool {
        let Some(response) = self.ack.outstanding() else { return false };
        response.content_seq < seq && self.is_affected(class, response.content_seq)
    }

    fn is_affected(&self, class: &dyn Class, since: Seq) -> bool {
        class.has_changes(self.kind, since) && self.is_affected_by(&class.since(self.kind, since))
    }

    fn is_affected_by(&self, changes: &Changes) -> bool {
        if changes.full {
            return !self.subscription.is_empty();
        }
        changes.changed.iter().any(|resource| self.subscription.covers(&resource.name))
            || changes.removed.iter().any(|name| self.subscription.covers(name))
            || changes.held.iter().any(|held| self.subscription.covers(&held.resource.name))
    }

    /// `now` and `wall_clock`: the same moment.
    pub(crate) fn info(&self, now: Instant, wall_clock: SystemTime) -> WatchInfo {
        WatchInfo {
            kind: self.kind,
            wildcard: self.subscription.wildcard(),
            names: self.subscription.names().clone(),
            sent: self.ack.last().map(|sent| sent.info(now, wall_clock)),
            resumed: self.resumed,
            position: self.ack.position(),
            acked: self.ack.acked_nonce().cloned(),
            last_error: self.ack.error().cloned(),
        }
    }

    /// What happened since the last ACK, if any of it concerns the proxy and is newer than what it NACKed.
    fn changes(&mut self, class: &dyn Class, seq: Seq) -> Option<Arc<Changes>> {
        let (position, nacked) = (self.ack.position(), self.ack.nacked_seq());
        if self.checked >= seq || (position == 0 && nacked.is_none()) {
            return None;
        }
        self.checked = seq;
        let newest = class.changes_if_any(self.kind, nacked.unwrap_or(position));
        let reached = newest.as_ref().map_or(seq, |newest| newest.seq.max(seq));
        let Some(newest) = newest.filter(|newest| self.is_affected_by(newest)) else {
            if nacked.is_none() {
                self.ack.advance(reached);
            }
            return None;
        };
        let sends_everything = self.retry.everything || self.pending.everything;
        if nacked.is_none() || sends_everything { Some(newest) } else { Some(class.since(self.kind, position)) }
    }

    /// `None`: it turned out that there is nothing to send.
    fn build(
        &mut self,
        variant: Variant,
        class: &dyn Class,
        mut pending: PendingReply,
        changes: Option<&Arc<Changes>>,
        now: Instant,
    ) -> Option<NextResponse> {
        let complete = variant == Variant::Sotw && self.kind.wildcard();
        let requested = !pending.is_empty();
        pending.everything |= complete;
        let ResponseContent { content, mut removed, seq, deferred } =
            ResponseContent::new(self.kind, &self.subscription, class, &mut pending, changes);
        if let Some(deferred) = deferred {
            self.pending.add(PendingReply { initial_versions: pending.initial_versions.clone(), ..deferred });
        }
        // Secrets that do not exist, or that the proxy may not read, stay unanswered, as with istiod.
        if variant == Variant::Sotw || matches!(self.kind, TypeUrl::Extension | TypeUrl::Secret) {
            removed.clear();
        }
        let ack_seq = (pending.everything || changes.is_some()).then_some(seq);
        if content.resources().is_empty() && removed.is_empty() && !pending.reply_required && !complete {
            if let Some(seq) = ack_seq {
                self.ack.settle(seq);
            }
            self.resumed |= !pending.initial_versions.is_empty();
            return None;
        }
        let to_warm = self.clusters_to_warm(&content, changes.filter(|_| complete && !requested), complete, &pending);
        let changed_at = changes.filter(|_| !requested).and_then(|changes| changes.changed_at);
        let outstanding = Box::new(OutstandingResponse {
            ack_seq,
            content_seq: seq,
            pending,
            content: content.clone(),
            changed_at,
            sent_at: now,
            overdue: false,
            charge: None,
        });
        Some(NextResponse { content, removed, version: seq, to_warm, outstanding })
    }

    /// `changes`: of a complete response that was not requested, of which only the changed clusters are new.
    fn clusters_to_warm(
        &self,
        content: &Content,
        changes: Option<&Arc<Changes>>,
        complete: bool,
        pending: &PendingReply,
    ) -> ClustersToWarm {
        let resources = content.resources();
        if self.kind != TypeUrl::Cluster {
            return ClustersToWarm::Names(Vec::new());
        }
        if let Some(changes) = changes {
            return ClustersToWarm::Names(changes.changed.iter().map(|resource| resource.name.clone()).collect());
        }
        let everything = complete || pending.everything && pending.initial_versions.is_empty();
        if everything && !resources.is_empty() {
            return ClustersToWarm::All;
        }
        ClustersToWarm::Names(resources.iter().map(|resource| resource.name.clone()).collect())
    }
}

#[cfg(test)]
mod tests;
