//! The connection future: reads frames, polls the streams of the ready queue, writes, and closes. The protocol itself is in
//! `connection_state`, `receive` and `send`.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    ConnectionConfig, ConnectionError, RequestBody,
    connection_state::{CONNECTION_ID, ConnectionState, GoAwayState},
    frame_reader::{FrameReader, ReadOutcome},
    stream::ResponseBody,
};

/// Passes over the ready queue between two writes.
const MAX_PASSES_PER_WRITE: usize = 4;
/// Rounds of reading, polling and writing before the task yields. Some streams wake themselves forever, and tokio's cooperative budget is
/// refilled only after a yield.
const MAX_ROUNDS_PER_POLL: usize = 16;
/// Time after which the task yields. The clock is read from the second round on: a typical message and its answer take one round.
const TIME_SLICE: Duration = Duration::from_millis(2);

/// The server side of one HTTP/2 connection: a future that completes when the connection is closed and the background work of all its
/// streams is done.
///
/// The connection, its streams and their handlers are one task. `S` is called with each request and returns the future `F` of its
/// response; `B` is the response body.
pub struct ServerConnection<I, S, F, B> {
    io: I,
    reader: FrameReader,
    /// The connection error to be returned once GOAWAY is written.
    pending_error: Option<ConnectionError>,
    /// Set when the connection is closed; background work of its streams may still be running.
    outcome: Option<Result<(), ConnectionError>>,
    state: ConnectionState<S, F, B>,
}

impl<I, S, F, B> ServerConnection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Request<RequestBody>) -> F,
    F: Future<Output = Response<B>>,
    B: ResponseBody,
{
    /// A connection on `io`, on which nothing was read or written yet. The server preface goes out with the first poll.
    pub fn new(io: I, config: ConnectionConfig, service: S) -> ServerConnection<I, S, F, B> {
        let state = ConnectionState::new(config, service);
        ServerConnection { io, reader: FrameReader::new(), state, pending_error: None, outcome: None }
    }

    /// Sends GOAWAY: streams that are open are served to their end, new ones are refused, and the connection closes after the last.
    ///
    /// All open streams are woken once, so that their handlers can end early. The connection has to be polled on.
    pub fn graceful_shutdown(&mut self) {
        self.state.announce_goaway();
    }

    /// Closes the connection without GOAWAY. It has to be awaited afterwards, until the background work of its streams
    /// ([`ResponseBody::poll_background`]) is done.
    pub fn abort(&mut self) {
        self.close(Ok(()));
    }

    /// Bytes that were received and not handled: bodies that no handler has read, an incomplete frame, incomplete headers.
    pub fn buffered_bytes(&self) -> usize {
        let headers = self.state.header_block.as_ref().map_or(0, |block| block.bytes.len());
        self.state.ready_queue.unread() + self.reader.partial_len() + headers
    }

    fn close(&mut self, outcome: Result<(), ConnectionError>) {
        self.state.close_all_streams();
        self.outcome = Some(outcome);
    }

    /// Reads until the socket would block. A peer that does not read our replies is not read either: the backlog would grow without bound.
    fn read_frames(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        let mut received = false;
        while !self.state.writer.has_inline_backlog() && self.pending_error.is_none() {
            let state = &mut self.state;
            match self.reader.poll_frames(&mut self.io, cx, |header, payload| state.recv_frame(header, payload)) {
                Poll::Pending => break,
                Poll::Ready(Ok(Ok(ReadOutcome::Data))) => received = true,
                Poll::Ready(Ok(Ok(ReadOutcome::Eof))) => return Err(ConnectionError::PeerClosed),
                Poll::Ready(Ok(Err(code))) => {
                    state.fail_connection(code);
                    self.pending_error = Some(ConnectionError::Protocol(code));
                }
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
        }
        if received {
            self.state.keepalive.record_received();
        }
        Ok(())
    }

    /// Polls the streams of the ready queue, several passes before anything is written: frames that go out together cost one system call.
    fn poll_ready_streams(&mut self) -> Result<(), ConnectionError> {
        for _ in 0..MAX_PASSES_PER_WRITE {
            let ready = self.state.ready_queue.take();
            if ready.is_empty() {
                break;
            }
            for id in ready {
                if id != CONNECTION_ID {
                    self.state.poll_stream(id);
                } else if !self.state.poll_keepalive() {
                    return Err(ConnectionError::KeepaliveTimeout { streams: self.state.streams.len() });
                }
            }
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        let shut_down = matches!(self.state.goaway, Some(GoAwayState::Received | GoAwayState::Final));
        self.pending_error.is_some() || (shut_down && self.state.streams.is_empty())
    }

    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.state.ready_queue.mark_running();
        let mut start = None;
        for _ in 0..MAX_ROUNDS_PER_POLL {
            self.read_frames(cx)?;
            let was_backlogged = self.state.writer.has_inline_backlog();
            self.poll_ready_streams()?;
            let written = self.state.writer.poll_write(&mut self.io, cx)?;
            if self.is_finished() {
                ready!(written);
                // An error means that the socket is closed already.
                let _ = ready!(Pin::new(&mut self.io).poll_shutdown(cx));
                FrameReader::discard_unread(&mut self.io, cx);
                return Poll::Ready(self.pending_error.take().map_or(Ok(()), Err));
            }
            self.state.wake_blocked_streams();
            let can_read_again = was_backlogged && !self.state.writer.has_inline_backlog();
            if self.state.ready_queue.try_park(cx) && !can_read_again {
                return Poll::Pending;
            }
            if start.get_or_insert_with(Instant::now).elapsed() >= TIME_SLICE {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Background work of streams that are closed.
    fn poll_draining(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..MAX_ROUNDS_PER_POLL {
            if self.state.draining.is_empty() {
                return Poll::Ready(());
            }
            for id in self.state.ready_queue.take() {
                self.state.poll_stream(id);
            }
            if !self.state.draining.is_empty() && self.state.ready_queue.try_park(cx) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<I, S, F, B> Future for ServerConnection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Request<RequestBody>) -> F + Unpin,
    F: Future<Output = Response<B>>,
    B: ResponseBody,
{
    type Output = Result<(), ConnectionError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let this = self.get_mut();
        if this.outcome.is_none() {
            let outcome = match ready!(this.poll_serve(cx)) {
                // Closing an idle connection is no error.
                Err(ConnectionError::PeerClosed) if this.state.streams.is_empty() => Ok(()),
                outcome => outcome,
            };
            this.close(outcome);
        }
        ready!(this.poll_draining(cx));
        Poll::Ready(this.outcome.take().unwrap_or(Ok(())))
    }
}
