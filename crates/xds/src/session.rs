//! One stream after its first message: requests go in, responses come out. No IO; the clock only for the order of a
//! push.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::SystemTime};

use http2::clock;
use tokio::time::Instant;
use wire::{envoy::config::core::v3::Node, google::rpc};

use crate::{
    Bell, Class, Connection, Joined, Kinds, ProxyInfo, Refused, Rung, Seq, Stage, TypeUrl, Variant,
    ack::{Content, Sent, Verdict},
    arrival::Arrival,
    connections::Listed,
    delta::{self, Warming, Wish},
    door::Entered,
    frame::{Frame, Head},
    metrics::{Connected, Refusing},
    nack::Nack,
    order::{OVERDUE, PATIENCE},
    outbound::Response,
    pushes::Pushes,
    refusal::{Refusal, code_label},
    request::{check_names, first_node, is_same_node, kept_node, reason, sort_metadata},
    requested::{Request, Target},
    server::Shared,
    sotw,
    stage::Timed,
    stream::NAMES_PER_CHANGE,
    throttle::Pass,
    watch::{Answer, Fresh, Turn},
    watches::Watches,
};

/// To encode a response that is longer takes a while, so that it is later than before.
const LONG: usize = 64 << 10;

/// In this order: what every push and every answer to it needs lies together.
#[repr(C)]
pub(crate) struct Session {
    shared: Arc<Shared>,
    class: Arc<dyn Class>,
    listed: Listed,
    pub(crate) news: Arc<Bell>,
    /// The newest sequence that this stream has heard of.
    now: Seq,
    variant: Variant,
    /// Types of which there may be something to send; of which a response is on its way; of which the last was refused.
    due: Kinds,
    open: Kinds,
    refused: Kinds,
    /// When a response has not been answered for so long that it counts. `None`: none is on its way, or all were counted.
    overdue_at: Option<Instant>,
    /// When clusters are removed at the latest. `None`: none waits for its removal.
    remove_by: Option<Instant>,
    /// The first node as it came, where later ones must be the same.
    node: Option<Box<Node>>,
    /// Pushes for this proxy that it does not hold yet.
    pushes: Pushes,
    refusing: BTreeMap<TypeUrl, Option<Refusing>>,
    warming: Warming,
    /// Clusters that the proxy was sent and cannot use yet.
    arrival: Option<Arrival>,
    proxy: Arc<ProxyInfo>,
    _connected: Connected,
}

pub(crate) enum Next {
    Response(Response),
    /// Nothing to send until something happens.
    Nothing,
    /// There is something, but it may not go out of order before this.
    Held(Instant),
}

