//! Keepalive: a PING after a time without frames of the peer, and a deadline for its acknowledgement. Received frames store a time
//! stamp only; the timer is reset when it fires.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::{ConnectionConfig, clock, ready_queue::StreamWaker};

/// Opaque data that tells the acknowledgement of a keepalive PING from others.
pub(crate) const PING_PAYLOAD: [u8; 8] = *b"meltemi?";

pub(crate) struct Keepalive {
    last_received: Instant,
    ping_outstanding: bool,
    timer: Pin<Box<Sleep>>,
    connection_waker: Arc<StreamWaker>,
    timer_waker: Waker,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeepaliveAction {
    Wait,
    SendPing,
    TimedOut,
}

impl Keepalive {
    /// `waker` is woken when the timer fires.
    pub(crate) fn new(config: &ConnectionConfig, waker: StreamWaker) -> Keepalive {
        let waker = Arc::new(waker);
        let now = Instant::now();
        let timer = Box::pin(sleep_until(now + config.keepalive_interval));
        Keepalive {
            timer,
            timer_waker: Waker::from(waker.clone()),
            connection_waker: waker,
            last_received: now,
            ping_outstanding: false,
        }
    }

    pub(crate) fn record_received(&mut self) {
        self.last_received = clock::now();
    }

    pub(crate) fn record_ping_ack(&mut self) {
        self.ping_outstanding = false;
    }

    pub(crate) fn poll(&mut self, config: &ConnectionConfig) -> KeepaliveAction {
        self.connection_waker.take_queued();
        let mut action = KeepaliveAction::Wait;
        loop {
            if self.timer.as_mut().poll(&mut Context::from_waker(&self.timer_waker)).is_pending() {
                return action;
            }
            let now = Instant::now();
            if self.ping_outstanding && now >= self.timer.deadline() {
                return KeepaliveAction::TimedOut;
            }
            let next = self.last_received + config.keepalive_interval;
            if next > now {
                self.timer.as_mut().reset(next);
            } else {
                (self.ping_outstanding, action) = (true, KeepaliveAction::SendPing);
                self.timer.as_mut().reset(now + config.keepalive_timeout);
            }
        }
    }
}
