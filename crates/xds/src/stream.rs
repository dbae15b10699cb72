//! The task of one call: waits for requests, news, room to write and the end. What to say is decided in `session`.

use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{self, Duration},
};

use bytes::Bytes;
use http_body::Body;
use http2::clock;
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Bell, Inspect, Variant,
    admission::{Admitted, Bucket},
    alarm::Alarm,
    closing::{Bound, Wish},
    door::Entered,
    inbound::Inbound,
    inspection::Inspection,
    outbound::{Progress, Response, Writer},
    refusal::Refusal,
    server::Shared,
    session::{Next, Request, Session},
};

/// What a call begins with.
pub(crate) struct Stream<B> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
    /// `None`: the port asks nobody.
    pub(crate) entered: Option<Entered>,
    pub(crate) variant: Variant,
    pub(crate) body: B,
    pub(crate) out: Writer,
    pub(crate) admitted: Admitted,
    /// Between it and its connection.
    pub(crate) closing: Bound,
    /// `None`: nobody answers questions about the server itself here.
    pub(crate) inspect: Option<Arc<dyn Inspect>>,
}

impl<B> Stream<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// What is needed at the beginning alone is on the heap until then: there are many streams, and they live long.
    pub(crate) fn run(self) -> impl Future<Output = ()> + Send {
        let Stream { shared, address, entered, variant, body, out, admitted, closing, inspect } = self;
        shared.metrics.call_started(variant);
        let rate = shared.options.subscription_changes_per_second;
        let inbound = Inbound::new(body, shared.options.max_message);
        let mut call = Call {
            requests: Requests { shared, variant, inbound },
            out,
            closing,
            alarm: Alarm::default(),
            woken: None,
            changes: Bucket::new(rate, rate.saturating_mul(10)),
            pause: None,
            look: true,
            wake: None,
            end: None,
            gone: None,
        };
        let begin = Box::new((entered, admitted, inspect));
        async move {
            let first = Box::pin(call.first()).await;
            let opened = call.opened(address, *begin, first);
            let refusal = match opened {
                Opened::Proxy(mut session, admitted) => {
                    let refusal = call.serve(&mut session).await;
                    call.left(session, admitted);
                    refusal
                }
                Opened::Inspection(inspection, request) => Box::pin(call.inspected(inspection, *request)).await,
                Opened::Refused(refusal) => refusal,
            };
            call.ended(address, refusal);
        }
    }
}

/// What a stream turns out to be by its first request.
enum Opened {
    Proxy(Box<Session>, Admitted),
    Inspection(Inspection, Box<Request>),
    Refused(Refusal),
}

struct Call<B> {
    requests: Requests<B>,
    out: Writer,
    closing: Bound,
    /// For all the times below.
    alarm: Alarm,
    /// When the oldest news came that were not looked at yet.
    woken: Option<time::Instant>,
    /// How often it may change what it subscribes to, and until when its requests are not read because of that.
    changes: Bucket,
    pause: Option<Instant>,
    /// There may be something to send.
    look: bool,
    /// When to look again although nothing happened.
    wake: Option<Instant>,
    /// When to stop, answered or not.
    end: Option<Instant>,
    /// When to stop because the proxy's workload is no more.
    gone: Option<Instant>,
}