impl Session {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        address: SocketAddr,
        entered: Option<&Entered>,
        variant: Variant,
        node: Option<&mut Node>,
    ) -> Result<Session, Refusal> {
        let node = first_node(node)?;
        sort_metadata(node)?;
        let node = &*node;
        let kept = shared.options.strict_nodes.then(|| Box::new(kept_node(node)));
        // The first of its class waits until that is computed.
        let caller = entered.map(|entered| &entered.caller);
        let joined = shared.metrics.stages().run_long(Stage::PushContext, || shared.provider.join_as(caller, node));
        let Joined { class, proxy, news } = joined.map_err(|refused| refusal(refused, entered, node))?;
        let proxy = Arc::new(proxy);
        let arrival = Connection {
            id: String::new(),
            node_id: node.id.clone(),
            proxy: proxy.clone(),
            metadata: node.metadata.clone().unwrap_or_default(),
            connected_at: SystemTime::now(),
            address,
            caller: caller.and_then(|caller| caller.identities.first()).map(|name| Arc::from(name.as_str())),
            variant,
            class: class.clone(),
            watched: Vec::new(),
        };
        let listed = shared.connections.add(arrival, news.clone());
        tracing::debug!(connection = listed.id(), %address, ?variant, version = proxy.version, "proxy connected");
        Ok(Session {
            _connected: shared.metrics.connect(&proxy.version),
            shared: shared.clone(),
            variant,
            class,
            proxy,
            due: Kinds::NONE,
            open: Kinds::NONE,
            refused: Kinds::NONE,
            overdue_at: None,
            warming: Warming::None,
            arrival: None,
            remove_by: None,
            refusing: BTreeMap::new(),
            now: news.seq(),
            news,
            listed,
            pushes: Pushes::default(),
            node: kept,
        })
    }

    pub(crate) fn pass(&self) -> Pass {
        self.shared.throttle.pass(&self.proxy.namespace)
    }

    /// How long news waited for their turn.
    pub(crate) fn queued(&self, waited: std::time::Duration) {
        self.shared.metrics.queued(waited);
    }

    pub(crate) fn heard(&mut self, rung: Rung) {
        self.now = self.now.max(rung.seq);
        self.due = self.due.and(rung.kinds);
        rung.pushes.into_iter().for_each(|seq| self.pushes.push(seq));
    }

    /// There is nothing to send: what was sent and accepted is all there is, unless something is on its way or refused.
    pub(crate) fn note_done(&mut self) {
        if self.pushes.is_empty() || !self.open.is_empty() || !self.refused.is_empty() {
            return;
        }
        for seq in std::mem::take(&mut self.pushes) {
            if let Some(journal) = &self.shared.journal {
                journal.done(seq);
            }
        }
    }

    /// Whether there may be something to send before anything happens.
    pub(crate) fn has_more(&self) -> bool {
        !self.due.without(self.open).is_empty() || self.remove_by.is_some()
    }

    /// Every response was answered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.open.is_empty()
    }

    /// After something happened to a type.
    fn keep_track(&mut self, watches: &Watches, kind: TypeUrl) {
        let watch = watches.get(kind);
        let news = self.due.contains(kind);
        self.due.set(kind, watch.is_some_and(|watch| !watch.owed.is_empty() || news && !watch.is_settled(self.now)));
        self.refused.set(kind, watch.is_some_and(|watch| watch.ack.refused().is_some()));
        self.open.set(kind, watch.is_some_and(|watch| watch.ack.open().is_some()));
        let open = self.open.iter().filter_map(|kind| watches.get(kind)?.ack.open());
        self.overdue_at = open.filter(|open| !open.overdue).map(|open| open.at + OVERDUE).min();
    }

    /// Some: the request is limited in rate, because it changed the subscription or lists many names. So many names were looked at for it.
    pub(crate) fn request(&mut self, request: Request) -> Result<Option<usize>, Refusal> {
        let timed = Timed::begin();
        let names = self.take_request(request);
        timed.end(Stage::Ack, self.shared.metrics.stages());
        names
    }

    fn take_request(&mut self, mut request: Request) -> Result<Option<usize>, Refusal> {
        if let (Some(first), Some(node)) = (&self.node, request.node())
            && !is_same_node(first, node)?
        {
            return Err(Refusal::Node("the node of a stream may not change; open another stream".to_owned()));
        }
        let kind = match Target::of(request.type_url()) {
            Target::Kind(kind) => kind,
            Target::Debug => return Err(Refusal::Debug(request.type_url().chars().take(64).collect())),
            Target::Health | Target::Unknown => {
                tracing::debug!(connection = self.listed.id(), "request of a type that is not served");
                return Ok(None);
            }
        };
        let listed = request.name_count();
        let entry = self.listed.entry();
        let mut watches = entry.watches();
        let before = (!request.is_answer()).then(|| watches.get(kind).map(|watch| watch.subscription.clone()));
        let (place, warming) = (watches.place(kind), &mut self.warming);
        let verdict = match &mut request {
            Request::Sotw(request) => {
                check_names(request.resource_names.iter().map(String::len))?;
                sotw::handle(place, &self.proxy, kind, request, self.now)
            }
            Request::Delta(request, held) => {
                let wish = Wish::of(request, std::mem::take(held));
                check_names(wish.lengths())?;
                delta::handle(place, warming, kind, wish, self.now)
            }
            Request::Brief(brief) => {
                let wish = Wish::brief(brief);
                check_names(wish.lengths())?;
                delta::handle(place, warming, kind, wish, self.now)
            }
        };
        self.keep_track(&watches, kind);
        self.note(kind, verdict, request.nonce(), request.error());
        let now = watches.get(kind).map(|watch| &watch.subscription);
        if before.is_some_and(|before| before.as_ref() != now) {
            return Ok(Some(listed + self.subscribed(&watches)?));
        }
        Ok((listed > NAMES_PER_CHANGE).then_some(listed))
    }

    /// When a response has not been answered for so long that it counts. `None`: none is on its way, or all were counted.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        self.overdue_at
    }

    pub(crate) fn count_overdue(&mut self) {
        let entry = self.listed.entry();
        let (mut watches, now) = (entry.watches(), clock::now());
        for kind in self.open.iter() {
            let open = watches.get_mut(kind).and_then(|watch| watch.ack.open_mut());
            if let Some(open) = open.filter(|open| !open.overdue && open.at + OVERDUE <= now) {
                open.overdue = true;
                self.shared.metrics.expired(kind);
            }
            self.keep_track(&watches, kind);
        }
    }

    /// The next response in push order.
    pub(crate) fn next(&mut self) -> Result<Next, Refusal> {
        let timed = Timed::begin();
        let next = self.look();
        timed.end(Stage::Delta, self.shared.metrics.stages());
        next
    }

    fn look(&mut self) -> Result<Next, Refusal> {
        let entry = self.listed.entry();
        let watches = &mut *entry.watches();
        let began = clock::now();
        let late = self.remove_by.is_some_and(|by| by <= began);
        let next = self.next_at(watches, began, late)?;
        let Some(by) = self.remove_by else { return Ok(next) };
        match next {
            Next::Response(response) => Ok(Next::Response(response)),
            waits if late || !self.names_may_change(watches) => {
                self.remove_by = None;
                let Some(watch) = watches.get_mut(TypeUrl::Cluster) else { return Ok(waits) };
                watch.retire();
                self.due.insert(TypeUrl::Cluster);
                self.next_at(watches, began, true)
            }
            Next::Nothing => Ok(Next::Held(by)),
            Next::Held(until) => Ok(Next::Held(until.min(by))),
        }
    }

    /// Listeners or routes are on their way that may stop naming a cluster.
    fn names_may_change(&self, watches: &Watches) -> bool {
        let mut watches = watches.iter().filter(|watch| watch.kind.names_clusters());
        watches.any(|watch| watch.is_unsettled(&*self.class, self.now))
    }

    fn would_remove(&self, watches: &Watches) -> bool {
        let clusters = watches.get(TypeUrl::Cluster).filter(|_| self.due.contains(TypeUrl::Cluster));
        clusters.is_some_and(|watch| watch.would_remove(&*self.class, self.now))
    }

    fn next_at(&mut self, watches: &mut Watches, began: Instant, late: bool) -> Result<Next, Refusal> {
        let careful = !late && self.would_remove(watches) && self.names_may_change(watches);
        let awaited = if self.due.iter().any(TypeUrl::names_clusters) { self.awaited(watches, began) } else { None };
        let (mut held, mut more): (Option<Instant>, _) = (None, None);
        for kind in self.due.iter() {
            let Some(watch) = watches.get_mut(kind) else { continue };
            if let Some(open) = watch.ack.open() {
                let until = open.at + PATIENCE;
                if kind.leads() && until > began && watch.behind(&*self.class, self.now) {
                    held = Some(held.map_or(until, |held| held.min(until)));
                }
                continue;
            }
            let turn = match kind {
                TypeUrl::Cluster if careful => Turn::Careful,
                _ if held.is_some() && kind.follows() => Turn::Held,
                _ if awaited.is_some() && kind.names_clusters() => Turn::Held,
                _ => Turn::Free,
            };
            let answer = watch.answer(self.variant, &*self.class, self.now, turn).map_err(|_| Refusal::Lost)?;
            if watch.is_retiring() {
                self.remove_by.get_or_insert(began + self.shared.options.removal_patience);
            }
            if let Some(answer) = answer {
                return self.response(watches, kind, answer, began).map(Next::Response);
            }
            // What was looked at need not be sent, and not all was looked at.
            more = more.or_else(|| (!watch.owed.is_empty()).then_some(began));
            self.keep_track(watches, kind);
        }
        let until = held.into_iter().chain(awaited).chain(more).min();
        Ok(until.map_or(Next::Nothing, Next::Held))
    }

    /// Until when listeners and routes wait for clusters that they may name.
    fn awaited(&mut self, watches: &Watches, now: Instant) -> Option<Instant> {
        let [clusters, endpoints] = [TypeUrl::Cluster, TypeUrl::Endpoints].map(|kind| watches.get(kind));
        let until = self.arrival.as_ref()?.awaited(clusters, endpoints, now);
        if until.is_none() {
            self.arrival = None;
        }
        until
    }

    fn response(
        &mut self,
        watches: &mut Watches,
        kind: TypeUrl,
        answer: Answer,
        began: Instant,
    ) -> Result<Response, Refusal> {
        let Answer { content, removed, version, fresh, open } = answer;
        let timed = Timed::begin();
        let last = watches.get(kind).and_then(|watch| watch.ack.last());
        let encoded = self.frame(kind, version, &content, &removed, last);
        timed.end(Stage::Serialization, self.shared.metrics.stages());
        let (frame, nonce) = encoded?;
        if frame.len() > LONG {
            clock::look();
        }
        let made = clock::now();
        let (connection, sent, removed) = (self.listed.id(), content.resources().len(), removed.len());
        tracing::debug!(connection, kind = kind.short(), push = version, sent, removed, bytes = frame.len(), "pushed");
        self.shared.metrics.pushed(self.variant, kind, frame.len());
        let pushed = self.shared.journal.as_ref().filter(|_| open.began.is_some());
        let refresh = pushed.and_then(|journal| journal.sent(version)).unwrap_or_default();
        if let Some(watch) = watches.get_mut(kind) {
            watch.ack.sent(nonce, version, open);
        }
        self.keep_track(watches, kind);
        if kind == TypeUrl::Cluster {
            // At the start a proxy waits for all of its clusters by itself.
            if let (Fresh::Names(names), Some(_)) = (&fresh, watches.get(TypeUrl::Listener)) {
                self.arrival = Arrival::new(names.clone(), made);
            }
            self.warm(watches, fresh);
        }
        Ok(Response { frame, kind: Some(kind), began: began.checked_sub(refresh).unwrap_or(began), made })
    }

    /// Shared where possible, but a nonce is never that of the response before: an answer must say which it means.
    fn frame(
        &self,
        kind: TypeUrl,
        version: Seq,
        content: &Content,
        removed: &[Arc<str>],
        last: Option<&Sent>,
    ) -> Result<(Frame, Arc<str>), Refusal> {
        let Shared { nonces, frames, .. } = &*self.shared;
        let whole = match content {
            Content::Shared(changes) => Some(changes.whole(self.variant, kind, nonces, frames)?),
            // Those of clusters that it was sent. Secrets must not be kept for others.
            Content::Own(few) if removed.is_empty() && kind == TypeUrl::Endpoints => {
                frames.few(self.variant, kind, version, few, nonces)?
            }
            Content::Own(_) => None,
        };
        if let Some(whole) = whole.filter(|whole| last.is_none_or(|last| last.nonce != whole.nonce)) {
            let nonce = whole.nonce.clone();
            return Ok((Frame::shared(whole), nonce));
        }
        let nonce = nonces.next();
        let head = Head { kind, version, nonce: &nonce };
        Ok((Frame::own(&head, self.variant, content.resources(), removed)?, nonce))
    }

    /// A proxy that gets a cluster waits for its load assignment, even if it holds an equal one.
    fn warm(&mut self, watches: &mut Watches, fresh: Fresh) {
        if let Some(endpoints) = watches.get_mut(TypeUrl::Endpoints) {
            endpoints.warm(&fresh);
            self.due.insert(TypeUrl::Endpoints);
            return;
        }
        match (&mut self.warming, fresh) {
            (Warming::All, _) => {}
            (warming, Fresh::All) => *warming = Warming::All,
            (Warming::Names(known), Fresh::Names(names)) => known.extend(names),
            (warming, Fresh::Names(names)) => *warming = Warming::Names(names),
        }
    }

    fn note(&mut self, kind: TypeUrl, verdict: Verdict, nonce: &str, error: Option<&rpc::Status>) {
        let metrics = &self.shared.metrics;
        if let (Some(journal), Verdict::Accepted(open) | Verdict::Refused(open)) = (&self.shared.journal, &verdict)
            && open.began.is_some()
        {
            journal.answered(open.as_of, matches!(verdict, Verdict::Accepted(_)));
        }
        if kind == TypeUrl::Cluster {
            match (&verdict, &mut self.arrival) {
                (Verdict::Accepted(_), Some(arrival)) => arrival.accepted(clock::now()),
                (Verdict::Refused(_), arrival) => *arrival = None,
                _ => {}
            }
        }
        match verdict {
            Verdict::Stale => metrics.expired(kind),
            Verdict::Accepted(open) => {
                self.refusing.remove(&kind);
                if let Some(began) = open.began {
                    metrics.converged(clock::now().into_std().saturating_duration_since(began));
                }
            }
            Verdict::Refused(open) => {
                metrics.rejected(kind);
                let code = code_label(error.map_or(0, |error| error.code));
                self.refusing.remove(&kind);
                self.refusing.insert(kind, metrics.refusing(kind, &self.proxy.id, code));
                let reason = reason(error).unwrap_or_default();
                let nack =
                    Nack { proxy: self.listed.id(), kind, nonce, reason: &reason, resources: open.content.resources() };
                self.shared.nacks.tell(&nack);
            }
            Verdict::Silent | Verdict::Repeated if error.is_some() => metrics.rejected(kind),
            Verdict::Silent | Verdict::Repeated => {}
        }
    }

    /// Names that the stream subscribes to.
    fn subscribed(&self, watches: &Watches) -> Result<usize, Refusal> {
        let count = watches.iter().map(|watch| watch.subscription.names().len()).sum();
        let limit = self.shared.options.max_names;
        if count > limit { Err(Refusal::TooManyNames { count, limit }) } else { Ok(count) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        tracing::debug!(connection = self.listed.id(), "proxy disconnected");
    }
}

fn refusal(refused: Refused, entered: Option<&Entered>, node: &Node) -> Refusal {
    match refused {
        Refused::Node(why) => Refusal::Node(why),
        Refused::Denied(why) => {
            if let Some(Entered { caller, door }) = entered {
                door.denied(caller, node, &why);
            }
            Refusal::Denied(why)
        }
    }
}
