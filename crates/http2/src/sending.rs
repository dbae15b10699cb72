//! How answers get into the outlet: in turns between the streams, as far as the peer's windows and the socket allow.

use std::task::Poll;

use bytes::BytesMut;
use http::{HeaderMap, Response, response};

use crate::{
    frame::{Head, Kind, LARGEST, Reason, flag, reset, window_update},
    hpack,
    outlet::Outlet,
    protocol::Protocol,
    stream::{Call, Said},
};

/// What one stream adds in its turn.
const TURN: usize = 64 << 10;

/// Why a stream has nothing more to add now.
enum Pause {
    /// It wakes us, or the peer does.
    Waits,
    /// It goes on when the connection has room. `true`: it had its part of what there was.
    Room(bool),
    Turn,
    Ended,
    Broken,
}

impl<S, F, B> Protocol<S, F, B>
where
    F: Future<Output = Response<B>>,
    B: Call,
{
    /// One turn of a stream that was woken.
    pub(crate) fn turn(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return self.go_on(id) };
        if !stream.inbox.nudge.seen() {
            return;
        }
        if stream.work().is_err() {
            return self.drop_stream(id, Reason::Internal);
        }
        if let Some(room) = stream.inbox.room() {
            self.window.left += i64::from(room);
            self.outlet.small(&window_update(0, room));
            if stream.request.open {
                stream.request.window += i64::from(room);
                self.outlet.small(&window_update(id, room));
            }
        }
        match self.speak(id) {
            Pause::Waits => {}
            Pause::Room(had_some) => self.wait(id, had_some),
            Pause::Turn => self.wake(id),
            Pause::Ended => self.finish(id),
            Pause::Broken => self.drop_stream(id, Reason::Internal),
        }
    }

    /// Work of a stream that is over.
    fn go_on(&mut self, id: u32) {
        let Some(stream) = self.leaving.get_mut(id).filter(|stream| stream.inbox.nudge.seen()) else { return };
        if !matches!(stream.work(), Ok(Poll::Pending)) {
            self.leaving.remove(id);
        }
    }

    fn wait(&mut self, id: u32, had_some: bool) {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.waits) else { return };
        stream.waits = true;
        if had_some { self.blocked.push(id) } else { self.starved.push(id) }
    }

    pub(crate) fn wake(&self, id: u32) {
        if let Some(stream) = self.streams.get(id) {
            stream.inbox.nudge.nudge();
        }
    }

    /// Streams that waited for the connection go on, if it has room.
    pub(crate) fn unblock(&mut self) {
        if self.outlet.is_full() || self.peer_window <= 0 {
            return;
        }
        let starved = std::mem::take(&mut self.starved);
        for id in starved.into_iter().chain(std::mem::take(&mut self.blocked)) {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.waits = false;
                stream.inbox.nudge.nudge();
            }
        }
    }

    fn speak(&mut self, id: u32) -> Pause {
        let Some(stream) = self.streams.get_mut(id) else { return Pause::Waits };
        let before = self.outlet.len();
        loop {
            if self.outlet.is_full() || (stream.has_begun() && self.peer_window <= 0) {
                return Pause::Room(self.outlet.len() > before);
            }
            // The head of an answer takes no room of a window.
            if stream.has_begun() && stream.window <= 0 {
                return Pause::Waits;
            }
            if self.outlet.len() - before >= TURN {
                return Pause::Turn;
            }
            if !stream.chunk.is_empty() {
                let most = stream.window.min(self.peer_window);
                let len = stream.chunk.len().min(LARGEST).min(usize::try_from(most).unwrap_or(0));
                self.outlet.small(&Head { len, kind: Kind::Data, flags: 0, stream: id }.bytes());
                self.outlet.shared(stream.chunk.split_to(len));
                stream.window -= len as i64;
                self.peer_window -= len as i64;
                continue;
            }
            match stream.poll() {
                Ok(Poll::Pending) => return Pause::Waits,
                Ok(Poll::Ready(Said::Chunk)) => {}
                Ok(Poll::Ready(Said::Head(head, ends))) => {
                    let flags = if ends { flag::END_STREAM } else { 0 };
                    headers(&mut self.outlet, id, flags, answered(&head));
                    // Its work has not begun yet.
                    return if ends { Pause::Ended } else { Pause::Turn };
                }
                Ok(Poll::Ready(Said::End(trailers))) => {
                    match trailers {
                        Some(trailers) => headers(&mut self.outlet, id, flag::END_STREAM, block(&trailers)),
                        None => self
                            .outlet
                            .small(&Head { len: 0, kind: Kind::Data, flags: flag::END_STREAM, stream: id }.bytes()),
                    }
                    return Pause::Ended;
                }
                Ok(Poll::Ready(Said::Broken)) | Err(_) => return Pause::Broken,
            }
        }
    }

    /// Everything was said. What the peer still sends is not wanted.
    fn finish(&mut self, id: u32) {
        let open = self.streams.get(id).is_some_and(|stream| stream.request.open);
        if open {
            self.drop_stream(id, Reason::None);
        } else {
            self.forget(id);
        }
    }

    /// Ends a stream from our side.
    pub(crate) fn drop_stream(&mut self, id: u32, reason: Reason) {
        self.outlet.small(&reset(id, reason));
        self.remember_reset(id);
        self.forget(id);
    }
}

/// A whole header block, in as many frames as it needs.
pub(crate) fn headers(outlet: &mut Outlet, stream: u32, flags: u8, block: BytesMut) {
    let mut block = block.freeze();
    let mut kind = Kind::Headers;
    let mut flags = flags;
    loop {
        let part = block.split_to(block.len().min(LARGEST));
        if block.is_empty() {
            flags |= flag::END_HEADERS;
        }
        outlet.small(&Head { len: part.len(), kind, flags, stream }.bytes());
        outlet.shared(part);
        if block.is_empty() {
            return;
        }
        (kind, flags) = (Kind::Continuation, 0);
    }
}

fn answered(head: &response::Parts) -> BytesMut {
    let mut out = BytesMut::with_capacity(128);
    hpack::status(&mut out, head.status.as_u16());
    add(&mut out, &head.headers);
    out
}

fn block(trailers: &HeaderMap) -> BytesMut {
    let mut out = BytesMut::with_capacity(128);
    add(&mut out, trailers);
    out
}

fn add(out: &mut BytesMut, headers: &HeaderMap) {
    for (name, value) in headers {
        hpack::literal(out, name.as_str().as_bytes(), value.as_bytes());
    }
}
