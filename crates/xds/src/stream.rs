//! The task of one call: looks at requests, news, room to write and the end, in the turns of its stream. What to say is decided in `session`.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{self, Duration},
};

use http2::{Incoming, clock};
use tokio::time::{Instant, Sleep, sleep};

use crate::{
    Inspect, Variant,
    admission::{Admitted, Bucket},
    alarm::Alarm,
    closing::{Bound, Wish},
    door::Entered,
    inbound::Inbound,
    inspection::Inspection,
    outbound::{Outbound, Progress},
    questions::Questions,
    refusal::Refusal,
    requested::Request,
    server::Shared,
    session::{Next, Session},
};

/// Requests of one stream that are read in one go, before other streams have their turn.
const REQUESTS: usize = 32;
/// A request for which so many names are looked at counts as two changes of the subscription.
pub(crate) const NAMES_PER_CHANGE: usize = 10_000;

/// What a call begins with.
pub(crate) struct Beginning {
    pub(crate) shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
    /// `None`: the port asks nobody.
    pub(crate) entered: Option<Entered>,
    pub(crate) variant: Variant,
    pub(crate) body: Incoming,
    pub(crate) admitted: Admitted,
    /// Between it and its connection.
    pub(crate) closing: Bound,
    /// `None`: nobody answers questions about the server itself here.
    pub(crate) inspect: Option<Arc<dyn Inspect>>,
}

/// A call and how far it is. All of it lies together: there are many, each is looked at with every push, and what lies apart is fetched apart.
pub(crate) struct Talk {
    pub(crate) call: Call,
    phase: Phase,
}

#[expect(clippy::large_enum_variant, reason = "nearly all calls are those of proxies, for nearly all of their time")]
enum Phase {
    First(Box<First>),
    Proxy(Session, Admitted),
    Questions(Box<Questions>),
    Over,
}

/// What is needed until the first request has come.
struct First {
    entered: Option<Entered>,
    admitted: Option<Admitted>,
    inspect: Option<Arc<dyn Inspect>>,
    /// `None`: it was not looked at yet.
    wait: Option<Wait>,
}

enum Wait {
    /// For its turn.
    Turn(Pin<Box<Sleep>>),
    /// For a request, not longer than this.
    Request(Pin<Box<Sleep>>),
}

/// In this order: what every push and every answer to it needs lies together.
#[repr(C)]
pub(crate) struct Call {
    address: SocketAddr,
    /// How often it may change what it subscribes to.
    changes: Bucket,
    /// Until when its requests are not read because it changed that too often.
    pause: Option<Instant>,
    /// When to look again although nothing happened.
    wake: Option<Instant>,
    /// When to stop, answered or not.
    end: Option<Instant>,
    /// When to stop because the proxy's workload is no more.
    gone: Option<Instant>,
    /// For all these times.
    alarm: Alarm,
    pub(crate) closing: Bound,
    pub(crate) requests: Requests,
    pub(crate) out: Outbound,
    /// When the oldest news came that were not looked at yet.
    woken: Option<time::Instant>,
    /// There may be something to send.
    look: bool,
}

impl Wait {
    /// A timer rings a moment later, however short it is: who may go on at once has none.
    fn turn(wait: Duration, patience: Duration) -> Wait {
        if wait.is_zero() { Wait::request(patience) } else { Wait::Turn(Box::pin(sleep(wait))) }
    }

    fn request(patience: Duration) -> Wait {
        Wait::Request(Box::pin(sleep(patience)))
    }
}

impl Talk {
    pub(crate) fn new(begin: Beginning) -> Talk {
        let Beginning { shared, address, entered, variant, body, admitted, closing, inspect } = begin;
        shared.metrics.call_started(variant);
        let rate = shared.options.subscription_changes_per_second;
        let inbound = Inbound::new(body, shared.options.max_message);
        let call = Call {
            out: Outbound::new(shared.metrics.clone()),
            requests: Requests { shared, variant, inbound },
            closing,
            alarm: Alarm::default(),
            woken: None,
            changes: Bucket::new(rate, rate.saturating_mul(10)),
            pause: None,
            look: true,
            wake: None,
            end: None,
            gone: None,
            address,
        };
        Talk { call, phase: Phase::First(Box::new(First { entered, admitted: Some(admitted), inspect, wait: None })) }
    }

