//! Intervals and timeouts: backoff after failures, between lists, and for a silent API server.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// After the first failure; doubled with each that follows. No kind is requested more often than this.
    pub first_retry: Duration,
    pub longest_retry: Duration,
    /// Between two lists of a kind.
    pub between_lists: Duration,
    /// A watch without any event for this long, not even a bookmark, may be dead and is restarted from its last version. API servers send
    /// a bookmark every minute for kinds that have objects.
    pub idle: Duration,
    /// The requested duration of a watch.
    pub watch: Duration,
    /// The interval of retries for a kind that is absent or forbidden.
    pub absent: Duration,
    /// Between two audits of a kind. Zero: no audits.
    pub audit: Duration,
    /// How long an event may be delayed before an audit counts it as lost.
    pub late: Duration,
    /// Objects per page of a list.
    pub page: usize,
}

impl Default for Pacing {
    fn default() -> Pacing {
        Pacing {
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(20),
            between_lists: Duration::from_secs(5),
            idle: Duration::from_secs(80),
            watch: Duration::from_secs(300),
            absent: Duration::from_secs(10),
            audit: Duration::from_secs(50),
            late: Duration::from_secs(5),
            page: 500,
        }
    }
}

/// Consecutive failures.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// `asked`: the minimum that the server requests (Retry-After).
    pub(super) fn next(&mut self, pacing: &Pacing, asked: Option<Duration>) -> Duration {
        let doubled = pacing.first_retry * 2_u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let own = with_jitter(doubled.min(pacing.longest_retry));
        own.max(asked.unwrap_or_default().min(3 * pacing.longest_retry))
    }
}

/// Adds jitter of up to one half, so that simultaneous failures are not retried simultaneously.
pub(super) fn with_jitter(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + 0.5 * random_fraction())
}

/// From 0 to 1.
pub(super) fn random_fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_a_bound_and_resets() {
        let pacing = Pacing::default();
        let mut backoff = Backoff::default();
        for seconds in [1, 2, 4, 8, 16, 20, 20] {
            let (wait, least) = (backoff.next(&pacing, None), Duration::from_secs(seconds));
            assert!(wait >= least && wait < least * 3 / 2, "{wait:?} for {least:?}");
        }
        backoff.reset();
        assert!(backoff.next(&pacing, None) < Duration::from_secs(2));
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_bound() {
        let pacing = Pacing::default();
        let asked = |seconds| Backoff::default().next(&pacing, Some(Duration::from_secs(seconds)));
        assert_eq!(asked(30), Duration::from_secs(30));
        assert_eq!(asked(3600), Duration::from_secs(60));
    }
}
