//! SIGTERM and SIGINT: the wish that the process ends.

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// From here on the signals no longer end the process by themselves.
    pub(crate) fn new() -> Result<Stop> {
        let handler = |kind| signal(kind).context("cannot handle signals");
        Ok(Stop { terminate: handler(SignalKind::terminate())?, interrupt: handler(SignalKind::interrupt())? })
    }

    /// What the work gives. `None`: a signal came first.
    pub(crate) async fn unless_asked<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.asked() => None,
        }
    }

    /// Each signal ends one wait.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
