//! Sending: streams write their responses in turns, as far as the flow-control windows and the frame writer allow.

use std::task::Poll;

use bytes::BytesMut;
use http::{HeaderMap, Response, response};

use crate::{
    connection_state::ConnectionState,
    frame::{ErrorCode, FrameHeader, FrameType, MAX_FRAME_SIZE, data_header, flag, rst_stream, window_update},
    frame_writer::FrameWriter,
    hpack,
    stream::{ResponseBody, ResponseEvent},
};

/// Bytes that one stream may write in its turn.
const MAX_BYTES_PER_TURN: usize = 64 << 10;

/// Why a stream's turn ended.
enum Pause {
    /// Waits for its handler or for its stream window; either wakes it.
    Pending,
    /// Waits for the connection window or for room in the writer. `true`: it wrote some bytes before.
    ConnectionBlocked(bool),
    /// Has more to write, after the other streams.
    TurnUsed,
    Ended,
    Failed,
}

impl<S, F, B> ConnectionState<S, F, B>
where
    F: Future<Output = Response<B>>,
    B: ResponseBody,
{
    /// One turn of a stream from the ready queue.
    pub(crate) fn poll_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return self.poll_draining_stream(id) };
        if !stream.recv_buffer.waker.take_queued() {
            return;
        }
        if stream.poll_background().is_err() {
            return self.reset_stream(id, ErrorCode::InternalError);
        }
        if let Some(increment) = stream.recv_buffer.take_window_increment() {
            self.recv_window.available += i64::from(increment);
            self.writer.push_inline(&window_update(0, increment));
            if stream.recv.open {
                stream.recv.window += i64::from(increment);
                self.writer.push_inline(&window_update(id, increment));
            }
        }
        match self.write_response(id) {
            Pause::Pending => {}
            Pause::ConnectionBlocked(wrote_some) => self.mark_blocked(id, wrote_some),
            Pause::TurnUsed => self.wake_stream(id),
            Pause::Ended => self.finish_stream(id),
            Pause::Failed => self.reset_stream(id, ErrorCode::InternalError),
        }
    }

    /// Background work of a closed stream.
    fn poll_draining_stream(&mut self, id: u32) {
        let Some(stream) = self.draining.get_mut(id).filter(|stream| stream.recv_buffer.waker.take_queued()) else {
            return;
        };
        if !matches!(stream.poll_background(), Ok(Poll::Pending)) {
            self.draining.remove(id);
        }
    }

    fn mark_blocked(&mut self, id: u32, wrote_some: bool) {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.connection_blocked) else { return };
        stream.connection_blocked = true;
        if wrote_some { self.blocked.push(id) } else { self.starved.push(id) }
    }

    pub(crate) fn wake_stream(&self, id: u32) {
        if let Some(stream) = self.streams.get(id) {
            stream.recv_buffer.waker.enqueue();
        }
    }

    /// Wakes the streams that wait for the connection, if it has window and room again.
    pub(crate) fn wake_blocked_streams(&mut self) {
        if self.writer.is_full() || self.send_window <= 0 {
            return;
        }
        let starved = std::mem::take(&mut self.starved);
        for id in starved.into_iter().chain(std::mem::take(&mut self.blocked)) {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.connection_blocked = false;
                stream.recv_buffer.waker.enqueue();
            }
        }
    }

    fn write_response(&mut self, id: u32) -> Pause {
        let Some(stream) = self.streams.get_mut(id) else { return Pause::Pending };
        let before = self.writer.len();
        loop {
            if self.writer.is_full() || (stream.head_sent() && self.send_window <= 0) {
                return Pause::ConnectionBlocked(self.writer.len() > before);
            }
            // HEADERS frames are not subject to flow control.
            if stream.head_sent() && stream.send_window <= 0 {
                return Pause::Pending;
            }
            if self.writer.len() - before >= MAX_BYTES_PER_TURN {
                return Pause::TurnUsed;
            }
            if !stream.pending_data.is_empty() {
                let window = stream.send_window.min(self.send_window);
                let len = stream.pending_data.len().min(MAX_FRAME_SIZE).min(usize::try_from(window).unwrap_or(0));
                self.writer.push_inline(&data_header(id, 0, len));
                self.writer.push_shared(stream.pending_data.split_to(len));
                stream.send_window -= len as i64;
                self.send_window -= len as i64;
                continue;
            }
            match stream.poll_response() {
                Ok(Poll::Pending) => return Pause::Pending,
                Ok(Poll::Ready(ResponseEvent::Data)) => {}
                Ok(Poll::Ready(ResponseEvent::Head(head, end_stream))) => {
                    let flags = if end_stream { flag::END_STREAM } else { 0 };
                    write_header_block(&mut self.writer, id, flags, encode_response_head(&head));
                    // The next turn polls its background work for the first time.
                    return if end_stream { Pause::Ended } else { Pause::TurnUsed };
                }
                Ok(Poll::Ready(ResponseEvent::End(trailers))) => {
                    match trailers {
                        Some(trailers) => {
                            write_header_block(&mut self.writer, id, flag::END_STREAM, encode_trailers(&trailers));
                        }
                        None => self.writer.push_inline(&data_header(id, flag::END_STREAM, 0)),
                    }
                    return Pause::Ended;
                }
                Ok(Poll::Ready(ResponseEvent::Failed)) | Err(_) => return Pause::Failed,
            }
        }
    }

    /// The response is complete. If the request is not, RST_STREAM with NO_ERROR asks the peer to stop sending it (RFC 9113, 8.1).
    fn finish_stream(&mut self, id: u32) {
        let open = self.streams.get(id).is_some_and(|stream| stream.recv.open);
        if open {
            self.reset_stream(id, ErrorCode::NoError);
        } else {
            self.close_stream(id);
        }
    }

    /// Sends RST_STREAM and closes the stream.
    pub(crate) fn reset_stream(&mut self, id: u32, code: ErrorCode) {
        self.writer.push_inline(&rst_stream(id, code));
        self.remember_reset(id);
        self.close_stream(id);
    }
}

/// Writes a header block as HEADERS and, if it is long, CONTINUATION frames.
pub(crate) fn write_header_block(writer: &mut FrameWriter, stream: u32, flags: u8, block: BytesMut) {
    let mut block = block.freeze();
    let mut frame_type = FrameType::Headers;
    let mut flags = flags;
    loop {
        let part = block.split_to(block.len().min(MAX_FRAME_SIZE));
        if block.is_empty() {
            flags |= flag::END_HEADERS;
        }
        writer.push_inline(&FrameHeader { len: part.len(), frame_type, flags, stream_id: stream }.encode());
        writer.push_shared(part);
        if block.is_empty() {
            return;
        }
        (frame_type, flags) = (FrameType::Continuation, 0);
    }
}

fn encode_response_head(head: &response::Parts) -> BytesMut {
    let mut out = BytesMut::with_capacity(128);
    hpack::encode_status(&mut out, head.status.as_u16());
    encode_fields(&mut out, &head.headers);
    out
}

fn encode_trailers(trailers: &HeaderMap) -> BytesMut {
    let mut out = BytesMut::with_capacity(128);
    encode_fields(&mut out, trailers);
    out
}

fn encode_fields(out: &mut BytesMut, headers: &HeaderMap) {
    for (name, value) in headers {
        hpack::encode_literal(out, name.as_str().as_bytes(), value.as_bytes());
    }
}
