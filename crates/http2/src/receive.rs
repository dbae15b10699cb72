//! Receiving: the effect of each frame type (RFC 9113, 6). `Err` is a connection error; a stream error resets the stream and is `Ok`.

use std::time::Duration;

use bytes::BytesMut;
use http::{Request, Response};

use crate::{
    RequestBody, clock,
    connection_state::{ConnectionState, GoAwayState, HeaderBlock},
    frame::{self, ErrorCode, FrameHeader, FrameType, MAX_STREAM_ID, MAX_WINDOW_SIZE, flag},
    hpack::{self, DecodeOutcome},
    keepalive,
    ready_queue::StreamWaker,
    request::{FieldSection, RequestHead},
    request_body::RecvBuffer,
    send::write_header_block,
    settings,
    stream::{RecvState, ResponseBody, Stream},
};

/// CONTINUATION frames of one header block. More are a CONTINUATION flood: each costs us more than the peer.
const MAX_CONTINUATION_FRAMES: u32 = 32;
/// From the first frame of a header block to its last. Checked with each frame: a peer that sends none fails the keepalive, since it can
/// answer no PING in between.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

impl<S, F, B> ConnectionState<S, F, B>
where
    S: Fn(Request<RequestBody>) -> F,
    F: Future<Output = Response<B>>,
    B: ResponseBody,
{
    pub(crate) fn recv_frame(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if !self.settings_received && header.frame_type != FrameType::Settings {
            return Err(ErrorCode::ProtocolError);
        }
        if self
            .header_block
            .as_ref()
            .is_some_and(|block| header.frame_type != FrameType::Continuation || header.stream_id != block.stream)
        {
            return Err(ErrorCode::ProtocolError);
        }
        match header.frame_type {
            FrameType::Data => self.recv_data(header, payload),
            FrameType::Headers => self.recv_headers(header, payload),
            FrameType::Priority => self.recv_priority(header, payload),
            FrameType::RstStream => self.recv_rst_stream(header, payload),
            FrameType::Settings => self.recv_settings(header, payload),
            FrameType::PushPromise => Err(ErrorCode::ProtocolError),
            FrameType::Ping => self.recv_ping(header, payload),
            FrameType::GoAway if header.stream_id != 0 => Err(ErrorCode::ProtocolError),
            FrameType::GoAway if header.len < 8 => Err(ErrorCode::FrameSizeError),
            FrameType::GoAway => {
                self.goaway.get_or_insert(GoAwayState::Received);
                Ok(())
            }
            FrameType::WindowUpdate => self.recv_window_update(header, payload),
            FrameType::Continuation => self.recv_continuation(header, payload),
            FrameType::Unknown => Ok(()),
        }
    }

    fn recv_data(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        let data = frame::strip_padding(header, payload)?;
        if self.is_idle(header.stream_id) {
            return Err(ErrorCode::ProtocolError);
        }
        self.recv_window.consume(payload.len())?;
        let end_stream = header.has_flag(flag::END_STREAM);
        if data.is_empty() && !end_stream {
            self.charge_abuse()?;
        }
        let Some(stream) = self.streams.get_mut(header.stream_id) else {
            self.release_recv_window(payload.len() as u32);
            return self.recv_data_on_closed_stream(header.stream_id);
        };
        let received = stream.recv.recv_data(payload.len(), data.len());
        let received = received.and_then(|()| if end_stream { stream.recv.recv_end_stream() } else { Ok(()) });
        if let Err(code) = received {
            self.release_recv_window(payload.len() as u32);
            return self.fail_stream(header.stream_id, code);
        }
        stream.recv_buffer.push(data);
        if end_stream {
            stream.recv_buffer.finish(Ok(()));
        }
        let padding = payload.len() - data.len();
        stream.recv.window += padding as i64;
        if padding > 0 && !end_stream {
            self.writer.push_inline(&frame::window_update(header.stream_id, padding as u32));
        }
        self.release_recv_window(padding as u32);
        Ok(())
    }

    fn recv_headers(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if header.stream_id.is_multiple_of(2) {
            return Err(ErrorCode::ProtocolError);
        }
        let mut fragment = frame::strip_padding(header, payload)?;
        let mut depends_on_itself = false;
        if header.has_flag(flag::PRIORITY) {
            depends_on_itself =
                frame::read_u32(fragment).ok_or(ErrorCode::FrameSizeError)? & MAX_STREAM_ID == header.stream_id;
            fragment = fragment.get(5..).ok_or(ErrorCode::FrameSizeError)?;
        }
        let end_stream = header.has_flag(flag::END_STREAM);
        if header.has_flag(flag::END_HEADERS) {
            return self.recv_header_block(header.stream_id, end_stream, depends_on_itself, fragment);
        }
        let block = HeaderBlock {
            stream: header.stream_id,
            end_stream,
            depends_on_itself,
            bytes: fragment.to_vec(),
            frames: 0,
            started_at: clock::now(),
        };
        self.header_block = Some(Box::new(block));
        Ok(())
    }

    fn recv_continuation(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        let Some(mut block) = self.header_block.take() else { return Err(ErrorCode::ProtocolError) };
        block.frames += 1;
        block.bytes.extend_from_slice(payload);
        let is_too_long = block.bytes.len() > 4 * self.config.max_header_list_size as usize;
        let is_late = clock::now().duration_since(block.started_at) > HEADER_TIMEOUT;
        if block.frames > MAX_CONTINUATION_FRAMES || is_too_long || is_late {
            return Err(ErrorCode::EnhanceYourCalm);
        }
        if header.has_flag(flag::END_HEADERS) {
            return self.recv_header_block(block.stream, block.end_stream, block.depends_on_itself, &block.bytes);
        }
        self.header_block = Some(block);
        Ok(())
    }

    /// A complete header block. It is decoded even if its stream is rejected, to keep the HPACK dynamic table in step with the peer's.
    fn recv_header_block(
        &mut self,
        id: u32,
        end_stream: bool,
        depends_on_itself: bool,
        block: &[u8],
    ) -> Result<(), ErrorCode> {
        let mut fields = FieldSection::default();
        let max_size = self.config.max_header_list_size as usize;
        let outcome = self.decoder.decode(block, max_size, |name, value| fields.add(name, value));
        let outcome = outcome.map_err(|_| ErrorCode::CompressionError)?;
        if self.is_idle(id) {
            self.last_stream_id = id;
            // By the final GOAWAY the peer knows that this stream is not served.
            if matches!(self.goaway, Some(GoAwayState::Final)) {
                return Ok(());
            }
            return match outcome {
                DecodeOutcome::TooLarge => self.reject_large_header_list(id),
                DecodeOutcome::Complete if depends_on_itself => self.reject_stream(id, ErrorCode::ProtocolError),
                DecodeOutcome::Complete => self.open_stream(id, end_stream, fields),
            };
        }
        let Some(stream) = self.streams.get_mut(id) else { return self.recv_headers_on_closed_stream(id) };
        let trailers = end_stream && fields.are_valid_trailers() && matches!(outcome, DecodeOutcome::Complete);
        let ended = if trailers { stream.recv.recv_end_stream() } else { Err(ErrorCode::ProtocolError) };
        match ended {
            Ok(()) => stream.recv_buffer.finish(Ok(())),
            Err(code) => {
                let code = if stream.recv.open || trailers { code } else { ErrorCode::StreamClosed };
                return self.fail_stream(id, code);
            }
        }
        Ok(())
    }

    fn open_stream(&mut self, id: u32, end_stream: bool, fields: FieldSection) -> Result<(), ErrorCode> {
        let Some(RequestHead { request, content_length: length }) = fields.into_request() else {
            return self.reject_stream(id, ErrorCode::ProtocolError);
        };
        if end_stream && length.is_some_and(|length| length > 0) {
            return self.reject_stream(id, ErrorCode::ProtocolError);
        }
        if self.streams.len() >= self.config.max_concurrent_streams as usize {
            return self.reject_stream(id, ErrorCode::RefusedStream);
        }
        let buffer = RecvBuffer::new(StreamWaker::new(id, &self.ready_queue), self.config.stream_window / 2);
        if end_stream {
            buffer.finish(Ok(()));
        }
        let window = i64::from(self.config.stream_window);
        let recv = RecvState { open: !end_stream, window, content_remaining: length };
        let response = (self.service)(request.map(|()| RequestBody::new(buffer.clone())));
        let stream = Stream::new(buffer, recv, response, self.initial_send_window);
        self.streams.insert(id, Box::new(stream));
        self.wake_stream(id);
        Ok(())
    }

    fn reject_large_header_list(&mut self, id: u32) -> Result<(), ErrorCode> {
        let mut block = BytesMut::new();
        hpack::encode_status(&mut block, 431);
        write_header_block(&mut self.writer, id, flag::END_STREAM, block);
        self.reject_stream(id, ErrorCode::NoError)
    }

    /// A stream error while opening a stream.
    fn reject_stream(&mut self, id: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        self.writer.push_inline(&frame::rst_stream(id, code));
        self.remember_reset(id);
        self.charge_abuse()
    }

    /// A stream error of the peer (RFC 9113, 5.4.2).
    fn fail_stream(&mut self, id: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        self.reset_stream(id, code);
        self.charge_abuse()
    }

    /// DATA for a closed stream. After our RST_STREAM it may have been in flight, and is ignored.
    fn recv_data_on_closed_stream(&mut self, id: u32) -> Result<(), ErrorCode> {
        if self.was_reset(id) {
            return Ok(());
        }
        self.writer.push_inline(&frame::rst_stream(id, ErrorCode::StreamClosed));
        self.charge_abuse()
    }

    fn recv_headers_on_closed_stream(&mut self, id: u32) -> Result<(), ErrorCode> {
        if self.was_reset(id) { Ok(()) } else { Err(ErrorCode::StreamClosed) }
    }

    fn recv_priority(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if header.stream_id == 0 {
            return Err(ErrorCode::ProtocolError);
        }
        let error = match frame::read_u32(payload) {
            Some(dependency) if payload.len() == 5 => {
                (dependency & MAX_STREAM_ID == header.stream_id).then_some(ErrorCode::ProtocolError)
            }
            _ => Some(ErrorCode::FrameSizeError),
        };
        match error {
            // RST_STREAM must not be sent for an idle stream.
            Some(code) if self.is_idle(header.stream_id) => Err(code),
            Some(code) => self.fail_stream(header.stream_id, code),
            None => Ok(()),
        }
    }

    fn recv_rst_stream(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if payload.len() != 4 {
            return Err(ErrorCode::FrameSizeError);
        }
        if self.is_idle(header.stream_id) {
            return Err(ErrorCode::ProtocolError);
        }
        if self.streams.get(header.stream_id).is_some() {
            self.close_stream(header.stream_id);
            self.charge_abuse()?;
        }
        Ok(())
    }

    fn recv_settings(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if header.stream_id != 0 {
            return Err(ErrorCode::ProtocolError);
        }
        if header.has_flag(flag::ACK) {
            return if payload.is_empty() { Ok(()) } else { Err(ErrorCode::FrameSizeError) };
        }
        self.settings_received = true;
        let window = settings::initial_window_size(self.initial_send_window, payload)?;
        let increment = window - self.initial_send_window;
        self.initial_send_window = window;
        self.writer.push_inline(&frame::settings_ack());
        if increment != 0 && !self.streams.is_empty() {
            // A frame of 15 bytes makes us visit every stream.
            self.charge_abuse()?;
            for stream in self.streams.iter_mut() {
                stream.send_window += increment;
                if stream.send_window > MAX_WINDOW_SIZE {
                    return Err(ErrorCode::FlowControlError);
                }
                stream.recv_buffer.waker.enqueue();
            }
        }
        Ok(())
    }

    fn recv_ping(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if header.stream_id != 0 {
            return Err(ErrorCode::ProtocolError);
        }
        let payload: [u8; 8] = payload.try_into().map_err(|_| ErrorCode::FrameSizeError)?;
        if !header.has_flag(flag::ACK) {
            self.writer.push_inline(&frame::ping(flag::ACK, payload));
        } else if payload == keepalive::PING_PAYLOAD {
            self.keepalive.record_ping_ack();
        } else if payload == GoAwayState::PING_PAYLOAD && matches!(self.goaway, Some(GoAwayState::Announced)) {
            self.send_final_goaway();
        }
        Ok(())
    }

    fn recv_window_update(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if payload.len() != 4 {
            return Err(ErrorCode::FrameSizeError);
        }
        let increment = i64::from(frame::read_u32(payload).unwrap_or(0) & MAX_STREAM_ID);
        if header.stream_id == 0 {
            self.send_window += increment;
            return match increment {
                0 => Err(ErrorCode::ProtocolError),
                _ if self.send_window > MAX_WINDOW_SIZE => Err(ErrorCode::FlowControlError),
                _ => {
                    self.wake_blocked_streams();
                    Ok(())
                }
            };
        }
        if self.is_idle(header.stream_id) {
            return Err(ErrorCode::ProtocolError);
        }
        if increment == 0 {
            return self.fail_stream(header.stream_id, ErrorCode::ProtocolError);
        }
        let Some(stream) = self.streams.get_mut(header.stream_id) else { return Ok(()) };
        stream.send_window += increment;
        if stream.send_window > MAX_WINDOW_SIZE {
            return self.fail_stream(header.stream_id, ErrorCode::FlowControlError);
        }
        stream.recv_buffer.waker.enqueue();
        Ok(())
    }
}
