//! The abuse budget of a connection: a token bucket for what costs the peer less than us (rapid resets, malformed requests, empty
//! frames). Without a token the connection ends with ENHANCE_YOUR_CALM.

use std::time::Duration;

use tokio::time::Instant;

/// Tokens of a full bucket. Well-behaved peers need one now and then; a proxy that many clients share may reset hundreds of streams at
/// once.
const CAPACITY: u32 = 1000;
/// Time per token: 33 a second.
const REFILL_INTERVAL: Duration = Duration::from_millis(30);

pub(crate) struct AbuseBudget {
    tokens: u32,
    refilled_at: Option<Instant>,
}

impl AbuseBudget {
    pub(crate) fn new() -> AbuseBudget {
        AbuseBudget { tokens: CAPACITY, refilled_at: None }
    }

    /// Takes a token; `false`: the bucket is empty.
    pub(crate) fn try_take(&mut self) -> bool {
        let now = Instant::now();
        let since = *self.refilled_at.get_or_insert(now);
        let refilled = now.duration_since(since).as_millis() / REFILL_INTERVAL.as_millis();
        if let Ok(more @ 1..) = u32::try_from(refilled) {
            self.tokens = self.tokens.saturating_add(more).min(CAPACITY);
            self.refilled_at = Some(now);
        }
        self.tokens = match self.tokens.checked_sub(1) {
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
    async fn tokens_run_out_and_are_refilled_up_to_the_capacity() {
        let mut budget = AbuseBudget::new();
        assert!((0..CAPACITY).all(|_| budget.try_take()));
        assert!(!budget.try_take());
        tokio::time::advance(REFILL_INTERVAL * 3).await;
        assert_eq!((0..9).filter(|_| budget.try_take()).count(), 3);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..2 * CAPACITY).filter(|_| budget.try_take()).count(), CAPACITY as usize);
    }
}
