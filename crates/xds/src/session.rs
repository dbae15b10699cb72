//! One stream after its first message: requests go in, responses come out. No IO; the clock only for the order of a
//! push.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    net::SocketAddr,
    sync::Arc,
    time::{self, SystemTime},
};

use prost::Message;
use tokio::time::Instant;
use wire::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    },
    google::rpc,
};

use crate::{
    Bell, Class, Connection, Joined, ProxyInfo, Seq, Stage, TypeUrl, Variant,
    ack::{Content, Open, Verdict},
    arrival::Arrival,
    bell::REMEMBERED,
    connections::Listed,
    delta::{self, Warming},
    door::Entered,
    frame::{Frame, Head},
    metrics::{Connected, Refusing},
    nack::Nack,
    order::{OVERDUE, PATIENCE},
    outbound::Response,
    refusal::{Refusal, code_label},
    request::{check_names, first_node, reason},
    server::Shared,
    sotw,
    throttle::Pass,
    watch::{Answer, Fresh, Turn, Watch},
};

pub(crate) struct Session {
    shared: Arc<Shared>,
    variant: Variant,
    class: Arc<dyn Class>,
    proxy: Arc<ProxyInfo>,
    /// Boxed: a map reserves room for eleven.
    watches: BTreeMap<TypeUrl, Box<Watch>>,
    warming: Warming,
    /// Clusters that the proxy was sent and cannot use yet.
    arrival: Option<Arrival>,
    /// When clusters are removed at the latest. `None`: none waits for its removal.
    remove_by: Option<Instant>,
    refusing: BTreeMap<TypeUrl, Option<Refusing>>,
    pub(crate) news: Arc<Bell>,
    /// The newest sequence that this stream has heard of.
    now: Seq,
    listed: Listed,
    /// Pushes for this proxy that it does not hold yet, as many as a journal remembers.
    pushes: VecDeque<Seq>,
    /// How long the last look at what to send encoded responses.
    encoding: time::Duration,
    _connected: Connected,
    /// The first node as it came, where later ones must be the same.
    node: Option<Box<Node>>,
}

