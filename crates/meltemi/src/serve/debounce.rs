//! Waiting for a source to be quiet. Knows nothing of what it carries.

use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::settings::Debounce;

/// Takes what arrives until nothing came for `after`, or until the first has waited for `max`. Returns how long that was; `None`:
/// the source is gone.
pub(crate) async fn batch<T>(source: &mut Receiver<T>, limits: Debounce, mut take: impl FnMut(T)) -> Option<Duration> {
    take(source.recv().await?);
    let first = Instant::now();
    let mut last = first;
    loop {
        let until = (last + limits.after).min(first + limits.max);
        tokio::select! {
            // At the limit the refresh comes first, or a source that never rests would postpone it for ever.
            biased;
            () = sleep_until(until) => break,
            next = source.recv() => match next {
                Some(item) => {
                    take(item);
                    last = Instant::now();
                }
                None => break,
            },
        }
    }
    Some(first.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    const LIMITS: Debounce = Debounce { after: Duration::from_millis(100), max: Duration::from_secs(1) };

    /// One item every `pause`, `count` of them; what the first batch held and how long it took.
    async fn first_batch(pause: u64, count: u32) -> (Vec<u32>, Duration) {
        let (tx, mut rx) = mpsc::channel(1);
        tokio::spawn(async move {
            for item in 0..count {
                if tx.send(item).await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(pause)).await;
            }
            std::future::pending::<()>().await;
        });
        let mut items = Vec::new();
        let waited = batch(&mut rx, LIMITS, |item| items.push(item)).await.unwrap();
        (items, waited)
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_waits_for_quiet() {
        let (items, waited) = first_batch(5000, 1).await;
        assert_eq!(items, [0]);
        assert_eq!(waited.as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn close_changes_are_one_batch() {
        let (items, waited) = first_batch(50, 4).await;
        assert_eq!(items, [0, 1, 2, 3]);
        assert_eq!(waited.as_millis(), 250);
    }

    #[tokio::test(start_paused = true)]
    async fn a_restless_source_is_cut_off() {
        let (items, waited) = first_batch(60, 1000).await;
        assert_eq!(waited.as_millis(), 1000);
        assert_eq!(items.len(), 17);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_ends_hands_over_what_it_gave() {
        let (tx, mut rx) = mpsc::channel(4);
        tx.send(7).await.unwrap();
        drop(tx);
        let mut items = Vec::new();
        assert!(batch(&mut rx, LIMITS, |item| items.push(item)).await.is_some());
        assert_eq!(items, [7]);
        assert!(batch(&mut rx, LIMITS, |item: i32| items.push(item)).await.is_none());
    }
}
