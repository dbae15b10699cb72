//! How much a peer may do that costs it less than us: it has a stock that refills slowly.

use std::time::Duration;

use tokio::time::Instant;

/// Streams that are opened and reset, requests that are no requests, frames that say nothing. Well-behaved peers do each now and then; a
/// proxy in front of many of them may reset hundreds of streams at once.
const STOCK: u32 = 1000;
const REFILL: Duration = Duration::from_millis(30);

pub(crate) struct Patience {
    left: u32,
    since: Option<Instant>,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { left: STOCK, since: None }
    }

    /// Whether there was some left.
    pub(crate) fn take(&mut self) -> bool {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let refilled = now.duration_since(since).as_millis() / REFILL.as_millis();
        if let Ok(more @ 1..) = u32::try_from(refilled) {
            self.left = self.left.saturating_add(more).min(STOCK);
            self.since = Some(now);
        }
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return false,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_and_comes_back_slowly() {
        let mut patience = Patience::new();
        assert!((0..STOCK).all(|_| patience.take()));
        assert!(!patience.take());
        tokio::time::advance(REFILL * 3).await;
        assert_eq!((0..9).filter(|_| patience.take()).count(), 3);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..2 * STOCK).filter(|_| patience.take()).count(), STOCK as usize);
    }
}
