//! The task of one call: waits for requests, news, room to write and the end. What to say is decided in `session`.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http_body::Body;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    Seq, Variant,
    inbound::Inbound,
    outbound::Part,
    refusal::Refusal,
    server::Shared,
    session::{Next, Request, Session},
};

/// What a call begins with.
pub(crate) struct Stream<B> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
    pub(crate) variant: Variant,
    pub(crate) body: B,
    pub(crate) out: mpsc::Sender<Part>,
    /// Set when the connection wants to close: the latest time for this stream to end.
    pub(crate) closing: watch::Receiver<Option<Instant>>,
}

impl<B> Stream<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    pub(crate) async fn run(self) {
        let Stream { shared, address, variant, body, out, closing } = self;
        shared.metrics.call_started(variant);
        let inbound = Inbound::new(body, shared.options.max_message);
        let mut call = Call {
            requests: Requests { shared: shared.clone(), variant, inbound },
            changed: shared.provider.changed(),
            out,
            closing,
            look: true,
            wake: None,
            end: None,
        };
        let refusal = match call.first(address).await {
            Ok(session) => call.serve(session).await,
            Err(refusal) => refusal,
        };
        tracing::debug!(%address, code = refusal.code().label(), reason = %refusal, "stream ended");
        shared.metrics.call_ended(variant, refusal.code());
        // The other side may be gone already.
        let _ = call.out.send(Part::End(refusal)).await;
    }
}

struct Call<B> {
    requests: Requests<B>,
    changed: watch::Receiver<Seq>,
    out: mpsc::Sender<Part>,
    closing: watch::Receiver<Option<Instant>>,
    /// There may be something to send.
    look: bool,
    /// When to look again although nothing happened.
    wake: Option<Instant>,
    /// When to stop, answered or not.
    end: Option<Instant>,
}

impl<B> Call<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    async fn first(&mut self, address: SocketAddr) -> Result<Session, Refusal> {
        let (shared, variant) = (self.requests.shared.clone(), self.requests.variant);
        let patience = shared.options.first_request;
        let request = tokio::select! {
            biased;
            request = timeout(patience, self.requests.first()) => {
                request.map_err(|_| Refusal::NoRequest(patience.as_secs()))??
            }
            () = self.out.closed() => return Err(Refusal::Gone),
            _ = self.closing.wait_for(Option::is_some) => return Err(Refusal::Closing),
        };
        let mut session = Session::open(&shared, address, variant, request.node())?;
        session.heard(*self.changed.borrow_and_update());
        session.request(request)?;
        Ok(session)
    }

    async fn serve(&mut self, mut session: Session) -> Refusal {
        loop {
            if let Err(refusal) = self.step(&mut session).await {
                return refusal;
            }
            if self.end.is_some() && session.is_quiet() {
                return Refusal::Closing;
            }
        }
    }

    /// One event. Requests come first: they tell what is still wanted and what was accepted. A response is made only
    /// when there is room for it, so it is never older than the moment of its writing.
    async fn step(&mut self, session: &mut Session) -> Result<(), Refusal> {
        tokio::select! {
            biased;
            request = self.requests.next() => {
                session.request(request?)?;
                self.look = true;
            }
            () = self.out.closed() => return Err(Refusal::Gone),
            Ok(()) = self.changed.changed() => {
                session.heard(*self.changed.borrow_and_update());
                self.look = true;
            }
            Ok(end) = self.closing.wait_for(Option::is_some), if self.end.is_none() => self.end = *end,
            Ok(permit) = self.out.reserve(), if self.look && self.end.is_none() => match session.next()? {
                Next::Response(response) => permit.send(Part::Response(response)),
                Next::Nothing => (self.look, self.wake) = (false, None),
                Next::Held(until) => (self.look, self.wake) = (false, Some(until)),
            },
            () = until(self.wake) => (self.look, self.wake) = (true, None),
            () = until(self.end) => return Err(Refusal::Closing),
        }
        Ok(())
    }
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

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
