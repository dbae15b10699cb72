//! A token bucket for async callers, first come first served. A caller that is cancelled while it waits takes no token.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

pub struct RateLimiter {
    /// Locked by the caller whose turn it is while it waits for its token, so that there is never any debt.
    bucket: Mutex<Bucket>,
}

struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl RateLimiter {
    /// Both at least 1.
    pub fn new(per_second: u32, burst: u32) -> RateLimiter {
        let (per_second, burst) = (f64::from(per_second.max(1)), f64::from(burst.max(1)));
        RateLimiter { bucket: Mutex::new(Bucket { per_second, burst, tokens: burst, filled: Instant::now() }) }
    }

    /// Returns when the caller may proceed. Cancel safe.
    pub async fn acquire(&self) {
        let mut bucket = self.bucket.lock().await;
        let wait = bucket.wait(Instant::now());
        // Timers fire slightly late, however short the sleep.
        if !wait.is_zero() {
            sleep(wait).await;
            bucket.wait(Instant::now());
        }
        bucket.tokens -= 1.0;
    }
}

impl Bucket {
    /// Refills the bucket, and returns the time until it has a token.
    fn wait(&mut self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + since * self.per_second).min(self.burst);
        self.filled = now;
        Duration::from_secs_f64((1.0 - self.tokens).max(0.0) / self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    async fn waited(limiter: &RateLimiter) -> u128 {
        let began = Instant::now();
        limiter.acquire().await;
        began.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_over_the_rate_wait_after_a_burst() {
        let limiter = RateLimiter::new(10, 20);
        for _ in 0..20 {
            assert_eq!(waited(&limiter).await, 0);
        }
        assert!((100..=102).contains(&waited(&limiter).await));
        assert!((98..=102).contains(&waited(&limiter).await));
        sleep(Duration::from_secs(60)).await;
        for _ in 0..20 {
            assert_eq!(waited(&limiter).await, 0, "it fills up to the burst");
        }
        assert_ne!(waited(&limiter).await, 0, "and no further");
    }

    /// A regression test: 20,000 cancelled callers once delayed the next one by minutes.
    #[tokio::test(start_paused = true)]
    async fn cancelled_waiters_leave_no_debt() {
        let limiter = RateLimiter::new(10, 1);
        limiter.acquire().await;
        let mut waiting: Vec<_> = (0..20_000).map(|_| Box::pin(limiter.acquire())).collect();
        for waiter in &mut waiting {
            assert!(timeout(Duration::ZERO, waiter).await.is_err());
        }
        drop(waiting);
        assert!(waited(&limiter).await <= 102);
    }
}
