//! One ADS call: polls requests, notifications, room to write and deadlines in the turns of its stream. What to send is decided in `session`.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{self, Duration},
};

use http2::{RequestBody, clock};
use tokio::time::{Instant, Sleep, sleep};

use crate::{
    DebugHandler, Variant,
    protocol::{request::Request, session::NAMES_PER_CHANGE},
    server::{
        Shared,
        admission::AdmittedStream,
        authenticator::AuthenticatedCaller,
        byte_budget::ConnectionBytes,
        connection_close::{CloseRequest, StreamClose},
        debug_responder::DebugResponder,
        debug_stream::DebugStream,
        inbound::Inbound,
        outbound::{Outbound, Progress},
        session::{Next, Session},
        stream_error::StreamError,
        timer::DeadlineTimer,
        token_bucket::TokenBucket,
    },
};

/// Requests of one stream that are read in one turn, before other streams have theirs.
const REQUESTS_PER_TURN: usize = 32;
/// For a proxy to read what is left of a response when its call has ended.
const ENDED_GRACE: Duration = Duration::from_secs(10);

/// The start parameters of a stream.
pub(crate) struct StreamStart {
    pub(crate) shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
    /// `None`: the port has no authentication.
    pub(crate) authenticated: Option<AuthenticatedCaller>,
    pub(crate) variant: Variant,
    pub(crate) body: RequestBody,
    pub(crate) admitted: AdmittedStream,
    pub(crate) close: StreamClose,
    pub(crate) account: Arc<ConnectionBytes>,
    /// `None`: debug requests are rejected.
    pub(crate) debug_handler: Option<Arc<dyn DebugHandler>>,
}

/// A call and its phase, in one allocation and polled by hand: there are many streams, each is polled with every push, and each further
/// allocation is a further cache miss. An endpoint that 1,000 proxies see took 28.8 ms of CPU before, and 23.0 with this and one reading of
/// the clock for each turn.
pub(crate) struct AdsStream {
    pub(crate) call: Call,
    phase: Phase,
}

#[expect(clippy::large_enum_variant, reason = "nearly all calls are those of proxies, for nearly all of their time")]
enum Phase {
    First(Box<FirstRequest>),
    Proxy(Session, AdmittedStream),
    Debug(Box<DebugStream>),
    Over,
}

/// What is needed until the first request has arrived.
struct FirstRequest {
    authenticated: Option<AuthenticatedCaller>,
    admitted: Option<AdmittedStream>,
    debug_handler: Option<Arc<dyn DebugHandler>>,
    /// `None`: it was not polled yet.
    wait: Option<Wait>,
}

enum Wait {
    /// For the rate limit of new streams.
    RateLimit(Pin<Box<Sleep>>),
    /// For a request, until the timeout.
    Request(Pin<Box<Sleep>>),
}

pub(crate) struct Call {
    address: SocketAddr,
    /// The rate limit of its subscription changes.
    changes: TokenBucket,
    /// Until when its requests are not read because of that limit.
    pause: Option<Instant>,
    /// When to ask the session again although nothing happened.
    send_at: Option<Instant>,
    /// When to stop, with responses ACKed or not.
    end: Option<Instant>,
    /// When to stop because the workload of the proxy is gone.
    zombie_at: Option<Instant>,
    /// For the earliest of these times.
    timer: DeadlineTimer,
    pub(crate) close: StreamClose,
    pub(crate) requests: Requests,
    pub(crate) out: Outbound,
    /// When the oldest notification came that was not handled yet.
    notified_at: Option<time::Instant>,
    /// There may be something to send.
    may_send: bool,
}

impl Wait {
    /// A timer fires a millisecond late, however short it is: a stream that need not wait has none.
    fn rate_limit(wait: Duration, timeout: Duration) -> Wait {
        if wait.is_zero() { Wait::request(timeout) } else { Wait::RateLimit(Box::pin(sleep(wait))) }
    }

    fn request(timeout: Duration) -> Wait {
        Wait::Request(Box::pin(sleep(timeout)))
    }
}

impl AdsStream {
    pub(crate) fn new(start: StreamStart) -> AdsStream {
        let StreamStart { shared, address, authenticated, variant, body, admitted, close, account, debug_handler } =
            start;
        shared.metrics.call_started(variant);
        let rate = shared.options.subscription_changes_per_second;
        let inbound = Inbound::new(body, shared.options.messages(), account);
        let call = Call {
            out: Outbound::new(shared.metrics.clone()),
            requests: Requests { shared, variant, inbound },
            close,
            timer: DeadlineTimer::default(),
            notified_at: None,
            changes: TokenBucket::new(rate, rate.saturating_mul(10)),
            pause: None,
            may_send: true,
            send_at: None,
            end: None,
            zombie_at: None,
            address,
        };
        let first = FirstRequest { authenticated, admitted: Some(admitted), debug_handler, wait: None };
        AdsStream { call, phase: Phase::First(Box::new(first)) }
    }

