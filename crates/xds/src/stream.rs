//! The task of one call: waits for requests, news, room to write and the end. What to say is decided in `session`.

use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::Arc,
    task::Poll,
    time::{self, Duration},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use http_body::Body;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    Bell, Inspect, Variant,
    admission::{Admitted, Bucket},
    alarm::Alarm,
    door::Entered,
    inbound::Inbound,
    inspection::Inspection,
    outbound::{Response, Writer},
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
    /// Set when the connection wants to close: the latest time for this stream to end.
    pub(crate) closing: watch::Receiver<Option<Instant>>,
    /// Ends the connection: a status cannot reach a proxy that does not read.
    pub(crate) hang_up: Arc<Notify>,
    /// Lets the connection end as if it were old.
    pub(crate) retire: Arc<Notify>,
    /// `None`: nobody answers questions about the server itself here.
    pub(crate) inspect: Option<Arc<dyn Inspect>>,
}

impl<B> Stream<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    pub(crate) async fn run(self) {
        let Stream { shared, address, entered, variant, body, out, admitted, mut closing, hang_up, retire, inspect } =
            self;
        shared.metrics.call_started(variant);
        let rate = shared.options.subscription_changes_per_second;
        let inbound = Inbound::new(body, shared.options.max_message);
        let mut call = Call {
            requests: Requests { shared: shared.clone(), variant, inbound },
            out,
            alarm: Alarm::default(),
            woken: None,
            changes: Bucket::new(rate, rate.saturating_mul(10)),
            pause: None,
            look: true,
            wake: None,
            end: None,
            gone: None,
        };
        let refusal = match call.first(&mut closing).await {
            Ok(request) if request.is_debug() => {
                let inspection = Inspection::new(inspect, entered);
                call.inspected(inspection, request, &mut closing).await
            }
            Ok(request) => call.proxied(address, entered.as_ref(), request, admitted, &mut closing).await,
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::WorkloadGone => shared.metrics.zombies(1),
            Refusal::TooSlow(_) => {
                shared.metrics.write_timed_out();
                hang_up.notify_one();
            }
            // On the same connection it would come back to this instance.
            Refusal::Moved => retire.notify_one(),
            _ => {}
        }
        tracing::debug!(%address, code = refusal.code().label(), reason = %refusal, "stream ended");
        shared.metrics.call_ended(variant, refusal.code());
        call.out.end(refusal);
    }
}

type Closing = watch::Receiver<Option<Instant>>;

struct Call<B> {
    requests: Requests<B>,
    out: Writer,
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
    async fn first(&mut self, closing: &mut Closing) -> Result<Request, Refusal> {
        let shared = self.requests.shared.clone();
        let patience = shared.options.first_request;
        shared.admission.turn().await?;
        tokio::select! {
            biased;
            request = timeout(patience, self.requests.first()) => request.map_err(|_| Refusal::NoRequest(patience.as_secs()))?,
            () = self.out.closed() => Err(Refusal::Gone),
            _ = closing.wait_for(Option::is_some) => Err(Refusal::Closing),
        }
    }