impl<B> Call<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    async fn first(&mut self) -> Result<Request, Refusal> {
        let shared = self.requests.shared.clone();
        let patience = shared.options.first_request;
        shared.admission.turn().await?;
        tokio::select! {
            biased;
            request = timeout(patience, self.requests.first()) => request.map_err(|_| Refusal::NoRequest(patience.as_secs()))?,
            () = self.out.closed() => Err(Refusal::Gone),
            () = closed(&self.closing) => Err(Refusal::Closing),
        }
    }

    fn opened(
        &mut self,
        address: SocketAddr,
        (entered, admitted, inspect): (Option<Entered>, Admitted, Option<Arc<dyn Inspect>>),
        first: Result<Request, Refusal>,
    ) -> Opened {
        let request = match first {
            Ok(request) if request.is_debug() => {
                return Opened::Inspection(Inspection::new(inspect, entered), Box::new(request));
            }
            Ok(request) => request,
            Err(refusal) => return Opened::Refused(refusal),
        };
        let (shared, variant) = (&self.requests.shared, self.requests.variant);
        let mut session = match Session::open(shared, address, entered.as_ref(), variant, request.node()) {
            Ok(session) => Box::new(session),
            Err(refusal) => return Opened::Refused(refusal),
        };
        self.out.admit(session.pass());
        match session.request(request) {
            Ok(_) => Opened::Proxy(session, admitted),
            Err(refusal) => {
                self.left(session, admitted);
                Opened::Refused(refusal)
            }
        }
    }

    /// A proxy is gone.
    fn left(&self, session: Box<Session>, admitted: Admitted) {
        let ended = time::Instant::now();
        drop((session, admitted));
        self.requests.shared.metrics.destroyed(ended.elapsed());
    }

    fn ended(self, address: SocketAddr, refusal: Refusal) {
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

    /// A stream of somebody who asks about the server. It has no place among the proxies and takes no turn of theirs.
    async fn inspected(&mut self, mut inspection: Inspection, mut request: Request) -> Refusal {
        loop {
            let answered = tokio::select! {
                answered = inspection.answer(&self.requests.shared.nonces, self.requests.variant, &request) => answered,
                () = self.out.closed() => return Refusal::Gone,
            };
            match answered {
                Ok(None) => {}
                Ok(Some(frame)) => {
                    tokio::select! {
                        () = poll_fn(|cx| self.out.poll_turn(cx)) => {}
                        () = self.out.closed() => return Refusal::Gone,
                    }
                    let now = Instant::now();
                    self.out.send(Response { frame, kind: None, began: now, made: now });
                }
                Err(refusal) => return refusal,
            }
            if let Some(pause) = pause(&mut self.changes) {
                sleep_until(pause).await;
            }
            request = tokio::select! {
                biased;
                () = closed(&self.closing) => return Refusal::Closing,
                next = self.requests.next() => match next {
                    Ok(next) => next,
                    Err(refusal) => return refusal,
                },
                () = self.out.closed() => return Refusal::Gone,
            };
        }
    }

    async fn serve(&mut self, session: &mut Session) -> Refusal {
        let news = session.news.clone();
        poll_fn(|cx| {
            if self.end.is_none() && self.closing.by().is_some() {
                self.end = self.closing.by();
                self.out.skip();
            }
            match self.poll_events(session, &news, cx) {
                Err(refusal) => Poll::Ready(refusal),
                Ok(()) if self.end.is_some() && session.is_quiet() => Poll::Ready(Refusal::Closing),
                Ok(()) => Poll::Pending,
            }
        })
        .await
    }

    /// Everything that has happened. Requests come first: they tell what is still wanted and what was accepted. A response is
    /// made only when there is room for it and a slot to write it, so it is never older than the moment of its writing.
    fn poll_events(&mut self, session: &mut Session, news: &Bell, cx: &mut Context<'_>) -> Result<(), Refusal> {
        loop {
            self.poll_requests(session, cx)?;
            let progress = self.out.poll_progress(cx);
            if progress == Progress::Closed {
                return Err(Refusal::Gone);
            }
            if let Poll::Ready(rung) = news.poll_rung(cx) {
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
        while self.pause.is_none()
            && let Poll::Ready(request) = self.requests.poll_next(cx)
        {
            let changed = session.request(request?)?;
            self.pause = if changed { pause(&mut self.changes) } else { None };
            // Mostly it is the answer to the only response of a push.
            self.look |= session.has_more();
            if !self.look {
                session.note_done();
            }
        }
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

/// Whoever waits is woken when the connection closes.
async fn closed(closing: &Bound) {
    poll_fn(|_| if closing.by().is_some() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// `None`: the change came in time.
fn pause(changes: &mut Bucket) -> Option<Instant> {
    let now = clock::now();
    let wait = changes.take_within(now, Duration::MAX).filter(|wait| !wait.is_zero())?;
    Some(now + wait)
}

struct Requests<B> {
    shared: Arc<Shared>,
    variant: Variant,
    inbound: Inbound<B>,
}

impl<B> Requests<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    async fn first(&mut self) -> Result<Request, Refusal> {
        loop {
            let request = self.next().await?;
            if !request.is_health() {
                return Ok(request);
            }
        }
    }

    async fn next(&mut self) -> Result<Request, Refusal> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, Refusal>> {
        let message = ready!(self.inbound.poll_next(cx))?;
        self.shared.metrics.received(self.variant, message.len());
        Poll::Ready(Request::decode(self.variant, message))
    }
}