    /// Ready: the call has ended, except for what is still to be written.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let AdsStream { call, phase } = self;
        let error = loop {
            match phase {
                Phase::First(first) => match ready!(call.poll_first(first, cx)) {
                    Ok(request) => match call.open(first, request) {
                        Ok(next) => *phase = next,
                        Err(error) => break error,
                    },
                    Err(error) => break error,
                },
                Phase::Proxy(session, _) => break ready!(call.poll_proxy(session, cx)),
                Phase::Debug(debug) => break ready!(debug.poll(call, cx)),
                Phase::Over => {
                    call.poll_ended(cx);
                    return Poll::Ready(());
                }
            }
        };
        if let Phase::Proxy(session, admitted) = std::mem::replace(phase, Phase::Over) {
            call.release(session, admitted);
        }
        call.finish(error);
        call.poll_ended(cx);
        Poll::Ready(())
    }

    /// It panicked.
    pub(crate) fn fail(&mut self) {
        self.phase = Phase::Over;
        self.call.out.fail();
    }
}

impl Call {
    fn poll_first(&mut self, first: &mut FirstRequest, cx: &mut Context<'_>) -> Poll<Result<Request, StreamError>> {
        let timeout = self.requests.shared.options.first_request;
        loop {
            match &mut first.wait {
                None => first.wait = Some(Wait::rate_limit(self.requests.shared.admission.reserve()?, timeout)),
                Some(Wait::RateLimit(wait)) => {
                    ready!(wait.as_mut().poll(cx));
                    first.wait = Some(Wait::request(timeout));
                }
                Some(Wait::Request(late)) => {
                    while let Poll::Ready(request) = self.requests.poll_next(cx) {
                        // A health report may come before.
                        if !request.as_ref().is_ok_and(Request::is_health) {
                            return Poll::Ready(request);
                        }
                    }
                    return match self.out.progress() {
                        Progress::Closed => Poll::Ready(Err(StreamError::Cancelled)),
                        _ if self.close.deadline().is_some() => Poll::Ready(Err(StreamError::Closing)),
                        _ => late.as_mut().poll(cx).map(|()| Err(StreamError::NoRequest(timeout.as_secs()))),
                    };
                }
            }
        }
    }

    fn open(&mut self, first: &mut FirstRequest, mut request: Request) -> Result<Phase, StreamError> {
        let authenticated = first.authenticated.take();
        if request.is_debug() {
            let responder = DebugResponder::new(first.debug_handler.take(), authenticated);
            return Ok(Phase::Debug(Box::new(DebugStream::new(self, responder, request))));
        }
        let (shared, variant) = (&self.requests.shared, self.requests.variant);
        let (authenticated, account) = (authenticated.as_ref(), self.requests.inbound.account());
        let mut session = Session::open(shared, self.address, authenticated, variant, request.node_mut(), account)?;
        self.out.set_permit(session.push_permit());
        let admitted = first.admitted.take().expect("a call is opened once");
        match session.on_request(request, account) {
            Ok(_) => Ok(Phase::Proxy(session, admitted)),
            Err(error) => {
                self.release(session, admitted);
                Err(error)
            }
        }
    }

    /// Drops the state of a proxy.
    fn release(&self, session: Session, admitted: AdmittedStream) {
        let ended = time::Instant::now();
        drop((session, admitted));
        self.requests.shared.metrics.record_destroy_time(ended.elapsed());
    }

    fn finish(&mut self, error: StreamError) {
        let address = self.address;
        let metrics = &self.requests.shared.metrics;
        match error {
            StreamError::WorkloadGone => metrics.zombies(1),
            StreamError::TooSlow(_) => {
                metrics.write_timed_out();
                self.close.request(CloseRequest::Abort);
            }
            // On the same connection it would come back to this instance.
            StreamError::ReconnectRequested => self.close.request(CloseRequest::Graceful),
            _ => {}
        }
        tracing::debug!(%address, code = error.code().label(), reason = %error, "stream ended");
        metrics.call_ended(self.requests.variant, error.code());
        self.end = Some(Instant::now() + ENDED_GRACE);
        self.out.end(error);
    }

    /// What is left to be written after the end of the call has a deadline too.
    fn poll_ended(&mut self, cx: &mut Context<'_>) {
        if let Some(end) = self.end.filter(|_| !self.out.is_over())
            && self.timer.poll(end, cx).is_ready()
        {
            self.close.request(CloseRequest::Abort);
        }
    }

    /// Ready: the response that is being written was not read in time.
    pub(crate) fn poll_unread(&mut self, cx: &mut Context<'_>) -> Poll<StreamError> {
        let Progress::Writing(since) = self.out.progress() else { return Poll::Pending };
        let read_timeout = self.requests.shared.options.read_timeout;
        self.timer.poll(since + read_timeout, cx).map(|()| StreamError::TooSlow(read_timeout.as_secs()))
    }

    fn poll_proxy(&mut self, session: &mut Session, cx: &mut Context<'_>) -> Poll<StreamError> {
        if self.end.is_none() && self.close.deadline().is_some() {
            self.end = self.close.deadline();
            self.out.release_turn();
        }
        match self.poll_events(session, cx) {
            Err(error) => Poll::Ready(error),
            Ok(()) if self.end.is_some() && session.is_fully_answered() => Poll::Ready(StreamError::Closing),
            Ok(()) => Poll::Pending,
        }
    }

