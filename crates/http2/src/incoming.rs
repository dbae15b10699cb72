//! The body of a request, as it comes. The connection fills it and wakes the stream, whose call reads it in its turn; what was read makes room for
//! more.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use crate::ready::Nudge;

/// What a call reads. It is asked in turns of its stream alone: nobody else is woken.
pub struct Incoming {
    inbox: Arc<Inbox>,
}

/// The stream ended before its request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended before its request did")]
pub struct BrokeOff;

/// Beside what wakes the stream, which is touched whenever this is.
pub(crate) struct Inbox {
    pub(crate) nudge: Nudge,
    state: Mutex<State>,
    /// Once this much was read the peer is told.
    worth_telling: u32,
}

#[derive(Default)]
struct State {
    data: BytesMut,
    end: Option<Result<(), BrokeOff>>,
    /// Read since the peer was last told.
    read: u32,
    /// Nobody reads any more.
    unread: bool,
    /// The connection no longer counts what is read.
    left: bool,
}

impl Inbox {
    pub(crate) fn new(nudge: Nudge, worth_telling: u32) -> Arc<Inbox> {
        Arc::new(Inbox { nudge, state: Mutex::default(), worth_telling })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, data: &[u8]) {
        let mut state = self.state();
        if state.unread || state.end.is_some() {
            state.read += data.len() as u32;
            return;
        }
        // What does not end with the second frame goes on for many.
        let len = state.data.len();
        if len + data.len() > state.data.capacity() {
            state.data.reserve(data.len().max(3 * len));
        }
        state.data.extend_from_slice(data);
        drop(state);
        self.nudge.nudge();
    }

    pub(crate) fn end(&self, how: Result<(), BrokeOff>) {
        self.state().end.get_or_insert(how);
        self.nudge.nudge();
    }

    /// The stream is over. What it has of the connection's window, which it no longer needs.
    pub(crate) fn leave(&self) -> u32 {
        let mut state = self.state();
        state.left = true;
        std::mem::take(&mut state.read) + state.data.len() as u32
    }

    /// What the peer may send again, when it is worth telling.
    pub(crate) fn room(&self) -> Option<u32> {
        let mut state = self.state();
        (state.read >= self.worth_telling).then(|| std::mem::take(&mut state.read))
    }
}

/// Wakes the stream.
impl Wake for Inbox {
    fn wake(self: Arc<Self>) {
        self.nudge.nudge();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.nudge.nudge();
    }
}

impl Incoming {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Incoming {
        Incoming { inbox }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        let mut state = self.inbox.state();
        if state.data.is_empty() {
            return match state.end {
                None => Poll::Pending,
                Some(Ok(())) => Poll::Ready(None),
                Some(Err(broke_off)) => Poll::Ready(Some(Err(broke_off))),
            };
        }
        let data = std::mem::take(&mut state.data).freeze();
        state.read += data.len() as u32;
        let tell = state.read >= self.inbox.worth_telling && !state.left;
        drop(state);
        if tell {
            self.inbox.nudge.nudge();
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.inbox.state();
        state.data.is_empty() && state.end == Some(Ok(()))
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut state = self.inbox.state();
        state.unread = true;
        state.read += std::mem::take(&mut state.data).len() as u32;
        drop(state);
        self.inbox.nudge.nudge();
    }
}