    /// A stream of a proxy, from its first request to its end.
    async fn proxied(
        &mut self,
        address: SocketAddr,
        entered: Option<&Entered>,
        request: Request,
        admitted: Admitted,
        closing: &mut Closing,
    ) -> Refusal {
        let (shared, variant) = (self.requests.shared.clone(), self.requests.variant);
        let opened = Session::open(&shared, address, entered, variant, request.node());
        let mut session = match opened {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        self.out.admit(session.pass());
        let refusal = match session.request(request) {
            Ok(_) => self.serve(&mut session, closing).await,
            Err(refusal) => refusal,
        };
        let ended = time::Instant::now();
        drop((session, admitted));
        shared.metrics.destroyed(ended.elapsed());
        refusal
    }

    /// A stream of somebody who asks about the server. It has no place among the proxies and takes no turn of theirs.
    async fn inspected(&mut self, mut inspection: Inspection, mut request: Request, closing: &mut Closing) -> Refusal {
        loop {
            let answered = tokio::select! {
                answered = inspection.answer(&self.requests.shared.nonces, self.requests.variant, &request) => answered,
                () = self.out.closed() => return Refusal::Gone,
            };
            match answered {
                Ok(None) => {}
                Ok(Some(frame)) => {
                    tokio::select! {
                        () = self.out.turn() => {}
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
                _ = closing.wait_for(Option::is_some) => return Refusal::Closing,
                next = self.requests.next() => match next {
                    Ok(next) => next,
                    Err(refusal) => return refusal,
                },
                () = self.out.closed() => return Refusal::Gone,
            };
        }
    }

    async fn serve(&mut self, session: &mut Session, closing: &mut Closing) -> Refusal {
        let news = session.news.clone();
        let ended = session.ended();
        let order = async {
            tokio::select! {
                biased;
                () = ended => Err(Refusal::Moved),
                end = closing.wait_for(Option::is_some) => end.map(|end| *end).map_err(|_| Refusal::Gone),
            }
        };
        // Looked at when one of these happens, not with every event.
        let mut order = FuturesUnordered::from_iter([order]);
        loop {
            let step = tokio::select! {
                biased;
                Some(order) = order.next() => order.map(|end| {
                    self.end = end;
                    self.out.skip();
                }),
                step = self.step(session, &news) => step,
            };
            if let Err(refusal) = step {
                return refusal;
            }
            if self.end.is_some() && session.is_quiet() {
                return Refusal::Closing;
            }
        }
    }

    /// One event. Requests come first: they tell what is still wanted and what was accepted. A response is made only
    /// when there is room for it and a slot to write it, so it is never older than the moment of its writing.
    async fn step(&mut self, session: &mut Session, news: &Bell) -> Result<(), Refusal> {
        let patience = self.requests.shared.options.read_patience;
        let overdue = session.overdue_at();
        let known = [self.pause, self.wake, overdue, self.end, self.gone].into_iter().flatten().min();
        let (alarm, out) = (&mut self.alarm, &self.out);
        let rings = poll_fn(|cx| match known.into_iter().chain(out.writing_since().map(|at| at + patience)).min() {
            Some(at) => alarm.poll(at, cx),
            None => Poll::Pending,
        });
        tokio::select! {
            biased;
            request = self.requests.next(), if self.pause.is_none() => {
                let changed = session.request(request?)?;
                self.pause = if changed { pause(&mut self.changes) } else { None };
                // Mostly it is the answer to the only response of a push.
                self.look |= !session.is_settled();
                if !self.look {
                    session.note_done();
                }
            }
            () = self.out.closed() => return Err(Refusal::Gone),
            (seq, at) = news.rung() => {
                session.heard(seq);
                self.woken.get_or_insert(at);
                self.look = true;
                self.gone = news.gone().map(|since| since + self.requests.shared.options.gone_patience);
            }
            () = self.out.turn(), if self.look && self.end.is_none() => self.speak(session)?,
            () = rings => self.rung(session, overdue, patience)?,
        }
        Ok(())
    }

    /// It has its turn.
    fn speak(&mut self, session: &mut Session) -> Result<(), Refusal> {
        if let Some(woken) = self.woken.take() {
            session.queued(woken.elapsed());
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

    /// One of its times has come.
    fn rung(&mut self, session: &mut Session, overdue: Option<Instant>, patience: Duration) -> Result<(), Refusal> {
        let now = Instant::now();
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
        if come(self.out.writing_since().map(|since| since + patience)) {
            return Err(Refusal::TooSlow(patience.as_secs()));
        }
        if come(self.gone) {
            return Err(Refusal::WorkloadGone);
        }
        Ok(())
    }
}

/// `None`: the change came in time.
fn pause(changes: &mut Bucket) -> Option<Instant> {
    let now = Instant::now();
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
        let message = self.inbound.next().await?;
        self.shared.metrics.received(self.variant, message.len());
        Request::decode(self.variant, message)
    }
}