    /// Ready: it is over, but for what is left to say.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Talk { call, phase } = self;
        let refusal = loop {
            match phase {
                Phase::First(first) => match ready!(call.poll_first(first, cx)) {
                    Ok(request) => match call.opened(first, request) {
                        Ok(next) => *phase = next,
                        Err(refusal) => break refusal,
                    },
                    Err(refusal) => break refusal,
                },
                Phase::Proxy(session, _) => break ready!(call.poll_proxy(session, cx)),
                Phase::Questions(questions) => break ready!(questions.poll(call, cx)),
                Phase::Over => return Poll::Ready(()),
            }
        };
        if let Phase::Proxy(session, admitted) = std::mem::replace(phase, Phase::Over) {
            call.left(session, admitted);
        }
        call.ended(refusal);
        Poll::Ready(())
    }

    /// It panicked.
    pub(crate) fn break_off(&mut self) {
        self.phase = Phase::Over;
        self.call.out.break_off();
    }
}

impl Call {
    fn poll_first(&mut self, first: &mut First, cx: &mut Context<'_>) -> Poll<Result<Request, Refusal>> {
        let patience = self.requests.shared.options.first_request;
        loop {
            match &mut first.wait {
                None => first.wait = Some(Wait::turn(self.requests.shared.admission.turn()?, patience)),
                Some(Wait::Turn(turn)) => {
                    ready!(turn.as_mut().poll(cx));
                    first.wait = Some(Wait::request(patience));
                }
                Some(Wait::Request(late)) => {
                    while let Poll::Ready(request) = self.requests.poll_next(cx) {
                        // A report of health may come before.
                        if !request.as_ref().is_ok_and(Request::is_health) {
                            return Poll::Ready(request);
                        }
                    }
                    return match self.out.progress() {
                        Progress::Closed => Poll::Ready(Err(Refusal::Gone)),
                        _ if self.closing.by().is_some() => Poll::Ready(Err(Refusal::Closing)),
                        _ => late.as_mut().poll(cx).map(|()| Err(Refusal::NoRequest(patience.as_secs()))),
                    };
                }
            }
        }
    }

    fn opened(&mut self, first: &mut First, mut request: Request) -> Result<Phase, Refusal> {
        let entered = first.entered.take();
        if request.is_debug() {
            let inspection = Inspection::new(first.inspect.take(), entered);
            return Ok(Phase::Questions(Box::new(Questions::new(self, inspection, request))));
        }
        let (shared, variant) = (&self.requests.shared, self.requests.variant);
        let mut session = Session::open(shared, self.address, entered.as_ref(), variant, request.node_mut())?;
        self.out.admit(session.pass());
        let admitted = first.admitted.take().expect("a call is opened once");
        match session.request(request) {
            Ok(_) => Ok(Phase::Proxy(session, admitted)),
            Err(refusal) => {
                self.left(session, admitted);
                Err(refusal)
            }
        }
    }

    /// A proxy is gone.
    fn left(&self, session: Session, admitted: Admitted) {
        let ended = time::Instant::now();
        drop((session, admitted));
        self.requests.shared.metrics.destroyed(ended.elapsed());
    }

    fn ended(&mut self, refusal: Refusal) {
        let address = self.address;
        let metrics = &self.requests.shared.metrics;
        match refusal {
            Refusal::WorkloadGone => metrics.zombies(1),
            Refusal::TooSlow(_) => {
                metrics.write_timed_out();
                self.closing.wish(Wish::HangUp);
            }
            // On the same connection it would come back to this instance.
            Refusal::Moved => self.closing.wish(Wish::Retire),
            _ => {}
        }
        tracing::debug!(%address, code = refusal.code().label(), reason = %refusal, "stream ended");
        metrics.call_ended(self.requests.variant, refusal.code());
        self.out.end(refusal);
    }

    fn poll_proxy(&mut self, session: &mut Session, cx: &mut Context<'_>) -> Poll<Refusal> {
        if self.end.is_none() && self.closing.by().is_some() {
            self.end = self.closing.by();
            self.out.skip();
        }
        match self.poll_events(session, cx) {
            Err(refusal) => Poll::Ready(refusal),
            Ok(()) if self.end.is_some() && session.is_quiet() => Poll::Ready(Refusal::Closing),
            Ok(()) => Poll::Pending,
        }
    }

