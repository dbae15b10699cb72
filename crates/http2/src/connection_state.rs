//! The protocol state of one connection: streams, flow-control windows, GOAWAY, frames to be written. Received frames are handled in
//! `receive`, responses are written in `send`; the socket is in `connection`.

use std::{collections::VecDeque, sync::Arc};

use http::Response;
use tokio::time::Instant;

use crate::{
    ConnectionConfig,
    abuse_budget::AbuseBudget,
    frame::{self, DEFAULT_WINDOW_SIZE, ErrorCode, MAX_STREAM_ID},
    frame_writer::FrameWriter,
    hpack::Decoder,
    keepalive::{self, Keepalive, KeepaliveAction},
    ready_queue::{ReadyQueue, StreamWaker},
    settings,
    stream::ResponseBody,
    streams::Streams,
};

/// How many streams that we have reset are remembered: the peer may have sent frames before it received RST_STREAM.
const MAX_RECENT_RESETS: usize = 32;
/// Stream identifier 0, the connection itself: in the ready queue it stands for the keepalive timer.
pub(crate) const CONNECTION_ID: u32 = 0;

pub(crate) struct ConnectionState<S, F, B> {
    pub(crate) ready_queue: Arc<ReadyQueue>,
    pub(crate) streams: Streams<F, B>,
    pub(crate) writer: FrameWriter,
    /// The connection's flow-control window for DATA that we send.
    pub(crate) send_window: i64,
    pub(crate) recv_window: RecvWindow,
    /// Streams that wait for the connection window or for room in the writer, and wrote nothing in their last turn: they are woken first.
    pub(crate) starved: Vec<u32>,
    /// Those that wait and did write.
    pub(crate) blocked: Vec<u32>,
    /// The highest stream identifier that the peer has opened.
    pub(crate) last_stream_id: u32,
    /// The peer's first SETTINGS frame was received: it has to precede all other frames.
    pub(crate) settings_received: bool,
    pub(crate) goaway: Option<GoAwayState>,
    pub(crate) header_block: Option<Box<HeaderBlock>>,
    pub(crate) keepalive: Keepalive,
    /// Closed streams whose background work is not done.
    pub(crate) draining: Streams<F, B>,
    /// The peer's SETTINGS_INITIAL_WINDOW_SIZE: the send window of a new stream.
    pub(crate) initial_send_window: i64,
    pub(crate) service: S,
    pub(crate) config: ConnectionConfig,
    pub(crate) decoder: Decoder,
    recent_resets: VecDeque<u32>,
    abuse_budget: AbuseBudget,
}

/// A header block whose END_HEADERS was not received yet.
pub(crate) struct HeaderBlock {
    pub(crate) stream: u32,
    pub(crate) end_stream: bool,
    /// Its priority names the stream itself, which is a stream error.
    pub(crate) depends_on_itself: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: u32,
    pub(crate) started_at: Instant,
}

/// The connection's flow-control window for DATA that the peer sends.
pub(crate) struct RecvWindow {
    pub(crate) available: i64,
    /// Released since the last WINDOW_UPDATE frame.
    unannounced: u32,
}

/// The GOAWAY state of a connection (RFC 9113, 6.8). None: neither side has sent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoAwayState {
    /// The peer sent GOAWAY.
    Received,
    /// We sent GOAWAY with the highest identifier, and a PING whose acknowledgement tells that the peer has seen it.
    Announced,
    /// We sent GOAWAY with the last stream that is served.
    Final,
}

impl GoAwayState {
    /// Opaque data of the PING after the first GOAWAY.
    pub(crate) const PING_PAYLOAD: [u8; 8] = *b"meltemi.";
}

impl RecvWindow {
    pub(crate) fn consume(&mut self, len: usize) -> Result<(), ErrorCode> {
        self.available -= len as i64;
        if self.available < 0 { Err(ErrorCode::FlowControlError) } else { Ok(()) }
    }
}

