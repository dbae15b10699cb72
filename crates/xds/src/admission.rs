//! Who may open a stream, and how often something may be asked: buckets of tokens and a count per address. Knows
//! nothing of what is asked.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::refusal::Refusal;

/// The longest that a new stream waits for its turn, as in istiod: another instance may have room.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Admission {
    per_address: usize,
    per_caller: usize,
    open: Mutex<Open>,
    /// `None`: as many as come.
    rate: Option<Mutex<Bucket>>,
    /// Nobody new is let in.
    shut: AtomicBool,
}

/// How many streams there are.
#[derive(Default)]
struct Open {
    by_address: HashMap<IpAddr, usize>,
    /// Of an identity from an address: replicas share an identity, and whoever comes through a gateway its address.
    by_caller: HashMap<(Arc<str>, IpAddr), usize>,
}

/// A stream that was let in; it counts until this is dropped.
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    address: IpAddr,
    /// `None`: nobody asked who it is.
    caller: Option<Arc<str>>,
}

impl Admission {
    /// `per_second`: 0 means as many as come.
    pub(crate) fn new(per_address: usize, per_caller: usize, per_second: u32) -> Arc<Admission> {
        let rate = (per_second > 0).then(|| Mutex::new(Bucket::new(per_second, 1)));
        Arc::new(Admission { per_address, per_caller, open: Mutex::default(), rate, shut: AtomicBool::new(false) })
    }

    pub(crate) fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::Relaxed);
    }

    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Admitted, Refusal> {
        if self.shut.load(Ordering::Relaxed) {
            return Err(Refusal::Full);
        }
        self.count(address)
    }

    /// Also while nobody new is let in: for calls that are over soon.
    pub(crate) fn count(self: &Arc<Self>, address: IpAddr) -> Result<Admitted, Refusal> {
        let mut open = self.open();
        let count = open.by_address.entry(address).or_default();
        if *count >= self.per_address {
            return Err(Refusal::TooManyStreams { limit: self.per_address });
        }
        *count += 1;
        Ok(Admitted { admission: self.clone(), address, caller: None })
    }

    /// How long a stream waits before it is served, if streams come faster than they may.
    pub(crate) fn turn(&self) -> Result<Duration, Refusal> {
        let Some(rate) = &self.rate else { return Ok(Duration::ZERO) };
        let wait = rate.lock().unwrap_or_else(PoisonError::into_inner).take_within(Instant::now(), 1, PATIENCE);
        wait.ok_or(Refusal::TooManyRequests)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// Counts it for its caller too, once that is known.
    pub(crate) fn belongs_to(&mut self, caller: &str) -> Result<(), Refusal> {
        let limit = self.admission.per_caller;
        let key = (Arc::from(caller), self.address);
        let mut open = self.admission.open();
        let count = open.by_caller.entry(key).or_default();
        if *count >= limit {
            return Err(Refusal::TooManyOfCaller { limit });
        }
        *count += 1;
        self.caller = Some(Arc::from(caller));
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.admission.open();
        leave(&mut open.by_address, &self.address);
        if let Some(caller) = self.caller.take() {
            leave(&mut open.by_caller, &(caller, self.address));
        }
    }
}

/// Who has gone is forgotten.
fn leave<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Tokens that come at a steady rate, up to a number of them. It may go into debt: whoever takes then has to wait.
pub(crate) struct Bucket {
    per_second: f64,
    most: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) fn new(per_second: u32, most: u32) -> Bucket {
        let most = f64::from(most.max(1));
        Bucket { per_second: f64::from(per_second), most, tokens: most, at: Instant::now() }
    }

    /// Takes tokens. Answers how long to wait until they are there; `None`: longer than `patience`, and none was taken.
    pub(crate) fn take_within(&mut self, now: Instant, count: usize, patience: Duration) -> Option<Duration> {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.most);
        self.at = now;
        let count = count as f64;
        let wait = Duration::try_from_secs_f64((count - self.tokens).max(0.0) / self.per_second).ok()?;
        if wait > patience {
            return None;
        }
        self.tokens -= count;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_at_its_rate_after_a_burst() {
        let mut bucket = Bucket::new(10, 3);
        let mut take = || bucket.take_within(Instant::now(), 1, Duration::MAX).map(|wait| wait.as_millis());
        assert_eq!([take(), take(), take()], [Some(0); 3]);
        assert_eq!([take(), take()], [Some(100), Some(200)]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!([take(), take(), take(), take()], [Some(0), Some(0), Some(0), Some(100)], "no more than a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_takes_nothing() {
        let mut bucket = Bucket::new(1, 1);
        let mut take = || bucket.take_within(Instant::now(), 1, PATIENCE);
        assert_eq!((take(), take(), take()), (Some(Duration::ZERO), Some(PATIENCE), None));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(take(), Some(PATIENCE));
    }

    #[test]
    fn streams_of_an_address_are_counted_while_they_live() {
        let admission = Admission::new(2, 2, 0);
        let [here, there]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let first = admission.enter(here);
        let _second = admission.enter(here).expect("room");
        assert!(matches!(admission.enter(here), Err(Refusal::TooManyStreams { limit: 2 })));
        assert!(admission.enter(there).is_ok());
        drop(first);
        assert!(admission.enter(here).is_ok());
        assert_eq!(admission.open().by_address.len(), 1, "who has gone is forgotten");
        admission.shut(true);
        assert!(matches!(admission.enter(there), Err(Refusal::Full)));
        assert!(admission.count(there).is_ok(), "certificates are renewed");
    }

    #[test]
    fn streams_of_an_identity_are_counted_by_address() {
        let admission = Admission::new(10, 1, 0);
        let [here, there]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let entered = |address, caller| {
            let mut admitted = admission.enter(address)?;
            admitted.belongs_to(caller).map(|()| admitted)
        };
        let first = entered(here, "spiffe://a");
        assert!(first.is_ok());
        assert!(matches!(entered(here, "spiffe://a"), Err(Refusal::TooManyOfCaller { limit: 1 })));
        assert!(entered(here, "spiffe://b").is_ok());
        assert!(entered(there, "spiffe://a").is_ok(), "a replica");
        drop(first);
        assert!(entered(here, "spiffe://a").is_ok());
        let open = admission.open();
        assert_eq!((open.by_address.len(), open.by_caller.len()), (0, 0));
    }
}
