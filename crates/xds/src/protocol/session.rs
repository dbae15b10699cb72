//! One stream after its first message: requests go in, decisions come out, with the time as an argument. Encoding, log, metrics and the
//! table of streams are in `server::session`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Class, Kinds, ProxyInfo, Seq, TypeUrl, Variant,
    protocol::{
        ack::AckOutcome,
        culprits::culprits,
        delta::{self, ClustersBeforeEds},
        order::{ACK_OVERDUE, ORDER_TIMEOUT},
        pending_pushes::PendingPushes,
        request::{Request, nack_reason},
        request_error::RequestError,
        request_limits::check_name_length,
        sotw,
        warming::Warming,
        watch::{ClustersToWarm, HistoryLost, NextResponse, SendMode, Watch},
        watches::Watches,
    },
};

/// Reading this many names for one request costs as much as one change of the subscription: such a request counts twice.
pub(crate) const NAMES_PER_CHANGE: usize = 10_000;

pub(crate) struct Session {
    class: Arc<dyn Class>,
    /// The newest sequence that this stream was notified of.
    seq: Seq,
    variant: Variant,
    bisect_nacks: bool,
    /// Types that may have something to send; with an outstanding response; whose last response was NACKed.
    due: Kinds,
    outstanding: Kinds,
    nacked: Kinds,
    /// When an outstanding response is overdue. `None`: none is outstanding, or all were counted.
    overdue_at: Option<Instant>,
    /// When deferred removals of clusters are sent at the latest. `None`: there are none.
    remove_by: Option<Instant>,
    /// Pushes for this proxy that it has not accepted in full.
    pushes: PendingPushes,
    clusters_before_eds: ClustersBeforeEds,
    /// Clusters that the proxy was sent and cannot use yet.
    warming: Option<Warming>,
    proxy: Arc<ProxyInfo>,
}

pub(crate) enum Next {
    /// To be encoded and sent, and reported with `on_sent`.
    Response(TypeUrl, NextResponse),
    /// Nothing to send until something happens.
    Idle,
    /// There is something, but it may not be sent out of order before this.
    WaitUntil(Instant),
}

/// What a request meant.
pub(crate) struct HandledRequest {
    pub(crate) outcome: AckOutcome,
    /// `Some`: the request is rate-limited, because it changed the subscription or lists many names. The number of names that were read for it.
    pub(crate) names: Result<Option<usize>, RequestError>,
}

impl Session {
    pub(crate) fn new(class: Arc<dyn Class>, proxy: Arc<ProxyInfo>, variant: Variant, seq: Seq) -> Session {
        Session {
            class,
            seq,
            variant,
            bisect_nacks: false,
            due: Kinds::NONE,
            outstanding: Kinds::NONE,
            nacked: Kinds::NONE,
            overdue_at: None,
            remove_by: None,
            pushes: PendingPushes::default(),
            clusters_before_eds: ClustersBeforeEds::None,
            warming: None,
            proxy,
        }
    }

    pub(crate) fn proxy(&self) -> &ProxyInfo {
        &self.proxy
    }

    /// Finds what a NACK is about by sending the resources of the response again in parts.
    pub(crate) fn bisecting(self, bisect_nacks: bool) -> Session {
        Session { bisect_nacks, ..self }
    }

    pub(crate) fn class(&self) -> &Arc<dyn Class> {
        &self.class
    }

    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    pub(crate) fn on_notification(&mut self, seq: Seq, kinds: Kinds, pushes: PendingPushes) {
        self.seq = self.seq.max(seq);
        self.due = self.due.union(kinds);
        pushes.into_iter().for_each(|seq| self.pushes.push(seq));
    }

    /// Called when there is nothing to send: the proxy has accepted all there is, unless a response is outstanding or NACKed. Returns the
    /// pushes that are complete by this.
    pub(crate) fn take_completed_pushes(&mut self) -> PendingPushes {
        if self.pushes.is_empty() || !self.outstanding.is_empty() || !self.nacked.is_empty() {
            return PendingPushes::default();
        }
        std::mem::take(&mut self.pushes)
    }

    /// Whether there may be something to send before anything happens.
    pub(crate) fn has_more(&self) -> bool {
        !self.due.difference(self.outstanding).is_empty() || self.remove_by.is_some()
    }

    /// Every response was ACKed or NACKed.
    pub(crate) fn is_fully_answered(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// When an outstanding response is overdue. `None`: none is outstanding, or all were counted.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        self.overdue_at
    }

    /// Types whose response became overdue; each response is reported once.
    pub(crate) fn take_overdue(&mut self, watches: &mut Watches, now: Instant) -> Kinds {
        let mut overdue = Kinds::NONE;
        for kind in self.outstanding.iter() {
            let response = watches.get_mut(kind).and_then(|watch| watch.ack.outstanding_mut());
            if let Some(response) = response.filter(|it| !it.overdue && it.sent_at + ACK_OVERDUE <= now) {
                response.overdue = true;
                overdue.insert(kind);
            }
            self.track(watches, kind);
        }
        overdue
    }

