//! One stream after its first message: requests go in, responses come out. No IO; the clock only for the order of a
//! push.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::SystemTime};

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
    Class, Connection, Joined, ProxyInfo, Seq, TypeUrl, Variant,
    ack::{Open, Verdict},
    connections::Listed,
    delta::{self, Warming},
    frame::{Frame, Head},
    metrics::{Connected, Refusing},
    nack::Nack,
    order::PATIENCE,
    outbound::Response,
    refusal::{Refusal, code_label},
    request::{check_names, first_node, reason},
    server::Shared,
    sotw,
    watch::{Answer, Fresh, Turn, Watch},
};

pub(crate) struct Session {
    shared: Arc<Shared>,
    variant: Variant,
    class: Arc<dyn Class>,
    proxy: Arc<ProxyInfo>,
    watches: BTreeMap<TypeUrl, Watch>,
    warming: Warming,
    refusing: BTreeMap<TypeUrl, Option<Refusing>>,
    /// The newest sequence that this stream has heard of.
    now: Seq,
    listed: Listed,
    _connected: Connected,
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
        variant: Variant,
        node: Option<&Node>,
    ) -> Result<Session, Refusal> {
        let node = first_node(node)?;
        let Joined { class, proxy } = shared.provider.join(node).map_err(|refused| Refusal::Node(refused.0))?;
        let proxy = Arc::new(proxy);
        let listed = shared.connections.add(Connection {
            id: String::new(),
            node_id: node.id.clone(),
            proxy: proxy.clone(),
            metadata: node.metadata.as_ref().map(|metadata| metadata.encode_to_vec().into()).unwrap_or_default(),
            connected_at: SystemTime::now(),
            address,
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
            refusing: BTreeMap::new(),
            now: 0,
            listed,
        })
    }

    pub(crate) fn heard(&mut self, now: Seq) {
        self.now = self.now.max(now);
    }

    /// Every response was answered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.watches.values().all(|watch| watch.ack.open().is_none())
    }

    pub(crate) fn request(&mut self, request: Request) -> Result<(), Refusal> {
        let kind = match Target::of(request.type_url()) {
            Target::Kind(kind) => kind,
            Target::Debug => return Err(Refusal::Debug(request.type_url().chars().take(64).collect())),
            Target::Health | Target::Unknown => {
                tracing::debug!(connection = self.listed.id(), "request of a type that is not served");
                return Ok(());
            }
        };
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
        self.check_count()
    }

    /// The next response in push order.
    pub(crate) fn next(&mut self) -> Result<Next, Refusal> {
        let began = Instant::now();
        let mut held: Option<Instant> = None;
        for (&kind, watch) in &mut self.watches {
            if let Some(open) = watch.ack.open() {
                let until = open.at + PATIENCE;
                if kind.leads() && until > began && watch.behind(&*self.class, self.now) {
                    held = Some(held.map_or(until, |held| held.min(until)));
                }
                continue;
            }
            let turn = if held.is_some() && kind.follows() { Turn::Held } else { Turn::Free };
            let resumed = watch.resumed;
            let answer = watch.answer(self.variant, &*self.class, self.now, turn);
            if let Some(answer) = answer.map_err(|_| Refusal::Lost)? {
                return self.response(kind, answer, began).map(Next::Response);
            }
            if resumed != watch.resumed {
                self.listed.show(watch.shown());
            }
        }
        Ok(held.map_or(Next::Nothing, Next::Held))
    }

    fn response(&mut self, kind: TypeUrl, answer: Answer, began: Instant) -> Result<Response, Refusal> {
        let Answer { resources, removed, version, fresh, open } = answer;
        let nonce = self.shared.nonces.next();
        let head = Head { kind, version, nonce: &nonce };
        let frame = match self.variant {
            Variant::Sotw => Frame::sotw(&head, &resources)?,
            Variant::Delta => Frame::delta(&head, &resources, &removed)?,
        };
        let (connection, sent, removed) = (self.listed.id(), resources.len(), removed.len());
        tracing::debug!(connection, kind = kind.short(), version, sent, removed, bytes = frame.len(), "pushed");
        self.shared.metrics.pushed(self.variant, kind, frame.len());
        if let Some(watch) = self.watches.get_mut(&kind) {
            watch.ack.sent(nonce, version, open);
        }
        if kind == TypeUrl::Cluster {
            self.warm(fresh);
        }
        self.show(kind);
        Ok(Response { frame, kind, began, made: Instant::now() })
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
                let nack = Nack { proxy: self.listed.id(), kind, nonce, reason: &reason, resources: &open.resources };
                self.shared.nacks.tell(&nack);
            }
            Verdict::Silent | Verdict::Repeated if error.is_some() => metrics.rejected(kind),
            Verdict::Silent | Verdict::Repeated => {}
        }
    }

    fn show(&self, kind: TypeUrl) {
        match self.watches.get(&kind) {
            Some(watch) => self.listed.show(watch.shown()),
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

    fn type_url(&self) -> &str {
        match self {
            Request::Sotw(request) => &request.type_url,
            Request::Delta(request) => &request.type_url,
        }
    }

    fn nonce(&self) -> &str {
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
