//! A rate limit for log lines that any client can cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::server::token_bucket::TokenBucket;

pub struct LogLimit(Mutex<State>);

struct State {
    bucket: TokenBucket,
    skipped: u64,
}

/// Lines per second, and in a burst.
const PER_SECOND: u32 = 1;
const BURST: u32 = 20;

impl Default for LogLimit {
    fn default() -> LogLimit {
        LogLimit(Mutex::new(State { bucket: TokenBucket::new(PER_SECOND, BURST), skipped: 0 }))
    }
}

impl LogLimit {
    /// Whether to write the line now, and how many were skipped before it. `None`: it is skipped.
    pub fn permits(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.bucket.take_within(Instant::now(), 1, Duration::ZERO).is_some() {
            return Some(std::mem::take(&mut state.skipped));
        }
        state.skipped += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_burst_are_skipped_and_counted() {
        let limit = LogLimit::default();
        let written = (0..1000).filter(|_| limit.permits().is_some()).count();
        assert_eq!(written, BURST as usize);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((limit.permits(), limit.permits()), (Some(980), None));
    }
}