    /// Updates what is known about a type after something happened to it.
    fn track(&mut self, watches: &Watches, kind: TypeUrl) {
        let watch = watches.get(kind);
        let notified = self.due.contains(kind);
        let is_due = |watch: &Watch| watch.has_pending() || notified && !watch.is_up_to_date(self.seq);
        let is_due = watch.is_some_and(is_due);
        self.due.set(kind, is_due);
        self.nacked.set(kind, watch.is_some_and(|watch| watch.ack.nacked_seq().is_some()));
        self.outstanding.set(kind, watch.is_some_and(|watch| watch.ack.outstanding().is_some()));
        let outstanding = self.outstanding.iter().filter_map(|kind| watches.get(kind)?.ack.outstanding());
        self.overdue_at = outstanding.filter(|it| !it.overdue).map(|it| it.sent_at + ACK_OVERDUE).min();
    }

    /// `max_names`: that the stream may subscribe to.
    pub(crate) fn on_request(
        &mut self,
        watches: &mut Watches,
        kind: TypeUrl,
        request: &mut Request,
        max_names: usize,
        now: Instant,
    ) -> Result<HandledRequest, RequestError> {
        let name_count = request.lists.len();
        let before = (!request.is_ack_only()).then(|| watches.get(kind).map(|watch| watch.subscription.clone()));
        let outcome = self.handle(watches, kind, request)?;
        if let (AckOutcome::Nack(response), true) = (&outcome, self.bisects(kind)) {
            let reason = nack_reason(request.error()).unwrap_or_default();
            let watch = watches.get_mut(kind).filter(|_| culprits(&reason, response.content.resources()).is_empty());
            watch.into_iter().for_each(|watch| watch.bisect(response));
        }
        self.track(watches, kind);
        if kind == TypeUrl::Cluster {
            match (&outcome, &mut self.warming) {
                (AckOutcome::Ack(_), Some(warming)) => warming.on_ack(now),
                (AckOutcome::Nack(_), warming) => *warming = None,
                _ => {}
            }
        }
        let after = watches.get(kind).map(|watch| &watch.subscription);
        let names = if before.is_some_and(|before| before.as_ref() != after) {
            subscribed_names(watches, max_names).map(|count| Some(name_count + count))
        } else {
            Ok((name_count > NAMES_PER_CHANGE).then_some(name_count))
        };
        Ok(HandledRequest { outcome, names })
    }

    /// Envoy's text on routes names none, and what it does not name keeps the rest from it. A complete response cannot be sent in parts.
    fn bisects(&self, kind: TypeUrl) -> bool {
        self.bisect_nacks && self.variant == Variant::Delta && matches!(kind, TypeUrl::Route | TypeUrl::Extension)
    }

    fn handle(
        &mut self,
        watches: &mut Watches,
        kind: TypeUrl,
        request: &mut Request,
    ) -> Result<AckOutcome, RequestError> {
        check_name_length(request.lists.longest_name())?;
        let slot = watches.slot(kind);
        Ok(match request.variant() {
            Variant::Sotw => sotw::handle(slot, &self.proxy, kind, request, self.seq),
            Variant::Delta => delta::handle(slot, &mut self.clusters_before_eds, kind, request, self.seq),
        })
    }

    /// The next response in push order. `removal_grace`: how long the removal of a cluster waits for ACKs of the listeners and routes that no
    /// longer name it.
    pub(crate) fn next(
        &mut self,
        watches: &mut Watches,
        removal_grace: Duration,
        now: Instant,
    ) -> Result<Next, HistoryLost> {
        let late = self.remove_by.is_some_and(|by| by <= now);
        let next = self.next_in_order(watches, removal_grace, now, late)?;
        let Some(by) = self.remove_by else { return Ok(next) };
        match next {
            Next::Response(kind, response) => Ok(Next::Response(kind, response)),
            waits if late || !self.cluster_names_may_change(watches) => {
                self.remove_by = None;
                let Some(watch) = watches.get_mut(TypeUrl::Cluster) else { return Ok(waits) };
                watch.release_removals();
                self.due.insert(TypeUrl::Cluster);
                self.next_in_order(watches, removal_grace, now, true)
            }
            Next::Idle => Ok(Next::WaitUntil(by)),
            Next::WaitUntil(until) => Ok(Next::WaitUntil(until.min(by))),
        }
    }

    /// Listeners or routes are still to be accepted that may stop naming a cluster.
    fn cluster_names_may_change(&self, watches: &Watches) -> bool {
        let mut watches = watches.iter().filter(|watch| watch.kind.names_clusters());
        watches.any(|watch| watch.may_be_outdated(&*self.class, self.seq))
    }

