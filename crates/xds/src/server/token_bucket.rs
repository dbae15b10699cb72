//! A token bucket: a rate limit with a burst.

use std::time::Duration;

use tokio::time::Instant;

/// Refilled at a steady rate, up to `burst` tokens. It may go into debt: whoever takes from it then has to wait.
pub(crate) struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    pub(crate) fn new(per_second: u32, burst: u32) -> TokenBucket {
        let burst = f64::from(burst.max(1));
        TokenBucket { per_second: f64::from(per_second), burst, tokens: burst, at: Instant::now() }
    }

    /// Takes tokens. Returns how long to wait until they are available; `None`: longer than `max_wait`, and none was taken.
    pub(crate) fn take_within(&mut self, now: Instant, count: usize, max_wait: Duration) -> Option<Duration> {
        let refill = now.saturating_duration_since(self.at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + refill).min(self.burst);
        self.at = now;
        let count = count as f64;
        let wait = Duration::try_from_secs_f64((count - self.tokens).max(0.0) / self.per_second).ok()?;
        if wait > max_wait {
            return None;
        }
        self.tokens -= count;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn allows_a_burst_and_then_the_rate() {
        let mut bucket = TokenBucket::new(10, 3);
        let mut take = || bucket.take_within(Instant::now(), 1, Duration::MAX).map(|wait| wait.as_millis());
        assert_eq!([take(), take(), take()], [Some(0); 3]);
        assert_eq!([take(), take()], [Some(100), Some(200)]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!([take(), take(), take(), take()], [Some(0), Some(0), Some(0), Some(100)], "no more than a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn takes_nothing_if_the_wait_would_be_too_long() {
        let mut bucket = TokenBucket::new(1, 1);
        let mut take = || bucket.take_within(Instant::now(), 1, SECOND);
        assert_eq!((take(), take(), take()), (Some(Duration::ZERO), Some(SECOND), None));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(take(), Some(SECOND));
    }
}
