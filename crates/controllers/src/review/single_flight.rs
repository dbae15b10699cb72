//! Single flight: one review at a time for each token; concurrent callers with the same token share its answer. If the caller that makes the review is
//! cancelled, the next one makes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use super::answers::TokenHash;

pub(super) struct SingleFlight<T> {
    in_flight: Mutex<HashMap<TokenHash, Arc<OnceCell<T>>>>,
}

/// A caller that waits for an answer, or makes it.
struct FlightGuard<'a, T> {
    single_flight: &'a SingleFlight<T>,
    token: TokenHash,
    answer: Arc<OnceCell<T>>,
}

impl<T: Clone> SingleFlight<T> {
    pub(super) fn new() -> SingleFlight<T> {
        SingleFlight { in_flight: Mutex::default() }
    }

    /// `review` is not polled if one is in progress.
    pub(super) async fn join(&self, token: TokenHash, review: impl Future<Output = T>) -> T {
        let answer = self.in_flight().entry(token).or_default().clone();
        let waiting = FlightGuard { single_flight: self, token, answer };
        waiting.answer.get_or_init(|| review).await.clone()
    }
}

impl<T> SingleFlight<T> {
    fn in_flight(&self) -> MutexGuard<'_, HashMap<TokenHash, Arc<OnceCell<T>>>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for FlightGuard<'_, T> {
    fn drop(&mut self) {
        let mut in_flight = self.single_flight.in_flight();
        let same = in_flight.get(&self.token).is_some_and(|current| Arc::ptr_eq(current, &self.answer));
        // Removed once there is an answer, or without one if nobody else waits: the map holds the other reference.
        if same && (self.answer.initialized() || Arc::strong_count(&self.answer) == 2) {
            in_flight.remove(&self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn callers_with_the_same_token_share_one_review() {
        let (single_flight, reviews) = (Arc::new(SingleFlight::new()), Arc::new(AtomicUsize::new(0)));
        let ask = |token: &'static str| {
            let (single_flight, reviews) = (single_flight.clone(), reviews.clone());
            tokio::spawn(async move {
                let review = async {
                    sleep(SECOND).await;
                    reviews.fetch_add(1, Ordering::Relaxed)
                };
                single_flight.join(TokenHash::of(token), review).await
            })
        };
        let asked: Vec<_> = (0..100).map(|number| ask(if number % 2 == 0 { "a" } else { "b" })).collect();
        for asked in asked {
            assert!(asked.await.unwrap() < 2);
        }
        assert_eq!(reviews.load(Ordering::Relaxed), 2);
        assert_eq!(single_flight.in_flight().len(), 0);
        assert_eq!(ask("a").await.unwrap(), 2, "an answer is for those who asked before it came");
    }

    #[tokio::test(start_paused = true)]
    async fn if_a_caller_goes_away_the_next_makes_the_review() {
        let single_flight = SingleFlight::new();
        let token = TokenHash::of("a");
        let leaves = timeout(SECOND, single_flight.join(token, pending()));
        let stays = single_flight.join(token, async { 7 });
        let (left, stayed) = tokio::join!(leaves, stays);
        assert!(left.is_err());
        assert_eq!(stayed, 7);
        assert_eq!(single_flight.in_flight().len(), 0);
        assert!(timeout(SECOND, single_flight.join(token, pending())).await.is_err());
        assert_eq!(single_flight.in_flight().len(), 0, "nobody waits any more");
    }
}
