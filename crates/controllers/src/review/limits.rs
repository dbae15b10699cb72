//! Limits of TokenReviews: per second, concurrent, and per address. Callers wait in order for a bounded time; one that
//! is cancelled, or would wait too long, takes nothing from the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sources::kube::RateLimiter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) per_second: u32,
    /// In progress.
    pub(super) concurrent: usize,
    pub(super) concurrent_per_address: usize,
    /// In progress or waiting.
    pub(super) pending: usize,
    pub(super) pending_per_address: usize,
    /// The longest wait of a caller.
    pub(super) max_wait: Duration,
}

pub(super) struct Limiter {
    limits: Limits,
    rate: RateLimiter,
    concurrent: Semaphore,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    count: usize,
    by_address: HashMap<IpAddr, Address>,
}

struct Address {
    count: usize,
    concurrent: Arc<Semaphore>,
}

/// A review may be made; it counts until this is dropped.
pub(super) struct Permit<'a> {
    _concurrent: SemaphorePermit<'a>,
    _of_address: OwnedSemaphorePermit,
    _pending: PendingGuard<'a>,
}

/// Counts a pending caller until dropped.
struct PendingGuard<'a> {
    limiter: &'a Limiter,
    address: IpAddr,
}

/// Over the limit; it may be tried again later.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy;

impl Limiter {
    pub(super) fn new(limits: Limits) -> Limiter {
        Limiter {
            limits,
            rate: RateLimiter::new(limits.per_second, limits.per_second.saturating_mul(2)),
            concurrent: Semaphore::new(limits.concurrent),
            pending: Mutex::default(),
        }
    }

    pub(super) async fn acquire(&self, from: IpAddr) -> Result<Permit<'_>, Busy> {
        let (guard, slots) = self.enter(network(from))?;
        let turn = async {
            // The limit per address first, so that only a few callers of an address are in the queue that all addresses share.
            let of_address = slots.acquire_owned().await.map_err(|_| Busy)?;
            let concurrent = self.concurrent.acquire().await.map_err(|_| Busy)?;
            self.rate.acquire().await;
            Ok((of_address, concurrent))
        };
        let (of_address, concurrent) = timeout(self.limits.max_wait, turn).await.map_err(|_| Busy)??;
        Ok(Permit { _concurrent: concurrent, _of_address: of_address, _pending: guard })
    }

    fn enter(&self, address: IpAddr) -> Result<(PendingGuard<'_>, Arc<Semaphore>), Busy> {
        let Limits { pending: most, pending_per_address, concurrent_per_address, .. } = self.limits;
        let mut pending = self.pending();
        if pending.count >= most {
            return Err(Busy);
        }
        let new = || Address { count: 0, concurrent: Arc::new(Semaphore::new(concurrent_per_address)) };
        let entry = pending.by_address.entry(address).or_insert_with(new);
        if entry.count >= pending_per_address {
            return Err(Busy);
        }
        entry.count += 1;
        let slots = entry.concurrent.clone();
        pending.count += 1;
        Ok((PendingGuard { limiter: self, address }, slots))
    }

    // Counts are changed in one step.
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        let mut pending = self.limiter.pending();
        pending.count -= 1;
        if let Some(entry) = pending.by_address.get_mut(&self.address) {
            entry.count -= 1;
            if entry.count == 0 {
                pending.by_address.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: for IPv6 the /64 of a host, which has many addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & (u128::MAX << 64)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use tokio::time::{Instant, sleep};

    use super::*;

    fn begin<F: Future>(future: &mut Pin<Box<F>>) {
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    const LIMITS: Limits = Limits {
        per_second: 10,
        concurrent: 4,
        concurrent_per_address: 2,
        pending: 100,
        pending_per_address: 10,
        max_wait: Duration::from_secs(2),
    };

    fn address(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    async fn review(limiter: &Limiter, from: IpAddr, took: Duration) -> Result<(), Busy> {
        let _permit = limiter.acquire(from).await?;
        sleep(took).await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_over_the_limit_are_rejected_at_once() {
        let limiter = Limiter::new(LIMITS);
        let (began, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut pending: Vec<_> = (0..10).map(|_| Box::pin(review(&limiter, address(1), hour))).collect();
        pending.iter_mut().for_each(begin);
        assert_eq!(limiter.acquire(address(1)).await.err(), Some(Busy));
        assert_eq!(began.elapsed(), Duration::ZERO);
        drop(pending);
        assert!(limiter.acquire(address(1)).await.is_ok());
        assert_eq!(limiter.pending().by_address.len(), 0, "who has gone is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_does_not_use_up_the_slots_of_others() {
        let limiter = Limiter::new(Limits { per_second: 1000, ..LIMITS });
        let hour = Duration::from_secs(3600);
        let mut stalled: Vec<_> = (0..10).map(|_| Box::pin(review(&limiter, address(1), hour))).collect();
        stalled.iter_mut().for_each(begin);
        let began = Instant::now();
        for other in 2..50 {
            assert_eq!(review(&limiter, address(other), Duration::ZERO).await, Ok(()));
        }
        assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
        let same = review(&limiter, address(1), Duration::ZERO).await;
        assert_eq!(same, Err(Busy));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_address_delays_another_by_a_few_reviews() {
        let limiter = Arc::new(Limiter::new(LIMITS));
        let flood = (0..20).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                loop {
                    let _ = review(&limiter, address(1), Duration::from_millis(1)).await;
                    sleep(Duration::from_millis(1)).await;
                }
            })
        });
        let flood: Vec<_> = flood.collect();
        sleep(Duration::from_secs(60)).await;
        for _ in 0..10 {
            let began = Instant::now();
            assert_eq!(review(&limiter, address(2), Duration::from_millis(1)).await, Ok(()));
            // At 10 per second, behind two of the flood that hold a slot and two that wait for one.
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        }
        flood.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_caller_releases_its_slot_and_uses_no_rate() {
        let limiter = Limiter::new(Limits { concurrent: 1, concurrent_per_address: 1, ..LIMITS });
        let permit = limiter.acquire(address(1)).await;
        let mut queued: Vec<_> = (2..100).map(|number| Box::pin(limiter.acquire(address(number)))).collect();
        queued.iter_mut().for_each(begin);
        drop((queued, permit));
        let began = Instant::now();
        for _ in 0..19 {
            assert!(limiter.acquire(address(1)).await.is_ok());
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "the burst is still there, but for one");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_the_limit() {
        let limiter = Limiter::new(LIMITS);
        let _permits = [limiter.acquire(address(1)).await, limiter.acquire(address(1)).await];
        let began = Instant::now();
        assert_eq!(limiter.acquire(address(1)).await.err(), Some(Busy));
        assert_eq!(began.elapsed(), LIMITS.max_wait);
    }

    #[test]
    fn the_addresses_of_one_ipv6_host_are_one() {
        let parsed = |text: &str| network(text.parse().unwrap());
        assert_eq!(parsed("2001:db8::1"), parsed("2001:db8::2:3:4:5"));
        assert_ne!(parsed("2001:db8::1"), parsed("2001:db8:0:1::1"));
        assert_eq!(parsed("::ffff:10.0.0.1"), address(1));
        assert_ne!(address(1), address(2));
    }
}