impl<S, F, B> ConnectionState<S, F, B> {
    pub(crate) fn new(config: ConnectionConfig, service: S) -> ConnectionState<S, F, B> {
        let ready_queue = Arc::<ReadyQueue>::default();
        let waker = StreamWaker::new(CONNECTION_ID, &ready_queue);
        waker.enqueue();
        let mut writer = FrameWriter::default();
        writer.push_shared(settings::encode_preface(&config).freeze());
        ConnectionState {
            service,
            writer,
            decoder: Decoder::new(),
            header_block: None,
            settings_received: false,
            streams: Streams::new(),
            draining: Streams::new(),
            last_stream_id: 0,
            recent_resets: VecDeque::new(),
            send_window: i64::from(DEFAULT_WINDOW_SIZE),
            initial_send_window: i64::from(DEFAULT_WINDOW_SIZE),
            recv_window: RecvWindow {
                available: i64::from(config.connection_window.max(DEFAULT_WINDOW_SIZE)),
                unannounced: 0,
            },
            starved: Vec::new(),
            blocked: Vec::new(),
            keepalive: Keepalive::new(&config, waker),
            config,
            ready_queue,
            abuse_budget: AbuseBudget::new(),
            goaway: None,
        }
    }

    /// Starts a graceful shutdown: the first of two GOAWAY frames, so that requests in flight are still served. All streams are woken.
    pub(crate) fn announce_goaway(&mut self) {
        self.streams.iter().for_each(|stream| stream.recv_buffer.waker.enqueue());
        if matches!(self.goaway, None | Some(GoAwayState::Received)) {
            self.goaway = Some(GoAwayState::Announced);
            self.writer.push_inline(&frame::goaway(MAX_STREAM_ID, ErrorCode::NoError));
            self.writer.push_inline(&frame::ping(0, GoAwayState::PING_PAYLOAD));
        }
    }

    /// The peer acknowledged the first GOAWAY: streams that it has opened until now are served, later ones are not.
    pub(crate) fn send_final_goaway(&mut self) {
        self.goaway = Some(GoAwayState::Final);
        self.writer.push_inline(&frame::goaway(self.last_stream_id, ErrorCode::NoError));
    }

    /// Stream state "idle": never opened by the peer.
    pub(crate) fn is_idle(&self, id: u32) -> bool {
        id.is_multiple_of(2) || id > self.last_stream_id
    }

    /// Takes one token of the abuse budget; without one the connection ends with ENHANCE_YOUR_CALM.
    pub(crate) fn charge_abuse(&mut self) -> Result<(), ErrorCode> {
        if self.abuse_budget.try_take() { Ok(()) } else { Err(ErrorCode::EnhanceYourCalm) }
    }

    pub(crate) fn remember_reset(&mut self, id: u32) {
        if self.recent_resets.len() == MAX_RECENT_RESETS {
            self.recent_resets.pop_front();
        }
        self.recent_resets.push_back(id);
    }

    pub(crate) fn was_reset(&self, id: u32) -> bool {
        self.recent_resets.contains(&id)
    }

    /// Returns bytes to the connection window; announced by WINDOW_UPDATE once they are half of it.
    pub(crate) fn release_recv_window(&mut self, len: u32) {
        self.recv_window.unannounced += len;
        if self.recv_window.unannounced >= self.config.connection_window / 2 {
            let increment = std::mem::take(&mut self.recv_window.unannounced);
            self.recv_window.available += i64::from(increment);
            self.writer.push_inline(&frame::window_update(0, increment));
        }
    }

    /// The keepalive timer fired. `false`: the peer did not answer the PING in time.
    pub(crate) fn poll_keepalive(&mut self) -> bool {
        let action = self.keepalive.poll(&self.config);
        if action == KeepaliveAction::SendPing {
            self.writer.push_inline(&frame::ping(0, keepalive::PING_PAYLOAD));
        }
        action != KeepaliveAction::TimedOut
    }
}

impl<S, F, B> ConnectionState<S, F, B>
where
    F: Future<Output = Response<B>>,
    B: ResponseBody,
{
    /// Closes a stream, and returns its unread bytes to the connection window.
    pub(crate) fn close_stream(&mut self, id: u32) {
        let Some(mut stream) = self.streams.remove(id) else { return };
        self.release_recv_window(stream.recv_buffer.close());
        if stream.close() {
            self.draining.insert(id, stream);
        }
    }

    pub(crate) fn close_all_streams(&mut self) {
        for id in self.streams.ids() {
            self.close_stream(id);
        }
    }

    /// A connection error (RFC 9113, 5.4.1): closes all streams and sends GOAWAY.
    pub(crate) fn fail_connection(&mut self, code: ErrorCode) {
        self.close_all_streams();
        self.writer.push_inline(&frame::goaway(self.last_stream_id, code));
    }
}
