//! The request body: a receive buffer that the connection fills and the handler of the stream reads. Bytes that were read are
//! returned to the peer as flow-control window; the WINDOW_UPDATE frames themselves are sent by `send`.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    task::{Context, Poll, Wake},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use crate::ready_queue::StreamWaker;

/// The body of a request, handed to the service with the request head.
///
/// It has no waker of its own: new data wakes the stream that the body belongs to, which polls the response future and
/// [`ResponseBody::poll_background`](crate::ResponseBody::poll_background). Poll it from there; in another task it would never be woken.
pub struct RequestBody {
    buffer: Arc<RecvBuffer>,
}

/// The stream was reset or the connection ended before the request body was complete (END_STREAM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended before its request was complete")]
pub struct IncompleteRequest;

/// The receive buffer of one stream, in one allocation with its waker: both are used by every DATA frame.
pub(crate) struct RecvBuffer {
    pub(crate) waker: StreamWaker,
    state: Mutex<BufferState>,
    /// Bytes to be read before a WINDOW_UPDATE frame is worth sending.
    update_threshold: u32,
}

#[derive(Default)]
struct BufferState {
    data: BytesMut,
    end: Option<Result<(), IncompleteRequest>>,
    /// Read since the last WINDOW_UPDATE frame.
    consumed: u32,
    /// The `RequestBody` was dropped: further data is discarded.
    reader_dropped: bool,
    /// The connection took the window of this stream back, and needs no more updates.
    stream_closed: bool,
}

impl RecvBuffer {
    pub(crate) fn new(waker: StreamWaker, update_threshold: u32) -> Arc<RecvBuffer> {
        Arc::new(RecvBuffer { waker, state: Mutex::default(), update_threshold })
    }

    fn state(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, data: &[u8]) {
        let mut state = self.state();
        if state.reader_dropped || state.end.is_some() {
            state.consumed += data.len() as u32;
            return;
        }
        // A body of more than two frames is likely long: growing to four times its size saves copies. More than the window never comes.
        let (len, window) = (state.data.len(), 2 * self.update_threshold as usize);
        if len + data.len() > state.data.capacity() {
            state.data.reserve(data.len().max((3 * len).min(window.saturating_sub(len))));
        }
        state.data.extend_from_slice(data);
        self.waker.unread().fetch_add(data.len(), Ordering::Relaxed);
        drop(state);
        self.waker.enqueue();
    }

    pub(crate) fn finish(&self, end: Result<(), IncompleteRequest>) {
        self.state().end.get_or_insert(end);
        self.waker.enqueue();
    }

    /// Ends window accounting of the stream. Returns the bytes that the connection window gets back.
    pub(crate) fn close(&self) -> u32 {
        let mut state = self.state();
        state.stream_closed = true;
        std::mem::take(&mut state.consumed) + state.data.len() as u32
    }

    /// The increment of the next WINDOW_UPDATE frame, once it reaches the threshold.
    pub(crate) fn take_window_increment(&self) -> Option<u32> {
        let mut state = self.state();
        (state.consumed >= self.update_threshold).then(|| std::mem::take(&mut state.consumed))
    }
}

/// The waker of the stream, without an allocation of its own.
impl Wake for RecvBuffer {
    fn wake(self: Arc<Self>) {
        self.waker.enqueue();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.waker.enqueue();
    }
}

impl RequestBody {
    pub(crate) fn new(buffer: Arc<RecvBuffer>) -> RequestBody {
        RequestBody { buffer }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = IncompleteRequest;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, IncompleteRequest>>> {
        let mut state = self.buffer.state();
        if state.data.is_empty() {
            return match state.end {
                None => Poll::Pending,
                Some(Ok(())) => Poll::Ready(None),
                Some(Err(incomplete)) => Poll::Ready(Some(Err(incomplete))),
            };
        }
        let data = std::mem::take(&mut state.data).freeze();
        state.consumed += data.len() as u32;
        self.buffer.waker.unread().fetch_sub(data.len(), Ordering::Relaxed);
        let is_due = state.consumed >= self.buffer.update_threshold && !state.stream_closed;
        drop(state);
        if is_due {
            self.buffer.waker.enqueue();
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.buffer.state();
        state.data.is_empty() && state.end == Some(Ok(()))
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let mut state = self.buffer.state();
        state.reader_dropped = true;
        let unread = std::mem::take(&mut state.data).len();
        state.consumed += unread as u32;
        self.buffer.waker.unread().fetch_sub(unread, Ordering::Relaxed);
        drop(state);
        self.buffer.waker.enqueue();
    }
}
