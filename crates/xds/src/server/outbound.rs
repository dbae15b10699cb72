//! The response body of a stream: one response at a time, then the status. The connection pulls, so that a slow proxy costs no queue,
//! and a push permit is held only while the proxy makes progress.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http2::clock;
use tokio::time::Instant;

use crate::{
    Metrics, TypeUrl,
    encoding::grpc_message::GrpcMessage,
    server::{
        byte_budget::{ConnectionBytes, HeldBytes},
        stream_error::StreamError,
        throttle::PushPermit,
    },
};

pub(crate) struct OutboundResponse {
    pub(crate) message: GrpcMessage,
    /// `None`: the answer to a debug request, which is no push.
    pub(crate) kind: Option<TypeUrl>,
    /// When its computation started, with the refresh that it waited for, and when it was ready to be written.
    pub(crate) started_at: Instant,
    pub(crate) encoded_at: Instant,
    /// Its bytes, once they count: see `Outbound::count_unread`.
    pub(crate) held: Option<HeldBytes>,
}

/// Responses that take longer to be read count among the buffered bytes of their connection. Those that are read as they come do not: many
/// proxies may share an address.
const COUNTED_AFTER: Duration = Duration::from_secs(10);
/// Shorter ones do not count; they are limited by the number of streams.
const COUNTED_FROM: usize = 64 << 10;

/// The progress of the connection with the response that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Free,
    /// A response is being written, since then.
    Writing(Instant),
    /// The stream was closed by the client or the connection.
    Closed,
}

/// Between the call, which fills it, and the connection, which writes it. They run in one task, one after the other.
pub(crate) struct Outbound {
    current: Option<OutboundResponse>,
    /// Some of it was written.
    started: bool,
    /// The connection asked for data, and there was none: the proxy has room.
    writable: bool,
    /// The call waits for that.
    waits: bool,
    state: State,
    /// `None`: responses need no permit.
    permit: Option<PushPermit>,
    metrics: Arc<Metrics>,
}

enum State {
    Open,
    /// The call has ended; the status follows what is being written.
    Ending(StreamError),
    /// The call panicked.
    Failed,
    Ended,
    /// Nobody reads it any more.
    Abandoned,
}

/// The side of the call.
impl Outbound {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Outbound {
        Outbound {
            current: None,
            started: false,
            writable: false,
            waits: false,
            state: State::Open,
            permit: None,
            metrics,
        }
    }

    pub(crate) fn set_permit(&mut self, permit: PushPermit) {
        self.permit = Some(permit);
    }

    /// Ready when the proxy has room for a response and the stream has a push permit. Then `send` or `release_turn`; and `release_turn` at
    /// some time, if the turn is not waited for any longer.
    pub(crate) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.waits = !self.writable;
        if self.writable { self.poll_permit(cx) } else { Poll::Pending }
    }

    /// The connection asks for it after the turn of the call.
    pub(crate) fn send(&mut self, response: OutboundResponse) {
        self.writable = false;
        (self.current, self.started) = (Some(response), false);
    }

    /// There is nothing to send.
    pub(crate) fn release_turn(&self) {
        if self.current.is_none() {
            self.release_permit();
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        match &self.current {
            _ if matches!(self.state, State::Abandoned) => Progress::Closed,
            Some(response) => Progress::Writing(response.encoded_at),
            None => Progress::Free,
        }
    }

    /// When the response that is being written begins to count.
    pub(crate) fn counts_at(&self) -> Option<Instant> {
        let unread = self.current.as_ref().filter(|response| response.held.is_none())?;
        (unread.message.len() >= COUNTED_FROM && !unread.message.is_shared()).then(|| unread.encoded_at + COUNTED_AFTER)
    }

    pub(crate) fn count_unread(&mut self, account: &Arc<ConnectionBytes>) -> Result<(), StreamError> {
        if let Some(response) = &mut self.current {
            response.held = Some(account.hold(response.message.len())?);
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, error: StreamError) {
        self.close(State::Ending(error));
    }

    /// The call panicked.
    pub(crate) fn fail(&mut self) {
        self.close(State::Failed);
    }

    fn close(&mut self, state: State) {
        if matches!(self.state, State::Open) {
            self.state = state;
        }
        self.release_permit();
    }

    fn release_permit(&self) {
        if let Some(permit) = &self.permit {
            permit.release();
        }
    }

    fn poll_permit(&self, cx: &Context<'_>) -> Poll<()> {
        self.permit.as_ref().map_or(Poll::Ready(()), |permit| permit.poll(cx))
    }
}

/// The side of the connection.
impl Outbound {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Ended | State::Abandoned)
    }

    /// `Ready(None)`: that was all.
    pub(crate) fn poll_frame(&mut self, cx: &Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if self.is_over() {
            return Poll::Ready(None);
        }
        match self.poll_chunk(cx) {
            Poll::Ready(Some(chunk)) => return Poll::Ready(Some(Frame::data(chunk))),
            Poll::Ready(None) => {}
            Poll::Pending => return Poll::Pending,
        }
        if let Some(trailers) = self.trailers() {
            return Poll::Ready(Some(Frame::trailers(trailers)));
        }
        self.writable = true;
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
        // After its end the call no longer holds a permit, so the rest is written without one.
        if matches!(self.state, State::Open) && self.poll_permit(cx).is_pending() {
            return Poll::Pending;
        }
        let Some(response) = &mut self.current else { return Poll::Ready(None) };
        if let Some(chunk) = response.message.next_chunk() {
            // The first chunk follows at once on the permit.
            if std::mem::replace(&mut self.started, true)
                && let Some(permit) = &self.permit
            {
                permit.record_progress();
            }
            return Poll::Ready(Some(chunk));
        }
        let OutboundResponse { kind, started_at, encoded_at, .. } = *response;
        self.current = None;
        self.release_permit();
        if let Some(kind) = kind {
            let now = clock::now();
            self.metrics.record_write(kind, now - started_at, now - encoded_at);
        }
        Poll::Ready(None)
    }

    /// The status at the end. `None`: the stream goes on.
    fn trailers(&mut self) -> Option<HeaderMap> {
        if matches!(self.state, State::Open) {
            return None;
        }
        let mut trailers = HeaderMap::new();
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ending(error) => error.write(&mut trailers),
            _ => {
                self.metrics.call_panicked();
                StreamError::Broken.write(&mut trailers);
            }
        }
        Some(trailers)
    }

    /// The stream was closed by the client or the connection.
    pub(crate) fn abandon(&mut self) {
        if self.is_over() {
            return;
        }
        self.state = State::Abandoned;
        self.release_permit();
        if let Some(kind) = self.current.take().and_then(|unsent| unsent.kind) {
            self.metrics.count_push_failure(kind);
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
