//! The state of one connection beside its socket: streams, windows, and what is left to say. What frames do to it is in `received`, how
//! answers are sent in `sending`.

use std::{collections::VecDeque, sync::Arc};

use http::Response;

use crate::{
    Limits,
    frame::{self, FIRST_WINDOW, LAST_STREAM, Reason},
    hpack::Decoder,
    keepalive::{self, Beat, Keepalive},
    outlet::Outlet,
    patience::Patience,
    ready::{Nudge, Ready},
    settings,
    stream::Call,
    streams::Streams,
};

/// Streams that we have reset: the peer may have sent more before it knew.
const REMEMBERED: usize = 32;
/// The connection itself, among the streams.
pub(crate) const ITSELF: u32 = 0;

/// `S` makes an answer of each request. In this order: what every push and every answer to it needs lies together.
#[repr(C)]
pub(crate) struct Protocol<S, F, B> {
    pub(crate) ready: Arc<Ready>,
    pub(crate) streams: Streams<F, B>,
    pub(crate) outlet: Outlet,
    /// What the peer lets us send: on all streams.
    pub(crate) peer_window: i64,
    pub(crate) window: Window,
    /// Streams that go on when the connection has room; first those that had none.
    pub(crate) starved: Vec<u32>,
    pub(crate) blocked: Vec<u32>,
    /// The newest that the peer has opened.
    pub(crate) last: u32,
    /// The peer's settings have come.
    pub(crate) settled: bool,
    pub(crate) farewell: Option<Farewell>,
    pub(crate) block: Option<Box<Block>>,
    pub(crate) keepalive: Keepalive,
    /// Streams that are over and have work left.
    pub(crate) leaving: Streams<F, B>,
    /// What the peer lets us send on a new stream.
    pub(crate) first_window: i64,
    pub(crate) service: S,
    pub(crate) limits: Limits,
    pub(crate) decoder: Decoder,
    resets: VecDeque<u32>,
    patience: Patience,
}

/// A header block that has not come whole.
pub(crate) struct Block {
    pub(crate) stream: u32,
    pub(crate) ends: bool,
    pub(crate) depends_on_itself: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: u32,
}

/// What we let the peer send on all streams together.
pub(crate) struct Window {
    pub(crate) left: i64,
    /// Room that it was not told of yet.
    untold: u32,
}

/// How a connection ends in peace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// The peer opens no more streams.
    Theirs,
    /// We asked it to open no more, and wait until it has heard that.
    Asked,
    /// It was told which stream is the last one.
    Last,
}

impl Farewell {
    pub(crate) const PAYLOAD: [u8; 8] = *b"meltemi.";
}

impl Window {
    pub(crate) fn take(&mut self, len: usize) -> Result<(), Reason> {
        self.left -= len as i64;
        if self.left < 0 { Err(Reason::FlowControl) } else { Ok(()) }
    }
}

impl<S, F, B> Protocol<S, F, B> {
    pub(crate) fn new(limits: Limits, service: S) -> Protocol<S, F, B> {
        let ready = Arc::<Ready>::default();
        let itself = Nudge::new(ITSELF, &ready);
        itself.nudge();
        let mut outlet = Outlet::default();
        outlet.shared(settings::preface(&limits).freeze());
        Protocol {
            service,
            outlet,
            decoder: Decoder::new(),
            block: None,
            settled: false,
            streams: Streams::new(),
            leaving: Streams::new(),
            last: 0,
            resets: VecDeque::new(),
            peer_window: i64::from(FIRST_WINDOW),
            first_window: i64::from(FIRST_WINDOW),
            window: Window { left: i64::from(limits.connection_window.max(FIRST_WINDOW)), untold: 0 },
            starved: Vec::new(),
            blocked: Vec::new(),
            keepalive: Keepalive::new(&limits, itself),
            limits,
            ready,
            patience: Patience::new(),
            farewell: None,
        }
    }

    /// Lets the streams that there are end, takes no more, and ends with the last of them. They are woken, to hear of it from whoever decided that.
    pub(crate) fn retire(&mut self) {
        self.streams.iter().for_each(|stream| stream.inbox.nudge.nudge());
        if matches!(self.farewell, None | Some(Farewell::Theirs)) {
            self.farewell = Some(Farewell::Asked);
            self.outlet.small(&frame::go_away(LAST_STREAM, Reason::None));
            self.outlet.small(&frame::ping(0, Farewell::PAYLOAD));
        }
    }

    /// The peer has heard that it is to open no more: what it has opened until then is served.
    pub(crate) fn say_last(&mut self) {
        self.farewell = Some(Farewell::Last);
        self.outlet.small(&frame::go_away(self.last, Reason::None));
    }

    /// A number under which no stream was opened yet.
    pub(crate) fn is_idle(&self, id: u32) -> bool {
        id.is_multiple_of(2) || id > self.last
    }

    /// The peer did what costs it less than us.
    pub(crate) fn cost(&mut self) -> Result<(), Reason> {
        if self.patience.take() { Ok(()) } else { Err(Reason::EnhanceYourCalm) }
    }

    pub(crate) fn remember_reset(&mut self, id: u32) {
        if self.resets.len() == REMEMBERED {
            self.resets.pop_front();
        }
        self.resets.push_back(id);
    }

    pub(crate) fn was_reset(&self, id: u32) -> bool {
        self.resets.contains(&id)
    }

    /// Room that the peer is told of when it is worth it.
    pub(crate) fn give_back(&mut self, len: u32) {
        self.window.untold += len;
        if self.window.untold >= self.limits.connection_window / 2 {
            let room = std::mem::take(&mut self.window.untold);
            self.window.left += i64::from(room);
            self.outlet.small(&frame::window_update(0, room));
        }
    }

    /// Its timer rang. `false`: the peer is dead.
    pub(crate) fn beat(&mut self) -> bool {
        let beat = self.keepalive.look(&self.limits);
        if beat == Beat::Ping {
            self.outlet.small(&frame::ping(0, keepalive::PAYLOAD));
        }
        beat != Beat::Dead
    }
}

impl<S, F, B> Protocol<S, F, B>
where
    F: Future<Output = Response<B>>,
    B: Call,
{
    /// A stream is over. What it held of the connection's window is free.
    pub(crate) fn forget(&mut self, id: u32) {
        let Some(mut stream) = self.streams.remove(id) else { return };
        self.give_back(stream.inbox.leave());
        if stream.leave() {
            self.leaving.insert(id, stream);
        }
    }

    /// All streams are over.
    pub(crate) fn forget_all(&mut self) {
        for id in self.streams.ids() {
            self.forget(id);
        }
    }

    /// Nothing more will be said to the peer but this.
    pub(crate) fn break_off(&mut self, reason: Reason) {
        self.forget_all();
        self.outlet.small(&frame::go_away(self.last, reason));
    }
}
