//! Single flight: one review at a time for each token; who asks for the same token meanwhile waits for the same answer. If whoever makes the review goes
//! away, the next one who waits makes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use super::answers::TokenHash;

pub(super) struct SingleFlight<T> {
    under_way: Mutex<HashMap<TokenHash, Arc<OnceCell<T>>>>,
}

/// One who waits for an answer, or makes it.
struct Waiting<'a, T> {
    single_flight: &'a SingleFlight<T>,
    token: TokenHash,
    answer: Arc<OnceCell<T>>,
}

impl<T: Clone> SingleFlight<T> {
    pub(super) fn new() -> SingleFlight<T> {
        SingleFlight { under_way: Mutex::default() }
    }

    /// `review` is not begun if one is under way.
    pub(super) async fn join(&self, token: TokenHash, review: impl Future<Output = T>) -> T {
        let answer = self.under_way().entry(token).or_default().clone();
        let waiting = Waiting { single_flight: self, token, answer };
        waiting.answer.get_or_init(|| review).await.clone()
    }
}

impl<T> SingleFlight<T> {
    fn under_way(&self) -> MutexGuard<'_, HashMap<TokenHash, Arc<OnceCell<T>>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        let mut under_way = self.single_flight.under_way();
        let same = under_way.get(&self.token).is_some_and(|held| Arc::ptr_eq(held, &self.answer));
        // With an answer it is over for those who come later; without one, if nobody else waits: the map has the other reference.
        if same && (self.answer.initialized() || Arc::strong_count(&self.answer) == 2) {
            under_way.remove(&self.token);
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
        assert_eq!(single_flight.under_way().len(), 0);
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
        assert_eq!(single_flight.under_way().len(), 0);
        assert!(timeout(SECOND, single_flight.join(token, pending())).await.is_err());
        assert_eq!(single_flight.under_way().len(), 0, "nobody waits any more");
    }
}