    /// Everything that has happened. Requests come first: they tell what is still wanted and what was accepted. A response is
    /// made only when there is room for it and a slot to write it, so it is never older than the moment of its writing.
    fn poll_events(&mut self, session: &mut Session, cx: &mut Context<'_>) -> Result<(), Refusal> {
        loop {
            self.poll_requests(session, cx)?;
            let progress = self.out.progress();
            if progress == Progress::Closed {
                return Err(Refusal::Gone);
            }
            if let Poll::Ready(rung) = session.news.poll_rung(cx) {
                if rung.ended {
                    return Err(Refusal::Moved);
                }
                self.gone = rung.gone.map(|since| since + self.requests.shared.options.gone_patience);
                self.woken.get_or_insert(rung.at);
                self.look = true;
                session.heard(rung);
            }
            if self.look && self.end.is_none() && self.out.poll_turn(cx).is_ready() {
                self.speak(session)?;
                continue;
            }
            if self.poll_alarm(session, progress, cx)?.is_pending() {
                return Ok(());
            }
        }
    }

    fn poll_requests(&mut self, session: &mut Session, cx: &mut Context<'_>) -> Result<(), Refusal> {
        for _ in 0..REQUESTS {
            if self.pause.is_some() {
                return Ok(());
            }
            let Poll::Ready(request) = self.requests.poll_next(cx) else { return Ok(()) };
            let names = session.request(request?)?;
            self.pause = names.and_then(|names| self.pause(names));
            // Mostly it is the answer to the only response of a push.
            self.look |= session.has_more();
            if !self.look {
                session.note_done();
            }
        }
        // There may be more. The other streams of the thread have their turn first.
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// It has its turn.
    fn speak(&mut self, session: &mut Session) -> Result<(), Refusal> {
        if let Some(woken) = self.woken.take() {
            session.queued(clock::now().into_std().saturating_duration_since(woken));
        }
        match session.next()? {
            Next::Response(response) => {
                self.look = session.has_more();
                self.out.send(response);
                return Ok(());
            }
            Next::Nothing => {
                (self.look, self.wake) = (false, None);
                session.note_done();
            }
            Next::Held(until) => (self.look, self.wake) = (false, Some(until)),
        }
        self.out.skip();
        Ok(())
    }

    /// Ready: one of its times has come.
    fn poll_alarm(
        &mut self,
        session: &mut Session,
        progress: Progress,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, Refusal> {
        let patience = self.requests.shared.options.read_patience;
        let too_slow = match progress {
            Progress::Writing(since) => Some(since + patience),
            Progress::Free | Progress::Closed => None,
        };
        let overdue = session.overdue_at();
        let times = [self.pause, self.wake, overdue, self.end, too_slow, self.gone];
        let Some(first) = times.into_iter().flatten().min() else { return Ok(Poll::Pending) };
        if self.alarm.poll(first, cx).is_pending() {
            return Ok(Poll::Pending);
        }
        clock::look();
        let now = clock::now();
        let come = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if come(self.pause) {
            self.pause = None;
        }
        if come(self.wake) {
            (self.look, self.wake) = (true, None);
        }
        if come(overdue) {
            session.count_overdue();
        }
        if come(self.end) {
            return Err(Refusal::Closing);
        }
        if come(too_slow) {
            return Err(Refusal::TooSlow(patience.as_secs()));
        }
        if come(self.gone) {
            return Err(Refusal::WorkloadGone);
        }
        Ok(Poll::Ready(()))
    }
}

impl Call {
    /// After a request that is limited in rate. Until when the stream waits with the next; `None`: it came in time. `names`: all that were
    /// looked at for it.
    pub(crate) fn pause(&mut self, names: usize) -> Option<Instant> {
        let now = clock::now();
        let cost = 1 + names / NAMES_PER_CHANGE;
        let wait = self.changes.take_within(now, cost, Duration::MAX).filter(|wait| !wait.is_zero())?;
        Some(now + wait)
    }
}

pub(crate) struct Requests {
    pub(crate) shared: Arc<Shared>,
    pub(crate) variant: Variant,
    inbound: Inbound<Incoming>,
}

impl Requests {
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, Refusal>> {
        let message = ready!(self.inbound.poll_next(cx))?;
        self.shared.metrics.received(self.variant, message.len());
        Poll::Ready(Request::decode(self.variant, message, self.shared.options.max_names))
    }
}
