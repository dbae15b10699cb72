//! The time as a turn of a connection knows it. The clock is read once: to read it, a processor finishes all that it has begun, and a turn is mostly
//! waiting for memory. Durations of work are measured elsewhere.

use std::cell::Cell;

use tokio::time::Instant;

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

struct Over(Option<Instant>);

impl Drop for Over {
    fn drop(&mut self) {
        NOW.set(self.0);
    }
}

/// Until `work` is done this thread gets one answer from `now`.
pub fn turn<T>(work: impl FnOnce() -> T) -> T {
    let _over = Over(NOW.replace(Some(Instant::now())));
    work()
}

/// When the turn began; outside of turns, what the clock says.
pub fn now() -> Instant {
    NOW.get().unwrap_or_else(Instant::now)
}

/// Something within the turn took long.
pub fn look() {
    if NOW.get().is_some() {
        NOW.set(Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_has_one_time() {
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(now() - start, Duration::from_secs(1));
        turn(|| {
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(now() - start, Duration::from_secs(1));
        });
        let broken = std::panic::catch_unwind(|| turn(|| panic!("in a turn")));
        assert!(broken.is_err());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(now() - start, Duration::from_secs(2), "also after a panic");
    }

    #[test]
    fn long_work_is_seen() {
        let began = std::time::Instant::now();
        turn(|| {
            let before = now();
            std::thread::sleep(Duration::from_millis(2));
            assert_eq!(now(), before);
            look();
            assert!(now() - before >= Duration::from_millis(2));
        });
        assert!(NOW.get().is_none() && began.elapsed() >= Duration::from_millis(2));
    }
}
