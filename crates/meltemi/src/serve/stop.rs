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

    /// Each signal ends one wait.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
