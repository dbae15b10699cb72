//! How long to wait: between tries that failed, between lists, and for an API server that says nothing.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// After the first failure; doubled with each that follows. No kind asks more often than this.
    pub first_retry: Duration,
    pub longest_retry: Duration,
    /// Between two lists of a kind.
    pub between_lists: Duration,
    /// A watch that brings nothing for this long, not even a bookmark, may be dead and is begun anew from where it was. API servers send
    /// a bookmark every minute for kinds that have objects.
    pub idle: Duration,
    /// How long the API server lets a watch last.
    pub watch: Duration,
    /// How often a kind that is absent or forbidden is tried again.
    pub absent: Duration,
    /// Between two audits of a kind. Zero: there are none.
    pub audit: Duration,
    /// How long an event may be on its way before an audit calls it lost.
    pub late: Duration,
    /// Objects of one page of a list.
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

/// Tries that failed since the last that did not.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// `asked`: what the server wants us to wait at least.
    pub(super) fn next(&mut self, pacing: &Pacing, asked: Option<Duration>) -> Duration {
        let doubled = pacing.first_retry * 2_u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let own = spread(doubled.min(pacing.longest_retry));
        own.max(asked.unwrap_or_default().min(3 * pacing.longest_retry))
    }
}

/// Up to a half more, so that what failed together does not come back together.
pub(super) fn spread(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + 0.5 * chance())
}

/// From 0 to 1.
pub(super) fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_begin_anew() {
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
    fn the_server_may_ask_for_more_but_not_for_an_hour() {
        let pacing = Pacing::default();
        let asked = |seconds| Backoff::default().next(&pacing, Some(Duration::from_secs(seconds)));
        assert_eq!(asked(30), Duration::from_secs(30));
        assert_eq!(asked(3600), Duration::from_secs(60));
    }
}