/// A request of either variant.
pub(crate) enum Request {
    Sotw(DiscoveryRequest),
    Delta(DeltaDiscoveryRequest),
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
        node: Option<&Node>,
    ) -> Result<Session, Refusal> {
        let node = first_node(node)?;
        let kept = shared.options.strict_nodes.then(|| Box::new(node.clone()));
        let admitted = entered.map(|entered| entered.door.admit(&entered.caller, node)).transpose();
        let admitted = admitted.map_err(Refusal::Denied)?;
        let node = admitted.as_ref().unwrap_or(node);
        // The first of its class waits until that is computed.
        let caller = entered.map(|entered| &entered.caller);
        let joined = shared.metrics.stages().run_long(Stage::PushContext, || shared.provider.join_as(caller, node));
        let Joined { class, proxy, news } = joined.map_err(|refused| Refusal::Node(refused.0))?;
        let proxy = Arc::new(proxy);
        let listed = shared.connections.add(Connection {
            id: String::new(),
            node_id: node.id.clone(),
            proxy: proxy.clone(),
            metadata: node.metadata.as_ref().map(|metadata| metadata.encode_to_vec().into()).unwrap_or_default(),
            connected_at: SystemTime::now(),
            address,
            caller: caller.and_then(|caller| caller.identities.first()).map(|name| Arc::from(name.as_str())),
            variant,
            class: class.clone(),
            watched: Vec::new(),
        });
        tracing::debug!(connection = listed.id(), %address, ?variant, version = proxy.version, "proxy connected");
        Ok(Session {
            _connected: shared.metrics.connect(&proxy.version),
            shared: shared.clone(),
            variant,
            class,
            proxy,
            watches: BTreeMap::new(),
            warming: Warming::None,
            arrival: None,
            remove_by: None,
            refusing: BTreeMap::new(),
            now: news.seq(),
            news,
            listed,
            pushes: VecDeque::new(),
            encoding: time::Duration::ZERO,
            node: kept,
        })
    }

    /// Until an operator ends this stream.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + use<> {
        self.listed.ended()
    }

    pub(crate) fn pass(&self) -> Pass {
        self.shared.throttle.pass(&self.proxy.namespace)
    }

    /// How long news waited for their turn.
    pub(crate) fn queued(&self, waited: std::time::Duration) {
        self.shared.metrics.queued(waited);
    }

    pub(crate) fn heard(&mut self, now: Seq) {
        self.now = self.now.max(now);
        self.pushes.extend(self.news.pushes());
        let old = self.pushes.len().saturating_sub(REMEMBERED);
        self.pushes.drain(..old);
    }

    /// There is nothing to send: what was sent and accepted is all there is, unless something is on its way or refused.
    pub(crate) fn note_done(&mut self) {
        let settled = |watch: &Watch| watch.ack.open().is_none() && watch.ack.refused().is_none();
        if self.pushes.is_empty() || !self.watches.values().all(|watch| settled(watch)) {
            return;
        }
        for seq in std::mem::take(&mut self.pushes) {
            if let Some(journal) = &self.shared.journal {
                journal.done(seq);
            }
        }
    }

    /// There is nothing to look for until something happens.
    pub(crate) fn is_settled(&self) -> bool {
        self.arrival.is_none()
            && self.remove_by.is_none()
            && self.watches.values().all(|watch| watch.is_settled(self.now))
    }

    /// Whether there may be more to send than what was just sent, before anything happens.
    pub(crate) fn has_more(&mut self) -> bool {
        for watch in self.watches.values_mut() {
            watch.glance(&*self.class, self.now);
        }
        !self.is_settled()
    }

    /// Every response was answered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.watches.values().all(|watch| watch.ack.open().is_none())
    }

    /// Answers whether it changed what is subscribed to.
    pub(crate) fn request(&mut self, request: Request) -> Result<bool, Refusal> {
        let stages = self.shared.metrics.stages().clone();
        stages.run(Stage::Ack, || self.take_request(request))
    }

    fn take_request(&mut self, request: Request) -> Result<bool, Refusal> {
        if let (Some(first), Some(node)) = (&self.node, request.node())
            && **first != *node
        {
            return Err(Refusal::Node("the node of a stream may not change; open another stream".to_owned()));
        }
        let kind = match Target::of(request.type_url()) {
            Target::Kind(kind) => kind,
            Target::Debug => return Err(Refusal::Debug(request.type_url().chars().take(64).collect())),
            Target::Health | Target::Unknown => {
                tracing::debug!(connection = self.listed.id(), "request of a type that is not served");
                return Ok(false);
            }
        };
        let before = self.watches.get(&kind).map(|watch| watch.subscription.clone());
        let nonce = request.nonce().to_owned();
        let error = request.error().cloned();
        let verdict = match request {
            Request::Sotw(request) => {
                check_names(&request.resource_names)?;
                sotw::handle(&mut self.watches, &self.proxy, kind, &request, self.now)
            }
            Request::Delta(request) => {
                check_names(request.resource_names_subscribe.iter().chain(request.initial_resource_versions.keys()))?;
                delta::handle(&mut self.watches, &mut self.warming, kind, request, self.now)
            }
        };
        self.note(kind, verdict, &nonce, error.as_ref());
        self.show(kind);
        self.check_count()?;
        Ok(self.watches.get(&kind).map(|watch| &watch.subscription) != before.as_ref())
    }

    /// When a response has not been answered for so long that it counts. `None`: none is on its way, or all were counted.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        let open = self.watches.values().filter_map(|watch| watch.ack.open());
        open.filter(|open| !open.overdue).map(|open| open.at + OVERDUE).min()
    }

    pub(crate) fn count_overdue(&mut self) {
        let now = Instant::now();
        for (&kind, watch) in &mut self.watches {
            if let Some(open) = watch.ack.open_mut().filter(|open| !open.overdue && open.at + OVERDUE <= now) {
                open.overdue = true;
                self.shared.metrics.expired(kind);
            }
        }
    }

    /// The next response in push order.
    pub(crate) fn next(&mut self) -> Result<Next, Refusal> {
        let began = time::Instant::now();
        let next = self.look();
        let stages = self.shared.metrics.stages();
        let encoding = std::mem::take(&mut self.encoding);
        stages.add_within(Stage::Serialization, encoding);
        stages.add_within(Stage::Delta, began.elapsed().saturating_sub(encoding));
        next
    }

    fn look(&mut self) -> Result<Next, Refusal> {
        let began = Instant::now();
        let late = self.remove_by.is_some_and(|by| by <= began);
        let next = self.next_at(began, late)?;
        let Some(by) = self.remove_by else { return Ok(next) };
        match next {
            Next::Response(response) => Ok(Next::Response(response)),
            waits if late || !self.names_may_change() => {
                self.remove_by = None;
                let Some(watch) = self.watches.get_mut(&TypeUrl::Cluster) else { return Ok(waits) };
                watch.retire();
                self.next_at(began, true)
            }
            Next::Nothing => Ok(Next::Held(by)),
            Next::Held(until) => Ok(Next::Held(until.min(by))),
        }
    }

    /// Listeners or routes are on their way that may stop naming a cluster.
    fn names_may_change(&self) -> bool {
        let mut watches = self.watches.iter().filter(|(kind, _)| kind.names_clusters());
        watches.any(|(_, watch)| watch.is_unsettled(&*self.class, self.now))
    }

    fn would_remove(&self) -> bool {
        self.watches.get(&TypeUrl::Cluster).is_some_and(|watch| watch.would_remove(&*self.class, self.now))
    }

    fn next_at(&mut self, began: Instant, late: bool) -> Result<Next, Refusal> {
        let careful = !late && self.would_remove() && self.names_may_change();
        let awaited = self.awaited(began);
        let mut held: Option<Instant> = None;
        for (&kind, watch) in &mut self.watches {
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
            let resumed = watch.resumed;
            let answer = watch.answer(self.variant, &*self.class, self.now, turn).map_err(|_| Refusal::Lost)?;
            if watch.is_retiring() {
                self.remove_by.get_or_insert(began + self.shared.options.removal_patience);
            }
            if let Some(answer) = answer {
                return self.response(kind, answer, began).map(Next::Response);
            }
            if resumed != watch.resumed {
                self.listed.show(kind, |shown| watch.show(shown));
            }
        }
        let until = held.into_iter().chain(awaited).min();
        Ok(until.map_or(Next::Nothing, Next::Held))
    }

    /// Until when listeners and routes wait for clusters that they may name.
    fn awaited(&mut self, now: Instant) -> Option<Instant> {
        let [clusters, endpoints] =
            [TypeUrl::Cluster, TypeUrl::Endpoints].map(|kind| self.watches.get(&kind).map(|watch| &**watch));
        let until = self.arrival.as_ref()?.awaited(clusters, endpoints, now);
        if until.is_none() {
            self.arrival = None;
        }
        until
    }

    fn response(&mut self, kind: TypeUrl, answer: Answer, began: Instant) -> Result<Response, Refusal> {
        let Answer { content, removed, version, fresh, open } = answer;
        let encoding = time::Instant::now();
        let (frame, nonce) = self.frame(kind, version, &content, &removed)?;
        self.encoding += encoding.elapsed();
        let (connection, sent, removed) = (self.listed.id(), content.resources().len(), removed.len());
        tracing::debug!(connection, kind = kind.short(), push = version, sent, removed, bytes = frame.len(), "pushed");
        self.shared.metrics.pushed(self.variant, kind, frame.len());
        let pushed = self.shared.journal.as_ref().filter(|_| open.began.is_some());
        let refresh = pushed.and_then(|journal| journal.sent(version)).unwrap_or_default();
        if let Some(watch) = self.watches.get_mut(&kind) {
            watch.ack.sent(nonce, version, open);
        }
        if kind == TypeUrl::Cluster {
            // At the start a proxy waits for all of its clusters by itself.
            if let (Fresh::Names(names), true) = (&fresh, self.watches.contains_key(&TypeUrl::Listener)) {
                self.arrival = Arrival::new(names.clone(), Instant::now());
            }
            self.warm(fresh);
        }
        self.show(kind);
        Ok(Response {
            frame,
            kind: Some(kind),
            began: began.checked_sub(refresh).unwrap_or(began),
            made: Instant::now(),
        })
    }

    /// Shared where possible, but a nonce is never that of the response before: an answer must say which it means.
    fn frame(
        &self,
        kind: TypeUrl,
        version: Seq,
        content: &Content,
        removed: &[Arc<str>],
    ) -> Result<(Frame, Arc<str>), Refusal> {
        if let Content::Shared(changes) = content {
            let whole = changes.whole(self.variant, kind, &self.shared.nonces, &self.shared.frames)?;
            let last = self.watches.get(&kind).and_then(|watch| watch.ack.last());
            if last.is_none_or(|last| last.nonce != whole.nonce) {
                let nonce = whole.nonce.clone();
                return Ok((Frame::shared(whole), nonce));
            }
        }
        let nonce = self.shared.nonces.next();
        let head = Head { kind, version, nonce: &nonce };
        Ok((Frame::own(&head, self.variant, content.resources(), removed)?, nonce))
    }

    /// A proxy that gets a cluster waits for its load assignment, even if it holds an equal one.
    fn warm(&mut self, fresh: Fresh) {
        if let Some(endpoints) = self.watches.get_mut(&TypeUrl::Endpoints) {
            endpoints.warm(&fresh);
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
                (Verdict::Accepted(_), Some(arrival)) => arrival.accepted(Instant::now()),
                (Verdict::Refused(_), arrival) => *arrival = None,
                _ => {}
            }
        }
        match verdict {
            Verdict::Stale => metrics.expired(kind),
            Verdict::Accepted(Open { began, .. }) => {
                self.refusing.remove(&kind);
                if let Some(began) = began {
                    metrics.converged(began.elapsed());
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

    fn show(&self, kind: TypeUrl) {
        match self.watches.get(&kind) {
            Some(watch) => self.listed.show(kind, |shown| watch.show(shown)),
            None => self.listed.hide(kind),
        }
    }

    fn check_count(&self) -> Result<(), Refusal> {
        let count = self.watches.values().map(|watch| watch.subscription.names().len()).sum();
        let limit = self.shared.options.max_names;
        if count > limit { Err(Refusal::TooManyNames { count, limit }) } else { Ok(()) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        tracing::debug!(connection = self.listed.id(), "proxy disconnected");
    }
}

impl Request {
    pub(crate) fn decode(variant: Variant, message: bytes::Bytes) -> Result<Request, Refusal> {
        let request = match variant {
            Variant::Sotw => DiscoveryRequest::decode(message).map(Request::Sotw),
            Variant::Delta => DeltaDiscoveryRequest::decode(message).map(Request::Delta),
        };
        request.map_err(|error| Refusal::Malformed(error.to_string()))
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        match self {
            Request::Sotw(request) => request.node.as_ref(),
            Request::Delta(request) => request.node.as_ref(),
        }
    }

    /// A report on the workload's health, which may come before the first request proper.
    pub(crate) fn is_health(&self) -> bool {
        Target::of(self.type_url()) == Target::Health
    }

    /// A question about the server itself.
    pub(crate) fn is_debug(&self) -> bool {
        Target::of(self.type_url()) == Target::Debug
    }

    /// What is asked for by name.
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Request::Sotw(request) => &request.resource_names,
            Request::Delta(request) => &request.resource_names_subscribe,
        }
    }

    pub(crate) fn type_url(&self) -> &str {
        match self {
            Request::Sotw(request) => &request.type_url,
            Request::Delta(request) => &request.type_url,
        }
    }

    pub(crate) fn nonce(&self) -> &str {
        match self {
            Request::Sotw(request) => &request.response_nonce,
            Request::Delta(request) => &request.response_nonce,
        }
    }

    fn error(&self) -> Option<&rpc::Status> {
        match self {
            Request::Sotw(request) => request.error_detail.as_ref(),
            Request::Delta(request) => request.error_detail.as_ref(),
        }
    }
}

/// What a type URL asks for.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Kind(TypeUrl),
    Health,
    Debug,
    /// Not answered, as istiod does.
    Unknown,
}

impl Target {
    fn of(url: &str) -> Target {
        match TypeUrl::from_url(url) {
            Some(kind) => Target::Kind(kind),
            None if url == "type.googleapis.com/istio.v1.HealthInformation" => Target::Health,
            None if url == "istio.io/debug" || url.starts_with("istio.io/debug/") => Target::Debug,
            None => Target::Unknown,
        }
    }
}
