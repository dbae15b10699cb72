//! The body of a call's answer: one response at a time, then the status. It pulls, so that a slow proxy costs no queue,
//! and holds a slot of the throttle only while it gets on.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, SizeHint};
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

/// The side of the stream's task.
pub(crate) struct Writer {
    pipe: Arc<Pipe>,
}

/// The side of the connection.
pub(crate) struct Outbound {
    /// `None`: everything was said.
    pipe: Option<Arc<Pipe>>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Pipe {
    state: Mutex<State>,
    /// Set before the first response.
    pass: OnceLock<Pass>,
    /// Of the stream, which has one for its whole life: its task and its body are looked at in its turns.
    stream: OnceLock<Waker>,
}

#[derive(Default)]
struct State {
    current: Option<Response>,
    /// Some of it was taken.
    begun: bool,
    end: Option<Refusal>,
    /// The connection asked for more, and there was nothing: the proxy has room.
    hungry: bool,
    /// The task waits for that.
    waits: bool,
    /// The connection, or the task, is gone.
    unread: bool,
    broken: bool,
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn belongs_to(&self, cx: &Context<'_>) {
        self.stream.get_or_init(|| cx.waker().clone());
    }

    fn wake(&self) {
        if let Some(stream) = self.stream.get() {
            stream.wake_by_ref();
        }
    }

    fn leave(&self) {
        if let Some(pass) = self.pass.get() {
            pass.leave();
        }
    }

    fn poll_slot(&self, cx: &Context<'_>) -> Poll<()> {
        self.pass.get().map_or(Poll::Ready(()), |pass| pass.poll(cx))
    }
}

impl Writer {
    /// Whose slots the responses take.
    pub(crate) fn admit(&self, pass: Pass) {
        // There is one first request, so it is set once.
        let _ = self.pipe.pass.set(pass);
    }

    /// Ready when the proxy has room for a response and it is this stream's turn. Then `send` or `skip`; and `skip` at
    /// some time, if it is not waited for any longer.
    pub(crate) fn poll_turn(&self, cx: &Context<'_>) -> Poll<()> {
        self.pipe.belongs_to(cx);
        let mut state = self.pipe.state();
        state.waits = !state.hungry;
        if state.hungry { self.pipe.poll_slot(cx) } else { Poll::Pending }
    }

    pub(crate) fn send(&self, response: Response) {
        let mut state = self.pipe.state();
        state.hungry = false;
        (state.current, state.begun) = (Some(response), false);
        drop(state);
        self.pipe.wake();
    }

    /// There is nothing to send.
    pub(crate) fn skip(&self) {
        if self.pipe.state().current.is_none() {
            self.pipe.leave();
        }
    }

    pub(crate) async fn closed(&self) {
        poll_fn(|cx| if self.poll_progress(cx) == Progress::Closed { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Whoever asks is woken when it is closed.
    pub(crate) fn poll_progress(&self, cx: &Context<'_>) -> Progress {
        self.pipe.belongs_to(cx);
        let state = self.pipe.state();
        match &state.current {
            _ if state.unread => Progress::Closed,
            Some(response) => Progress::Writing(response.made),
            None => Progress::Free,
        }
    }

    pub(crate) fn end(self, refusal: Refusal) {
        self.pipe.state().end = Some(refusal);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.pipe.state();
        state.broken = state.end.is_none();
        drop(state);
        self.pipe.leave();
        self.pipe.wake();
    }
}

impl Outbound {
    pub(crate) fn new(metrics: Arc<Metrics>) -> (Writer, Outbound) {
        let pipe = Arc::<Pipe>::default();
        (Writer { pipe: pipe.clone() }, Outbound { pipe: Some(pipe), metrics })
    }

    pub(crate) fn empty(metrics: Arc<Metrics>) -> Outbound {
        Outbound { pipe: None, metrics }
    }

    /// `Ready(None)`: nothing is being written.
    fn poll_chunk(&self, pipe: &Pipe, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = pipe.state();
        if state.current.is_none() {
            return Poll::Ready(None);
        }
        // After the end nobody watches over its slot any more, so the rest goes without one.
        if state.end.is_none() && !state.broken && pipe.poll_slot(cx).is_pending() {
            return Poll::Pending;
        }
        let Some(response) = state.current.as_mut() else { return Poll::Ready(None) };
        if let Some(chunk) = response.frame.chunk() {
            // The first follows at once on the slot.
            if std::mem::replace(&mut state.begun, true)
                && let Some(pass) = pipe.pass.get()
            {
                pass.gets_on();
            }
            return Poll::Ready(Some(chunk));
        }
        let Response { kind, began, made, .. } = *response;
        state.current = None;
        drop(state);
        pipe.leave();
        if let Some(kind) = kind {
            let now = clock::now();
            self.metrics.written(kind, now - began, now - made);
        }
        Poll::Ready(None)
    }

    /// The status at the end. `None`: there is more to come.
    fn trailers(&self, pipe: &Pipe) -> Option<HeaderMap> {
        let mut state = pipe.state();
        let refusal = match state.end.take() {
            Some(refusal) => refusal,
            None if state.broken => {
                self.metrics.call_broke();
                Refusal::Broken
            }
            None => {
                state.hungry = true;
                let waits = std::mem::take(&mut state.waits);
                drop(state);
                if waits {
                    pipe.wake();
                }
                return None;
            }
        };
        let mut trailers = HeaderMap::new();
        refusal.write(&mut trailers);
        Some(trailers)
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let Some(pipe) = &self.pipe else { return Poll::Ready(None) };
        pipe.belongs_to(cx);
        match self.poll_chunk(pipe, cx) {
            Poll::Ready(Some(chunk)) => return Poll::Ready(Some(Ok(http_body::Frame::data(chunk)))),
            Poll::Ready(None) => {}
            Poll::Pending => return Poll::Pending,
        }
        if let Some(trailers) = self.trailers(pipe) {
            self.pipe = None;
            return Poll::Ready(Some(Ok(http_body::Frame::trailers(trailers))));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.pipe.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Outbound {
    /// Nobody reads any more.
    pub(crate) fn abandon(&mut self) {
        let Some(pipe) = self.pipe.take() else { return };
        let mut state = pipe.state();
        state.unread = true;
        let lost = state.current.take();
        drop(state);
        pipe.leave();
        if let Some(kind) = lost.and_then(|lost| lost.kind) {
            self.metrics.push_failed(kind);
        }
        pipe.wake();
    }
}

#[cfg(test)]
mod tests;
