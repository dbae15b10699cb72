//! Whether the peer is still there: it is pinged after a silence, and has to answer in time. The timer is touched only when it rings.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::{Limits, clock, ready::Nudge};

/// By this payload its answer is told from others.
pub(crate) const PAYLOAD: [u8; 8] = *b"meltemi?";

#[repr(C)]
pub(crate) struct Keepalive {
    /// With every word of the peer; the others when the timer rings.
    heard: Instant,
    /// A ping is not answered yet.
    asked: bool,
    timer: Pin<Box<Sleep>>,
    nudge: Arc<Nudge>,
    waker: Waker,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    Nothing,
    Ping,
    Dead,
}

impl Keepalive {
    /// `nudge`: woken when it is time to look.
    pub(crate) fn new(limits: &Limits, nudge: Nudge) -> Keepalive {
        let nudge = Arc::new(nudge);
        let heard = Instant::now();
        let timer = Box::pin(sleep_until(heard + limits.ping_after));
        Keepalive { timer, waker: Waker::from(nudge.clone()), nudge, heard, asked: false }
    }

    pub(crate) fn heard(&mut self) {
        self.heard = clock::now();
    }

    pub(crate) fn answered(&mut self) {
        self.asked = false;
    }

    pub(crate) fn look(&mut self, limits: &Limits) -> Beat {
        self.nudge.seen();
        let mut beat = Beat::Nothing;
        loop {
            if self.timer.as_mut().poll(&mut Context::from_waker(&self.waker)).is_pending() {
                return beat;
            }
            let now = Instant::now();
            if self.asked && now >= self.timer.deadline() {
                return Beat::Dead;
            }
            let next = self.heard + limits.ping_after;
            if next > now {
                self.timer.as_mut().reset(next);
            } else {
                (self.asked, beat) = (true, Beat::Ping);
                self.timer.as_mut().reset(now + limits.ping_patience);
            }
        }
    }
}
