//! The body of a call's answer: one response at a time, then the status. It pulls, so that a slow proxy costs no queue,
//! and holds a slot of the throttle only while it gets on.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame as Part;
use http2::clock;
use tokio::time::Instant;

use crate::{Metrics, TypeUrl, frame::Frame, refusal::Refusal, throttle::Pass};

pub(crate) struct Response {
    pub(crate) frame: Frame,
    /// `None`: an answer about the server itself, which is no push.
    pub(crate) kind: Option<TypeUrl>,
    /// When its making began, with the refresh that it waited for, and when it was ready to be written.
    pub(crate) began: Instant,
    pub(crate) made: Instant,
}

/// How far the connection is with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Free,
    /// A response is being written, since then.
    Writing(Instant),
    /// Nobody reads any more.
    Closed,
}

/// Between the task of a call, which fills it, and the connection, which empties it. They have their turns one after the other.
pub(crate) struct Outbound {
    current: Option<Response>,
    /// Some of it was taken.
    begun: bool,
    /// The connection asked for more, and there was nothing: the proxy has room.
    hungry: bool,
    /// The task waits for that.
    waits: bool,
    state: State,
    /// Whose slots the responses take. `None`: nobody's.
    pass: Option<Pass>,
    metrics: Arc<Metrics>,
}

enum State {
    Open,
    /// The task is over; this comes after what is being written.
    Ends(Refusal),
    /// The task broke.
    Broken,
    Said,
    /// The connection is gone.
    Unread,
}

/// The side of the task.
impl Outbound {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Outbound {
        Outbound { current: None, begun: false, hungry: false, waits: false, state: State::Open, pass: None, metrics }
    }

    pub(crate) fn admit(&mut self, pass: Pass) {
        self.pass = Some(pass);
    }

    /// Ready when the proxy has room for a response and it is this stream's turn. Then `send` or `skip`; and `skip` at
    /// some time, if it is not waited for any longer.
    pub(crate) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.waits = !self.hungry;
        if self.hungry { self.poll_slot(cx) } else { Poll::Pending }
    }

    /// The connection asks for it after the turn of the task.
    pub(crate) fn send(&mut self, response: Response) {
        self.hungry = false;
        (self.current, self.begun) = (Some(response), false);
    }

    /// There is nothing to send.
    pub(crate) fn skip(&self) {
        if self.current.is_none() {
            self.leave();
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        match &self.current {
            _ if matches!(self.state, State::Unread) => Progress::Closed,
            Some(response) => Progress::Writing(response.made),
            None => Progress::Free,
        }
    }

    pub(crate) fn end(&mut self, refusal: Refusal) {
        self.close(State::Ends(refusal));
    }

    /// The task did not come to its end.
    pub(crate) fn break_off(&mut self) {
        self.close(State::Broken);
    }

    fn close(&mut self, state: State) {
        if matches!(self.state, State::Open) {
            self.state = state;
        }
        self.leave();
    }

    fn leave(&self) {
        if let Some(pass) = &self.pass {
            pass.leave();
        }
    }

    fn poll_slot(&self, cx: &Context<'_>) -> Poll<()> {
        self.pass.as_ref().map_or(Poll::Ready(()), |pass| pass.poll(cx))
    }
}

/// The side of the connection.
impl Outbound {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Said | State::Unread)
    }

    /// `Ready(None)`: that was all.
    pub(crate) fn poll_part(&mut self, cx: &Context<'_>) -> Poll<Option<Part<Bytes>>> {
        if self.is_over() {
            return Poll::Ready(None);
        }
        match self.poll_chunk(cx) {
            Poll::Ready(Some(chunk)) => return Poll::Ready(Some(Part::data(chunk))),
            Poll::Ready(None) => {}
            Poll::Pending => return Poll::Pending,
        }
        if let Some(trailers) = self.trailers() {
            return Poll::Ready(Some(Part::trailers(trailers)));
        }
        self.hungry = true;
        if std::mem::take(&mut self.waits) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// `Ready(None)`: nothing is being written.
    fn poll_chunk(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        if self.current.is_none() {
            return Poll::Ready(None);
        }
        // After the end nobody watches over its slot any more, so the rest goes without one.
        if matches!(self.state, State::Open) && self.poll_slot(cx).is_pending() {
            return Poll::Pending;
        }
        let Some(response) = &mut self.current else { return Poll::Ready(None) };
        if let Some(chunk) = response.frame.chunk() {
            // The first follows at once on the slot.
            if std::mem::replace(&mut self.begun, true)
                && let Some(pass) = &self.pass
            {
                pass.gets_on();
            }
            return Poll::Ready(Some(chunk));
        }
        let Response { kind, began, made, .. } = *response;
        self.current = None;
        self.leave();
        if let Some(kind) = kind {
            let now = clock::now();
            self.metrics.written(kind, now - began, now - made);
        }
        Poll::Ready(None)
    }

    /// The status at the end. `None`: there is more to come.
    fn trailers(&mut self) -> Option<HeaderMap> {
        if matches!(self.state, State::Open) {
            return None;
        }
        let mut trailers = HeaderMap::new();
        match std::mem::replace(&mut self.state, State::Said) {
            State::Ends(refusal) => refusal.write(&mut trailers),
            _ => {
                self.metrics.call_broke();
                Refusal::Broken.write(&mut trailers);
            }
        }
        Some(trailers)
    }

    /// Nobody reads any more.
    pub(crate) fn abandon(&mut self) {
        if self.is_over() {
            return;
        }
        self.state = State::Unread;
        self.leave();
        if let Some(kind) = self.current.take().and_then(|lost| lost.kind) {
            self.metrics.push_failed(kind);
        }
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[cfg(test)]
mod tests;
