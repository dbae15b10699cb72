//! A protocol session on the server: what the protocol decides is encoded, logged, counted and shown in the table of streams. No IO.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http2::clock;
use prost::Message;
use tokio::time::Instant;
use wire::{envoy::config::core::v3::Node, google::rpc};

use crate::{
    Connection, Membership, NackReport, NodeError, Notification, Notifier, Seq, Stage, TypeUrl, Variant,
    encoding::grpc_message::{GrpcMessage, MessageTooLarge, ResponseHead},
    protocol::{
        ack::{AckOutcome, Content, SentResponse},
        names::Charge,
        node::{detached_node, first_node, is_same_node, sort_metadata},
        request::{Request, Target, nack_reason},
        request_error::RequestError,
        session as protocol,
        watch::{HistoryLost, NextResponse},
        watches::Watches,
    },
    server::{
        Shared,
        authenticator::AuthenticatedCaller,
        byte_budget::{ConnectionBytes, network},
        connections::Registration,
        metrics::{ConnectedGuard, RejectGuard},
        nack::Nack,
        outbound::OutboundResponse,
        stage::Timed,
        stream_error::{StreamError, code_label},
        throttle::PushPermit,
    },
};

/// A node that is no longer than this costs no more than its stream.
const USUAL_NODE: usize = 16 << 10;
/// To encode a longer response takes so long that the cached clock is read again.
const LONG: usize = 64 << 10;

pub(crate) struct Session {
    shared: Arc<Shared>,
    registration: Registration,
    pub(crate) notifier: Arc<Notifier>,
    protocol: protocol::Session,
    /// The first node, if later ones must be equal.
    node: Option<Box<Node>>,
    rejects: BTreeMap<TypeUrl, Option<RejectGuard>>,
    /// For what its node has beyond the usual length.
    _node_bytes: Option<Charge>,
    _connected: ConnectedGuard,
}

pub(crate) enum Next {
    Response(OutboundResponse),
    /// Nothing to send until something happens.
    Idle,
    /// There is something, but it may not be sent out of order before this.
    WaitUntil(Instant),
}

