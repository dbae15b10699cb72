//! Waiting for what another process, task or thread does: the only deadline and the only polling loops of the tests. How long something
//! took is never asked here; `cargo xtask bench` measures speed.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// No test should reach it: it ends those that would wait for ever, also on two cores that a build and two busy loops share.
pub const DEADLINE: Duration = Duration::from_secs(180);

const INTERVAL: Duration = Duration::from_millis(20);

/// Asks again and again until the condition holds. Fails at once when the condition itself does, such as for a process that has ended,
/// and at the deadline; `what` ends the sentence "waited for …".
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds().await? {
        check_deadline(began, what)?;
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

/// The same on a thread that may block.
pub fn eventually_blocking(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        check_deadline(began, what)?;
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Lets time pass in which something must not happen. A slow machine can hide a fault from such a test, but cannot fail it; what must
/// happen is waited for with `eventually`.
pub async fn observe(window: Duration) {
    tokio::time::sleep(window).await;
}

fn check_deadline(began: Instant, what: &str) -> Result<()> {
    ensure!(began.elapsed() < DEADLINE, "waited {} s for {what}", DEADLINE.as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[tokio::test]
    async fn asks_until_the_condition_holds() {
        let mut asked = 0;
        let third = async || {
            asked += 1;
            Ok(asked == 3)
        };
        eventually("the third time", third).await.unwrap();
        assert_eq!(asked, 3);
        let mut asked = 0;
        eventually_blocking("the second time", || {
            asked += 1;
            Ok(asked == 2)
        })
        .unwrap();
        assert_eq!(asked, 2);
    }

    #[tokio::test]
    async fn a_condition_that_fails_ends_the_wait() {
        let ended = eventually("a process that has ended", async || bail!("it ended")).await;
        assert_eq!(ended.unwrap_err().to_string(), "it ended");
    }

    #[test]
    fn the_deadline_names_what_did_not_come() {
        let late = Instant::now().checked_sub(DEADLINE).expect("the machine runs for longer than that");
        assert_eq!(check_deadline(late, "a port").unwrap_err().to_string(), "waited 180 s for a port");
    }
}
