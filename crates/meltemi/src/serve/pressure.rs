//! Memory near its limit: what can be made again is dropped, then nobody new is let in. Streams that there are go on, so that an instance
//! that is too small serves whom it can instead of being ended.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::ops::process::{memory_limit, own_memory};

const OFTEN: Duration = Duration::from_secs(1);
/// While so little is held that it would have to double before anything is done.
const RARELY: Duration = Duration::from_secs(4);
/// Of a hundred of the limit: from here on things are dropped, and below it all is well again.
const TIGHT: i64 = 80;
/// From here on nobody new is let in. The rest is for pushes to those who are there.
const FULL: i64 = 88;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Calm,
    Tight,
    Full,
}

impl Level {
    /// Whoever is full stays so until it is calm: each refusal leads to another attempt.
    fn next(self, held: i64, limit: i64) -> Level {
        match held.saturating_mul(100) / limit.max(1) {
            share if share >= FULL => Level::Full,
            share if share < TIGHT => Level::Calm,
            _ if self == Level::Full => Level::Full,
            _ => Level::Tight,
        }
    }
}

/// Until the next look.
fn patience(held: i64, limit: i64) -> Duration {
    let is_little = held.saturating_mul(200) / limit.max(1) < TIGHT;
    if is_little { RARELY } else { OFTEN }
}

/// Looks for as long as the process lives. Without a limit there is nothing to do.
pub(crate) async fn follow(server: xds::Server) {
    let Some(limit) = memory_limit() else { return };
    let (mut level, mut wait) = (Level::Calm, OFTEN);
    loop {
        sleep(wait).await;
        let Some(held) = own_memory() else { continue };
        wait = patience(held, limit);
        let now = level.next(held, limit);
        if now != Level::Calm {
            server.relieve();
        }
        if now == level {
            continue;
        }
        server.shut(now == Level::Full);
        let (held, limit) = (held >> 20, limit >> 20);
        match now {
            Level::Calm => info!(held_mb = held, limit_mb = limit, "memory is enough again"),
            Level::Tight => {
                warn!(held_mb = held, limit_mb = limit, "memory is nearly used up; what can be made again is dropped");
            }
            Level::Full => {
                warn!(
                    held_mb = held,
                    limit_mb = limit,
                    "memory is used up; new streams are refused until less is held, raise the limit or shard"
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
    fn nobody_is_let_in_again_before_it_is_calm() {
        let mut level = Level::Calm;
        let mut seen = Vec::new();
        for held in [79, 80, 87, 88, 95, 81, 79, 85] {
            level = level.next(held, 100);
            seen.push(level);
        }
        use Level::{Calm, Full, Tight};
        assert_eq!(seen, [Calm, Tight, Tight, Full, Full, Full, Calm, Tight]);
    }

    #[test]
    fn it_is_looked_at_often_before_it_is_tight() {
        assert_eq!([0, 39, 40, 80, 200].map(|held| patience(held, 100)), [RARELY, RARELY, OFTEN, OFTEN, OFTEN]);
    }

    #[test]
    fn a_process_knows_what_it_holds() {
        assert!(own_memory().is_some_and(|held| held > 0));
    }
}
