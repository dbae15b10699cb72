//! Memory pressure: near the limit caches are dropped, then new streams are rejected. Existing streams stay, so that an instance that is
//! too small serves as many proxies as it can instead of being killed.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::process_memory::{anonymous_memory, memory_limit};

const FREQUENT_CHECKS: Duration = Duration::from_secs(1);
/// While memory would have to double before anything is done.
const RARE_CHECKS: Duration = Duration::from_secs(4);
/// In percent of the limit: from here on caches are dropped; below it the pressure has ended.
const HIGH: i64 = 80;
/// In percent of the limit: from here on new streams are rejected. The rest is for pushes to existing ones.
const CRITICAL: i64 = 88;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Normal,
    High,
    Critical,
}

impl Level {
    /// `Critical` lasts until `Normal`, since rejected proxies reconnect at once.
    fn next(self, used: i64, limit: i64) -> Level {
        match used.saturating_mul(100) / limit.max(1) {
            share if share >= CRITICAL => Level::Critical,
            share if share < HIGH => Level::Normal,
            _ if self == Level::Critical => Level::Critical,
            _ => Level::High,
        }
    }
}

/// The time until the next check.
fn interval(used: i64, limit: i64) -> Duration {
    let is_little = used.saturating_mul(200) / limit.max(1) < HIGH;
    if is_little { RARE_CHECKS } else { FREQUENT_CHECKS }
}

/// Checks for as long as the process lives. Returns where there is no limit. `configured`: a limit of the settings.
pub(crate) async fn follow(server: xds::Server, configured: Option<i64>) {
    let Some(limit) = memory_limit(configured) else { return };
    let (mut level, mut wait) = (Level::Normal, FREQUENT_CHECKS);
    loop {
        sleep(wait).await;
        let Some(used) = anonymous_memory() else { continue };
        wait = interval(used, limit);
        let now = level.next(used, limit);
        if now != Level::Normal {
            server.drop_caches();
        }
        if now == level {
            continue;
        }
        server.reject_new_streams(now == Level::Critical);
        let (used, limit) = (used >> 20, limit >> 20);
        match now {
            Level::Normal => info!(used_mb = used, limit_mb = limit, "memory pressure ended"),
            Level::High => {
                warn!(used_mb = used, limit_mb = limit, "memory pressure: dropping caches");
            }
            Level::Critical => {
                warn!(
                    used_mb = used,
                    limit_mb = limit,
                    "memory pressure: rejecting new streams; raise the limit or shard"
                );
            }
        }
        level = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_streams_are_accepted_again_only_when_the_pressure_has_ended() {
        let mut level = Level::Normal;
        let mut seen = Vec::new();
        for used in [79, 80, 87, 88, 95, 81, 79, 85] {
            level = level.next(used, 100);
            seen.push(level);
        }
        use Level::{Critical, High, Normal};
        assert_eq!(seen, [Normal, High, High, Critical, Critical, Critical, Normal, High]);
    }

    #[test]
    fn checks_are_frequent_before_the_pressure_is_high() {
        assert_eq!(
            [0, 39, 40, 80, 200].map(|used| interval(used, 100)),
            [RARE_CHECKS, RARE_CHECKS, FREQUENT_CHECKS, FREQUENT_CHECKS, FREQUENT_CHECKS]
        );
    }

    #[test]
    fn the_memory_of_this_process_is_known() {
        assert!(anonymous_memory().is_some_and(|used| used > 0));
    }
}
