//! Ctrl-C and SIGTERM: the run ends at its next step, and with it istiod, the API server and its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

#[derive(Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn listen() -> Result<Stop> {
        let stop = Stop(Arc::default());
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.0.clone()).context("listen for Ctrl-C")?;
        }
        Ok(stop)
    }

    /// `Err`: there was a signal.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("stopped by a signal");
        }
        Ok(())
    }
}
