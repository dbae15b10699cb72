//! SIGTERM and SIGINT: requests to stop.

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From here on the signals no longer end the process by themselves.
    pub fn new() -> Result<StopSignals> {
        let handler = |kind| signal(kind).context("cannot handle signals");
        Ok(StopSignals { terminate: handler(SignalKind::terminate())?, interrupt: handler(SignalKind::interrupt())? })
    }

    /// The result of the work. `None`: a signal came first.
    pub async fn unless_requested<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.requested() => None,
        }
    }

    /// Each signal ends one wait.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