    fn would_remove_clusters(&self, watches: &Watches) -> bool {
        let clusters = watches.get(TypeUrl::Cluster).filter(|_| self.due.contains(TypeUrl::Cluster));
        clusters.is_some_and(|watch| watch.would_remove(&*self.class, self.seq))
    }

    /// `late`: removals wait no longer.
    fn next_in_order(
        &mut self,
        watches: &mut Watches,
        removal_grace: Duration,
        now: Instant,
        late: bool,
    ) -> Result<Next, HistoryLost> {
        let defer_removals = !late && self.would_remove_clusters(watches) && self.cluster_names_may_change(watches);
        let names_clusters = self.due.iter().any(TypeUrl::names_clusters);
        let warming_until = if names_clusters { self.warming_until(watches, now) } else { None };
        let (mut blocked_until, mut unfinished): (Option<Instant>, _) = (None, None);
        for kind in self.due.iter() {
            let Some(watch) = watches.get_mut(kind) else { continue };
            if let Some(response) = watch.ack.outstanding() {
                let until = response.sent_at + ORDER_TIMEOUT;
                if kind.is_referred_to() && until > now && watch.has_blocked_changes(&*self.class, self.seq) {
                    blocked_until = Some(blocked_until.map_or(until, |earlier| earlier.min(until)));
                }
                continue;
            }
            let mode = match kind {
                TypeUrl::Cluster if defer_removals => SendMode::WithoutRemovals,
                _ if blocked_until.is_some() && kind.refers_to_earlier() => SendMode::PendingOnly,
                _ if warming_until.is_some() && kind.names_clusters() => SendMode::PendingOnly,
                _ => SendMode::Everything,
            };
            let response = watch.next_response(self.variant, &*self.class, self.seq, mode, now)?;
            if watch.defers_removals() {
                self.remove_by.get_or_insert(now + removal_grace);
            }
            if let Some(response) = response {
                return Ok(Next::Response(kind, response));
            }
            // What was collected need not be sent, and the rest was deferred.
            unfinished = unfinished.or_else(|| (!watch.pending.is_empty()).then_some(now));
            self.track(watches, kind);
        }
        let until = blocked_until.into_iter().chain(warming_until).chain(unfinished).min();
        Ok(until.map_or(Next::Idle, Next::WaitUntil))
    }

    /// Until when listeners and routes wait for clusters that they may name.
    fn warming_until(&mut self, watches: &Watches, now: Instant) -> Option<Instant> {
        let [clusters, endpoints] = [TypeUrl::Cluster, TypeUrl::Endpoints].map(|kind| watches.get(kind));
        let until = self.warming.as_ref()?.wait_until(clusters, endpoints, now);
        if until.is_none() {
            self.warming = None;
        }
        until
    }

    /// A response was encoded and is sent. `now`: after its encoding.
    pub(crate) fn on_sent(
        &mut self,
        watches: &mut Watches,
        kind: TypeUrl,
        nonce: Arc<str>,
        response: NextResponse,
        now: Instant,
    ) {
        let NextResponse { version, to_warm, outstanding, .. } = response;
        if let Some(watch) = watches.get_mut(kind) {
            watch.ack.sent(nonce, version, outstanding);
        }
        self.track(watches, kind);
        if kind == TypeUrl::Cluster {
            // A proxy that starts waits for all of its clusters by itself.
            if let (ClustersToWarm::Names(names), Some(_)) = (&to_warm, watches.get(TypeUrl::Listener)) {
                self.warming = Warming::new(names.clone(), now);
            }
            self.resend_endpoints(watches, to_warm);
        }
    }

    /// A proxy that is sent a cluster waits for its load assignment, even if it holds an equal one.
    fn resend_endpoints(&mut self, watches: &mut Watches, clusters: ClustersToWarm) {
        if let Some(endpoints) = watches.get_mut(TypeUrl::Endpoints) {
            endpoints.resend_for_warming(&clusters);
            self.due.insert(TypeUrl::Endpoints);
            return;
        }
        match (&mut self.clusters_before_eds, clusters) {
            (ClustersBeforeEds::All, _) => {}
            (before, ClustersToWarm::All) => *before = ClustersBeforeEds::All,
            (ClustersBeforeEds::Names(known), ClustersToWarm::Names(names)) => known.extend(names),
            (before, ClustersToWarm::Names(names)) => *before = ClustersBeforeEds::Names(names),
        }
    }
}

/// The number of names that the stream subscribes to.
fn subscribed_names(watches: &Watches, limit: usize) -> Result<usize, RequestError> {
    let count = watches.iter().map(|watch| watch.subscription.names().len()).sum();
    if count > limit { Err(RequestError::TooManyNames { count, limit }) } else { Ok(count) }
}

#[cfg(test)]
mod tests;
