//! Requests without a pause, to see that no change breaks one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::http;

pub struct Traffic {
    sent: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
    sender: thread::JoinHandle<Result<()>>,
}

impl Traffic {
    pub fn start(to: SocketAddr, host: &'static str) -> Traffic {
        let (sent, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (Arc::clone(&sent), Arc::clone(&ended));
        let sender = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                http::get(to, host, "/").context("a request failed during the changes")?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Traffic { sent, ended, sender }
    }

    /// How many were sent. `Err`: one failed.
    pub fn end(self) -> Result<usize> {
        self.ended.store(true, Ordering::Relaxed);
        self.sender.join().map_err(|_| anyhow!("the sender of requests panicked"))??;
        Ok(self.sent.load(Ordering::Relaxed))
    }
}