impl Session {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        address: SocketAddr,
        authenticated: Option<&AuthenticatedCaller>,
        variant: Variant,
        node: Option<&mut Node>,
        account: &ConnectionBytes,
    ) -> Result<Session, StreamError> {
        let node = first_node(node)?;
        let long = node.encoded_len().saturating_sub(USUAL_NODE);
        let node_bytes = (long > 0).then(|| account.keep(long)).transpose()?;
        sort_metadata(node)?;
        let node = &*node;
        let first_node = shared.options.strict_nodes.then(|| Box::new(detached_node(node)));
        let caller = authenticated.map(|authenticated| &authenticated.caller);
        // The first proxy of a class waits until the class is computed.
        let membership = shared
            .metrics
            .stages()
            .run_long(Stage::PushContext, || shared.provider.join_as(caller, network(address.ip()), variant, node));
        let membership = membership.map_err(|error| node_error(error, authenticated, node))?;
        let Membership { class, proxy, notifier } = membership;
        let proxy = Arc::new(proxy);
        let connection = Connection {
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
        let registration = shared.connections.add(connection, notifier.clone());
        tracing::debug!(connection = registration.id(), %address, ?variant, version = proxy.version, "proxy connected");
        Ok(Session {
            _connected: shared.metrics.connect(&proxy.version),
            shared: shared.clone(),
            rejects: BTreeMap::new(),
            protocol: protocol::Session::new(class, proxy, variant, notifier.seq())
                .bisecting(shared.options.bisect_nacks),
            notifier,
            registration,
            node: first_node,
            _node_bytes: node_bytes,
        })
    }

    pub(crate) fn push_permit(&self) -> PushPermit {
        self.shared.throttle.permit(&self.protocol.proxy().namespace)
    }

    /// How long changes waited until the stream could be written to.
    pub(crate) fn record_queue_time(&self, waited: Duration) {
        self.shared.metrics.record_queue_time(waited);
    }

    pub(crate) fn on_notification(&mut self, notification: Notification) {
        let Notification { seq, kinds, pushes, .. } = notification;
        self.protocol.on_notification(seq, kinds, pushes);
    }

    /// Called when there is nothing to send.
    pub(crate) fn record_completed_pushes(&mut self) {
        for seq in self.protocol.take_completed_pushes() {
            if let Some(journal) = &self.shared.journal {
                journal.record_done(seq);
            }
        }
    }

    /// Whether there may be something to send before anything happens.
    pub(crate) fn has_more(&self) -> bool {
        self.protocol.has_more()
    }

    /// Every response was ACKed or NACKed.
    pub(crate) fn is_fully_answered(&self) -> bool {
        self.protocol.is_fully_answered()
    }

    /// `Some`: the request is rate-limited. The number of names that were read for it.
    pub(crate) fn on_request(
        &mut self,
        request: Request,
        account: &ConnectionBytes,
    ) -> Result<Option<usize>, StreamError> {
        let timed = Timed::begin();
        let names = self.handle(request, account);
        timed.end(Stage::Ack, self.shared.metrics.stages());
        names
    }

    fn handle(&mut self, mut request: Request, account: &ConnectionBytes) -> Result<Option<usize>, StreamError> {
        if let (Some(first), Some(node)) = (&self.node, request.node())
            && !is_same_node(first, node)?
        {
            let why = "the node of a stream may not change; open another stream";
            return Err(RequestError::InvalidNode(why.to_owned()).into());
        }
        let kind = match Target::of(request.type_url()) {
            Target::Kind(kind) => kind,
            Target::Debug => {
                return Err(RequestError::UnexpectedType(request.type_url().chars().take(64).collect()).into());
            }
            Target::Health | Target::Unknown => {
                tracing::debug!(connection = self.registration.id(), "request of a type that is not served");
                return Ok(None);
            }
        };
        let (now, max_names) = (clock::now().into_std(), self.shared.options.max_names);
        request.lists.initial_versions.charge(|bytes| account.keep_until_reply(bytes))?;
        let entry = self.registration.entry();
        let mut watches = entry.watches();
        let handled = self.protocol.on_request(&mut watches, kind, &mut request, max_names, now)?;
        let changed = handled.names.as_ref().is_ok_and(Option::is_some);
        let names = watches.get(kind).filter(|_| changed).map(|watch| watch.subscription.names().clone());
        drop(watches);
        self.shared.connections.count_change();
        self.record_ack(kind, &handled.outcome, request.nonce(), request.error());
        if let Some(names) = names {
            names.charge(|bytes| account.keep(bytes))?;
        }
        Ok(handled.names?)
    }

    /// When an outstanding response is overdue. `None`: none is outstanding, or all were counted.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        self.protocol.overdue_at().map(Instant::from_std)
    }

    pub(crate) fn count_overdue(&mut self) {
        let entry = self.registration.entry();
        let overdue = self.protocol.take_overdue(&mut entry.watches(), clock::now().into_std());
        overdue.iter().for_each(|kind| self.shared.metrics.count_expired_nonce(kind));
    }

    /// The next response in push order.
    pub(crate) fn next(&mut self, account: &ConnectionBytes) -> Result<Next, StreamError> {
        let timed = Timed::begin();
        let next = self.encode_next(account);
        timed.end(Stage::Delta, self.shared.metrics.stages());
        next
    }

    fn encode_next(&mut self, account: &ConnectionBytes) -> Result<Next, StreamError> {
        let entry = self.registration.entry();
        let watches = &mut *entry.watches();
        let started_at = clock::now();
        let grace = self.shared.options.removal_grace;
        let next = self.protocol.next(watches, grace, started_at.into_std());
        match next.map_err(|HistoryLost| StreamError::HistoryLost)? {
            protocol::Next::Response(kind, mut response) => {
                let own = response.content.own_bytes(self.protocol.variant());
                if own > LONG {
                    response.outstanding.charge = Some(account.keep_until_reply(own)?);
                }
                self.encode(watches, kind, response, started_at).map(Next::Response)
            }
            protocol::Next::Idle => Ok(Next::Idle),
            protocol::Next::WaitUntil(until) => Ok(Next::WaitUntil(Instant::from_std(until))),
        }
    }

    fn encode(
        &mut self,
        watches: &mut Watches,
        kind: TypeUrl,
        response: NextResponse,
        started_at: Instant,
    ) -> Result<OutboundResponse, StreamError> {
        let timed = Timed::begin();
        let last = watches.get(kind).and_then(|watch| watch.ack.last());
        let encoded = self.message(kind, response.version, &response.content, &response.removed, last);
        timed.end(Stage::Serialization, self.shared.metrics.stages());
        let (message, nonce) = encoded?;
        if message.len() > LONG {
            clock::refresh();
        }
        let encoded_at = clock::now();
        let refresh = self.record_push(kind, &response, message.len());
        self.protocol.on_sent(watches, kind, nonce, response, encoded_at.into_std());
        let started_at = started_at.checked_sub(refresh).unwrap_or(started_at);
        Ok(OutboundResponse { message, kind: Some(kind), started_at, encoded_at, held: None })
    }

    /// Returns how long the refresh took that the response waited for.
    fn record_push(&self, kind: TypeUrl, response: &NextResponse, bytes: usize) -> Duration {
        let (connection, version) = (self.registration.id(), response.version);
        let (sent, removed) = (response.content.resources().len(), response.removed.len());
        tracing::debug!(connection, kind = kind.short(), push = version, sent, removed, bytes, "pushed");
        self.shared.metrics.record_push(self.protocol.variant(), kind, bytes);
        let journal = self.shared.journal.as_ref().filter(|_| response.outstanding.changed_at.is_some());
        journal.and_then(|journal| journal.record_sent(version)).unwrap_or_default()
    }

    /// Shared where possible, but a nonce is never that of the previous response: an ACK must identify its response.
    fn message(
        &self,
        kind: TypeUrl,
        version: Seq,
        content: &Content,
        removed: &[Arc<str>],
        last: Option<&SentResponse>,
    ) -> Result<(GrpcMessage, Arc<str>), MessageTooLarge> {
        let (Shared { nonces, responses, .. }, variant) = (&*self.shared, self.protocol.variant());
        let shared = match content {
            Content::Shared(changes) => Some(responses.of_changes(changes, variant, kind, nonces)?),
            // Load assignments of clusters that were just sent. Secrets must not be cached for others.
            Content::Own(resources) if removed.is_empty() && kind == TypeUrl::Endpoints => {
                responses.small(variant, kind, version, resources, nonces)?
            }
            Content::Own(_) => None,
        };
        if let Some(shared) = shared.filter(|shared| last.is_none_or(|last| last.nonce != shared.nonce)) {
            let nonce = shared.nonce.clone();
            return Ok((GrpcMessage::shared(shared), nonce));
        }
        let nonce = nonces.next();
        let head = ResponseHead { kind, version, nonce: &nonce };
        Ok((GrpcMessage::own(&head, variant, content.resources(), removed)?, nonce))
    }

    fn record_ack(&mut self, kind: TypeUrl, outcome: &AckOutcome, nonce: &str, error: Option<&rpc::Status>) {
        let metrics = &self.shared.metrics;
        if let (Some(journal), AckOutcome::Ack(response) | AckOutcome::Nack(response)) = (&self.shared.journal, outcome)
            && response.changed_at.is_some()
        {
            journal.record_answer(response.content_seq, matches!(outcome, AckOutcome::Ack(_)));
        }
        match outcome {
            AckOutcome::StaleNonce => metrics.count_expired_nonce(kind),
            AckOutcome::Ack(response) => {
                self.rejects.remove(&kind);
                if let Some(changed_at) = response.changed_at {
                    metrics.record_convergence(clock::now().into_std().saturating_duration_since(changed_at));
                }
            }
            AckOutcome::Nack(response) => {
                metrics.count_reject(kind);
                let code = code_label(error.map_or(0, |error| error.code));
                self.rejects.remove(&kind);
                self.rejects.insert(kind, metrics.start_reject(kind, &self.protocol.proxy().id, code));
                let reason = nack_reason(error).unwrap_or_default();
                let (proxy, resources) = (self.registration.id(), response.content.resources());
                self.shared.nack_log.log(&Nack { proxy, kind, nonce, reason: &reason, resources });
                let position = self.registration.entry().watches().get(kind).map_or(0, |watch| watch.ack.position());
                let (class, variant) = (self.protocol.class(), self.protocol.variant());
                self.shared.provider.record_nack(&NackReport { class, variant, kind, reason, resources, position });
            }
            AckOutcome::NoNonce | AckOutcome::Repeated if error.is_some() => metrics.count_reject(kind),
            AckOutcome::NoNonce | AckOutcome::Repeated => {}
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        tracing::debug!(connection = self.registration.id(), "proxy disconnected");
    }
}

fn node_error(error: NodeError, authenticated: Option<&AuthenticatedCaller>, node: &Node) -> StreamError {
    match error {
        NodeError::Invalid(why) => RequestError::InvalidNode(why).into(),
        NodeError::Denied(why) => {
            if let Some(AuthenticatedCaller { caller, authenticator }) = authenticated {
                authenticator.on_denied(caller, node, &why);
            }
            StreamError::Denied(why)
        }
        NodeError::TooManyClasses(why) => StreamError::TooManyClasses(why),
    }
}