    /// Handles everything that has happened. Requests come first: they change the subscription and ACK responses. A response is
    /// encoded only when there is room for it and a permit to write it, so that it is never older than the moment of its writing.
    fn poll_events(&mut self, session: &mut Session, cx: &mut Context<'_>) -> Result<(), StreamError> {
        loop {
            self.poll_requests(session, cx)?;
            let progress = self.out.progress();
            if progress == Progress::Closed {
                return Err(StreamError::Cancelled);
            }
            if let Poll::Ready(notification) = session.notifier.poll_notified(cx) {
                if notification.end_requested {
                    return Err(StreamError::ReconnectRequested);
                }
                let grace = self.requests.shared.options.workload_gone_grace;
                self.zombie_at = notification.workload_gone_since.map(|since| since + grace);
                self.notified_at.get_or_insert(notification.at);
                self.may_send = true;
                session.on_notification(notification);
            }
            if self.may_send && self.end.is_none() && self.out.poll_turn(cx).is_ready() {
                self.send_next(session)?;
                continue;
            }
            if self.poll_timer(session, progress, cx)?.is_pending() {
                return Ok(());
            }
        }
    }

    fn poll_requests(&mut self, session: &mut Session, cx: &mut Context<'_>) -> Result<(), StreamError> {
        for _ in 0..REQUESTS_PER_TURN {
            if self.pause.is_some() {
                return Ok(());
            }
            let Poll::Ready(request) = self.requests.poll_next(cx) else { return Ok(()) };
            let names = session.on_request(request?, self.requests.inbound.account())?;
            self.pause = names.and_then(|names| self.rate_limit(names));
            // Mostly it is the ACK of the only response of a push.
            self.may_send |= session.has_more();
            if !self.may_send {
                session.record_completed_pushes();
            }
        }
        // There may be more. The other streams of the thread have their turn first.
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// The stream may be written to.
    fn send_next(&mut self, session: &mut Session) -> Result<(), StreamError> {
        if let Some(notified_at) = self.notified_at.take() {
            session.record_queue_time(clock::now().into_std().saturating_duration_since(notified_at));
        }
        match session.next(self.requests.account())? {
            Next::Response(response) => {
                self.may_send = session.has_more();
                self.out.send(response);
                return Ok(());
            }
            Next::Idle => {
                (self.may_send, self.send_at) = (false, None);
                session.record_completed_pushes();
            }
            Next::WaitUntil(until) => (self.may_send, self.send_at) = (false, Some(until)),
        }
        self.out.release_turn();
        Ok(())
    }

    /// Ready: a deadline has passed.
    fn poll_timer(
        &mut self,
        session: &mut Session,
        progress: Progress,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, StreamError> {
        let read_timeout = self.requests.shared.options.read_timeout;
        let too_slow = match progress {
            Progress::Writing(since) => Some(since + read_timeout),
            Progress::Free | Progress::Closed => None,
        };
        let (overdue, counts_at) = (session.overdue_at(), self.out.counts_at());
        let times = [self.pause, self.send_at, overdue, self.end, counts_at, too_slow, self.zombie_at];
        let Some(first) = times.into_iter().flatten().min() else { return Ok(Poll::Pending) };
        if self.timer.poll(first, cx).is_pending() {
            return Ok(Poll::Pending);
        }
        clock::refresh();
        let now = clock::now();
        let has_passed = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if has_passed(self.pause) {
            self.pause = None;
        }
        if has_passed(self.send_at) {
            (self.may_send, self.send_at) = (true, None);
        }
        if has_passed(overdue) {
            session.count_overdue();
        }
        if has_passed(self.end) {
            return Err(StreamError::Closing);
        }
        if has_passed(counts_at) {
            self.out.count_unread(self.requests.account())?;
        }
        if has_passed(too_slow) {
            return Err(StreamError::TooSlow(read_timeout.as_secs()));
        }
        if has_passed(self.zombie_at) {
            return Err(StreamError::WorkloadGone);
        }
        Ok(Poll::Ready(()))
    }

    /// Called after a request that is rate-limited. Until when the stream waits with the next; `None`: it is within the limit.
    /// `names`: that were read for it.
    pub(crate) fn rate_limit(&mut self, names: usize) -> Option<Instant> {
        let now = clock::now();
        let cost = 1 + names / NAMES_PER_CHANGE;
        let wait = self.changes.take_within(now, cost, Duration::MAX).filter(|wait| !wait.is_zero())?;
        Some(now + wait)
    }
}

pub(crate) struct Requests {
    pub(crate) shared: Arc<Shared>,
    pub(crate) variant: Variant,
    inbound: Inbound<RequestBody>,
}

impl Requests {
    pub(crate) fn account(&self) -> &Arc<ConnectionBytes> {
        self.inbound.account()
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, StreamError>> {
        let message = ready!(self.inbound.poll_next(cx))?;
        self.shared.metrics.record_request(self.variant, message.len());
        Poll::Ready(Request::decode(self.variant, &message, self.shared.options.max_names).map_err(StreamError::from))
    }
}
