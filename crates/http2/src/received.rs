//! What each frame of the peer does. An error ends the connection; what is wrong with one stream alone ends that stream.

use bytes::BytesMut;
use http::{Request, Response};

use crate::{
    Incoming,
    frame::{self, Head, Kind, LARGEST_WINDOW, LAST_STREAM, Reason, flag},
    hpack::{self, Decoded},
    incoming::Inbox,
    keepalive,
    protocol::{Block, Farewell, Protocol},
    ready::Nudge,
    request::{Fields, Opened},
    sending::headers,
    settings,
    stream::{Call, Receiving, Stream},
};

/// A block that comes in more frames than this is meant to be long and not to say much.
const CONTINUATIONS: u32 = 32;

impl<S, F, B> Protocol<S, F, B>
where
    S: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Call,
{
    pub(crate) fn frame(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        if !self.settled && head.kind != Kind::Settings {
            return Err(Reason::Protocol);
        }
        if self.block.as_ref().is_some_and(|block| head.kind != Kind::Continuation || head.stream != block.stream) {
            return Err(Reason::Protocol);
        }
        match head.kind {
            Kind::Data => self.data(head, payload),
            Kind::Headers => self.headers(head, payload),
            Kind::Priority => self.priority(head, payload),
            Kind::ResetStream => self.reset(head, payload),
            Kind::Settings => self.settings(head, payload),
            Kind::PushPromise => Err(Reason::Protocol),
            Kind::Ping => self.ping(head, payload),
            Kind::GoAway if head.stream != 0 => Err(Reason::Protocol),
            Kind::GoAway if head.len < 8 => Err(Reason::FrameSize),
            Kind::GoAway => {
                self.farewell.get_or_insert(Farewell::Theirs);
                Ok(())
            }
            Kind::WindowUpdate => self.window_update(head, payload),
            Kind::Continuation => self.continuation(head, payload),
            Kind::Unknown => Ok(()),
        }
    }

    fn data(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        let data = frame::unpadded(head, payload)?;
        if self.is_idle(head.stream) {
            return Err(Reason::Protocol);
        }
        self.window.take(payload.len())?;
        let ends = head.has(flag::END_STREAM);
        if data.is_empty() && !ends {
            self.cost()?;
        }
        let Some(stream) = self.streams.get_mut(head.stream) else {
            self.give_back(payload.len() as u32);
            return self.closed(head.stream);
        };
        let taken = stream.request.take(payload.len(), data.len());
        let taken = taken.and_then(|()| if ends { stream.request.end() } else { Ok(()) });
        if let Err(reason) = taken {
            self.give_back(payload.len() as u32);
            return self.fail(head.stream, reason);
        }
        stream.inbox.add(data);
        if ends {
            stream.inbox.end(Ok(()));
        }
        let padding = payload.len() - data.len();
        stream.request.window += padding as i64;
        if padding > 0 && !ends {
            self.outlet.small(&frame::window_update(head.stream, padding as u32));
        }
        self.give_back(padding as u32);
        Ok(())
    }

    fn headers(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        if head.stream.is_multiple_of(2) {
            return Err(Reason::Protocol);
        }
        let mut fragment = frame::unpadded(head, payload)?;
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            depends_on_itself = frame::number(fragment).ok_or(Reason::FrameSize)? & LAST_STREAM == head.stream;
            fragment = fragment.get(5..).ok_or(Reason::FrameSize)?;
        }
        let ends = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.whole(head.stream, ends, depends_on_itself, fragment);
        }
        let block = Block { stream: head.stream, ends, depends_on_itself, bytes: fragment.to_vec(), frames: 0 };
        self.block = Some(Box::new(block));
        Ok(())
    }

    fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        let Some(mut block) = self.block.take() else { return Err(Reason::Protocol) };
        block.frames += 1;
        block.bytes.extend_from_slice(payload);
        if block.frames > CONTINUATIONS || block.bytes.len() > 4 * self.limits.headers as usize {
            return Err(Reason::EnhanceYourCalm);
        }
        if head.has(flag::END_HEADERS) {
            return self.whole(block.stream, block.ends, block.depends_on_itself, &block.bytes);
        }
        self.block = Some(block);
        Ok(())
    }

    /// A header block has come whole. It is decoded in any case, or the table of headers would be out of step.
    fn whole(&mut self, id: u32, ends: bool, depends_on_itself: bool, block: &[u8]) -> Result<(), Reason> {
        let mut fields = Fields::default();
        let most = self.limits.headers as usize;
        let decoded = self.decoder.decode(block, most, |name, value| fields.add(name, value));
        let decoded = decoded.map_err(|_| Reason::Compression)?;
        if self.is_idle(id) {
            self.last = id;
            // Whoever was told which streams are the last knows that the others are not served.
            if matches!(self.farewell, Some(Farewell::Last)) {
                return Ok(());
            }
            return match decoded {
                Decoded::TooLarge => self.too_large(id),
                Decoded::Whole if depends_on_itself => self.refuse(id, Reason::Protocol),
                Decoded::Whole => self.open(id, ends, fields),
            };
        }
        let Some(stream) = self.streams.get_mut(id) else { return self.closed_headers(id) };
        let trailers = ends && fields.are_trailers() && matches!(decoded, Decoded::Whole);
        let ended = if trailers { stream.request.end() } else { Err(Reason::Protocol) };
        match ended {
            Ok(()) => stream.inbox.end(Ok(())),
            Err(reason) => {
                let reason = if stream.request.open || trailers { reason } else { Reason::StreamClosed };
                return self.fail(id, reason);
            }
        }
        Ok(())
    }

    fn open(&mut self, id: u32, ends: bool, fields: Fields) -> Result<(), Reason> {
        let Some(Opened { request, length }) = fields.request() else { return self.refuse(id, Reason::Protocol) };
        if ends && length.is_some_and(|length| length > 0) {
            return self.refuse(id, Reason::Protocol);
        }
        if self.streams.len() >= self.limits.streams as usize {
            return self.refuse(id, Reason::RefusedStream);
        }
        let inbox = Inbox::new(Nudge::new(id, &self.ready), self.limits.stream_window / 2);
        if ends {
            inbox.end(Ok(()));
        }
        let window = i64::from(self.limits.stream_window);
        let receiving = Receiving { open: !ends, window, missing: length };
        let answer = (self.service)(request.map(|()| Incoming::new(inbox.clone())));
        let stream = Stream::new(inbox, receiving, answer, self.first_window);
        self.streams.insert(id, Box::new(stream));
        self.wake(id);
        Ok(())
    }

    fn too_large(&mut self, id: u32) -> Result<(), Reason> {
        let mut block = BytesMut::new();
        hpack::status(&mut block, 431);
        headers(&mut self.outlet, id, flag::END_STREAM, block);
        self.refuse(id, Reason::None)
    }

    /// A stream that never was one.
    fn refuse(&mut self, id: u32, reason: Reason) -> Result<(), Reason> {
        self.outlet.small(&frame::reset(id, reason));
        self.remember_reset(id);
        self.cost()
    }

    /// The peer did something wrong on a stream.
    fn fail(&mut self, id: u32, reason: Reason) -> Result<(), Reason> {
        self.drop_stream(id, reason);
        self.cost()
    }

    /// Data for a stream that is no more.
    fn closed(&mut self, id: u32) -> Result<(), Reason> {
        if self.was_reset(id) {
            return Ok(());
        }
        self.outlet.small(&frame::reset(id, Reason::StreamClosed));
        self.cost()
    }

    fn closed_headers(&mut self, id: u32) -> Result<(), Reason> {
        if self.was_reset(id) { Ok(()) } else { Err(Reason::StreamClosed) }
    }

    fn priority(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        if head.stream == 0 {
            return Err(Reason::Protocol);
        }
        let wrong = match frame::number(payload) {
            Some(on) if payload.len() == 5 => (on & LAST_STREAM == head.stream).then_some(Reason::Protocol),
            _ => Some(Reason::FrameSize),
        };
        match wrong {
            // A reset of a stream that never was would be an error of ours.
            Some(reason) if self.is_idle(head.stream) => Err(reason),
            Some(reason) => self.fail(head.stream, reason),
            None => Ok(()),
        }
    }

    fn reset(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        if payload.len() != 4 {
            return Err(Reason::FrameSize);
        }
        if self.is_idle(head.stream) {
            return Err(Reason::Protocol);
        }
        if self.streams.get(head.stream).is_some() {
            self.forget(head.stream);
            self.cost()?;
        }
        Ok(())
    }

    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        if head.stream != 0 {
            return Err(Reason::Protocol);
        }
        if head.has(flag::ACK) {
            return if payload.is_empty() { Ok(()) } else { Err(Reason::FrameSize) };
        }
        self.settled = true;
        let window = settings::window(self.first_window, payload)?;
        let more = window - self.first_window;
        self.first_window = window;
        self.outlet.small(&frame::settings_ack());
        if more != 0 && !self.streams.is_empty() {
            // Each stream is looked at, for a frame of fifteen bytes.
            self.cost()?;
            for stream in self.streams.iter_mut() {
                stream.window += more;
                if stream.window > LARGEST_WINDOW {
                    return Err(Reason::FlowControl);
                }
                stream.inbox.nudge.nudge();
            }
        }
        Ok(())
    }

    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        if head.stream != 0 {
            return Err(Reason::Protocol);
        }
        let payload: [u8; 8] = payload.try_into().map_err(|_| Reason::FrameSize)?;
        if !head.has(flag::ACK) {
            self.outlet.small(&frame::ping(flag::ACK, payload));
        } else if payload == keepalive::PAYLOAD {
            self.keepalive.answered();
        } else if payload == Farewell::PAYLOAD && matches!(self.farewell, Some(Farewell::Asked)) {
            self.say_last();
        }
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), Reason> {
        if payload.len() != 4 {
            return Err(Reason::FrameSize);
        }
        let more = i64::from(frame::number(payload).unwrap_or(0) & LAST_STREAM);
        if head.stream == 0 {
            self.peer_window += more;
            return match more {
                0 => Err(Reason::Protocol),
                _ if self.peer_window > LARGEST_WINDOW => Err(Reason::FlowControl),
                _ => {
                    self.unblock();
                    Ok(())
                }
            };
        }
        if self.is_idle(head.stream) {
            return Err(Reason::Protocol);
        }
        if more == 0 {
            return self.fail(head.stream, Reason::Protocol);
        }
        let Some(stream) = self.streams.get_mut(head.stream) else { return Ok(()) };
        stream.window += more;
        if stream.window > LARGEST_WINDOW {
            return self.fail(head.stream, Reason::FlowControl);
        }
        stream.inbox.nudge.nudge();
        Ok(())
    }
}
