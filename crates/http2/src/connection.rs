//! One connection: reads, lets the streams that were woken have their turns, and writes; and its end. What is said is in `protocol`.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    Error, Incoming, Limits,
    inlet::{Inlet, Read},
    protocol::{Farewell, ITSELF, Protocol},
    stream::Call,
};

/// How often streams may have turns between two writes.
const PASSES: usize = 4;
/// How often it goes round before others may run. Some streams wake themselves for ever; and what tokio grants a task at a time comes anew only
/// after a pause.
const ROUNDS: usize = 16;
/// After so long others may run too. The clock is read from the second round on: a push and its answers take one.
const SLICE: Duration = Duration::from_millis(2);

/// Serves the calls of one peer. `S` makes an answer of each request. In this order: the beginning of the protocol is what is needed most.
#[repr(C)]
pub struct Connection<I, S, F, B> {
    io: I,
    inlet: Inlet,
    /// What ends it once the last words are out.
    broken: Option<Error>,
    /// It is over but for the work of its streams.
    ended: Option<Result<(), Error>>,
    protocol: Protocol<S, F, B>,
}

impl<I, S, F, B> Connection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Call,
{
    pub fn new(io: I, limits: Limits, service: S) -> Connection<I, S, F, B> {
        let protocol = Protocol::new(limits, service);
        Connection { io, inlet: Inlet::new(), protocol, broken: None, ended: None }
    }

    /// Lets the streams that there are end, takes no more, and ends with the last of them.
    pub fn retire(&mut self) {
        self.protocol.retire();
    }

    /// Ends it without a word. Then it is to be waited for, so that the work of its streams ends in order.
    pub fn cut(&mut self) {
        self.end(Ok(()));
    }

    fn end(&mut self, how: Result<(), Error>) {
        self.protocol.forget_all();
        self.ended = Some(how);
    }

    /// Until the socket has nothing more; or the peer does not take our words: then it is not listened to either.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let mut heard = false;
        while !self.protocol.outlet.is_crowded() && self.broken.is_none() {
            let protocol = &mut self.protocol;
            match self.inlet.poll(&mut self.io, cx, |head, payload| protocol.frame(head, payload)) {
                Poll::Pending => break,
                Poll::Ready(Ok(Ok(Read::Some))) => heard = true,
                Poll::Ready(Ok(Ok(Read::End))) => return Err(Error::Left),
                Poll::Ready(Ok(Err(reason))) => {
                    protocol.break_off(reason);
                    self.broken = Some(Error::Refused(reason));
                }
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
        }
        if heard {
            self.protocol.keepalive.heard();
        }
        Ok(())
    }

    /// The streams that were woken, each in its turn. Who has more to say says it before anything is written: what goes out together costs one
    /// call.
    fn turns(&mut self) -> Result<(), Error> {
        for _ in 0..PASSES {
            let woken = self.protocol.ready.take();
            if woken.is_empty() {
                break;
            }
            for id in woken {
                if id != ITSELF {
                    self.protocol.turn(id);
                } else if !self.protocol.beat() {
                    return Err(Error::Silent { streams: self.protocol.streams.len() });
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let last = matches!(self.protocol.farewell, Some(Farewell::Theirs | Farewell::Last));
        self.broken.is_some() || (last && self.protocol.streams.is_empty())
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.protocol.ready.runs();
        let mut began = None;
        for _ in 0..ROUNDS {
            self.read(cx)?;
            let deaf = self.protocol.outlet.is_crowded();
            self.turns()?;
            let written = self.protocol.outlet.poll(&mut self.io, cx)?;
            if self.is_over() {
                ready!(written);
                // The socket may be gone already, which is as good.
                let _ = ready!(Pin::new(&mut self.io).poll_shutdown(cx));
                Inlet::drain(&mut self.io, cx);
                return Poll::Ready(self.broken.take().map_or(Ok(()), Err));
            }
            self.protocol.unblock();
            let listens = deaf && !self.protocol.outlet.is_crowded();
            if self.protocol.ready.sleeps(cx) && !listens {
                return Poll::Pending;
            }
            if began.get_or_insert_with(Instant::now).elapsed() >= SLICE {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// What the streams have left to do.
    fn poll_leaving(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS {
            if self.protocol.leaving.is_empty() {
                return Poll::Ready(());
            }
            for id in self.protocol.ready.take() {
                self.protocol.turn(id);
            }
            if !self.protocol.leaving.is_empty() && self.protocol.ready.sleeps(cx) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<I, S, F, B> Future for Connection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Request<Incoming>) -> F + Unpin,
    F: Future<Output = Response<B>>,
    B: Call,
{
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = self.get_mut();
        if this.ended.is_none() {
            let how = match ready!(this.poll_work(cx)) {
                // Whoever has no calls under way may leave.
                Err(Error::Left) if this.protocol.streams.is_empty() => Ok(()),
                how => how,
            };
            this.end(how);
        }
        ready!(this.poll_leaving(cx));
        Poll::Ready(this.ended.take().unwrap_or(Ok(())))
    }
}
