//! Admission of new streams: a rate limit, and counts per address and per caller. Knows nothing of what is requested.

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

use crate::server::{stream_error::StreamError, token_bucket::TokenBucket};

/// The longest that a new stream waits for the rate limit, as in istiod: another instance may have room.
const MAX_WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Admission {
    per_address: usize,
    per_caller: usize,
    open: Mutex<OpenCounts>,
    /// `None`: unlimited.
    rate: Option<Mutex<TokenBucket>>,
    rejects_new_streams: AtomicBool,
}

/// The number of open streams.
#[derive(Default)]
struct OpenCounts {
    by_address: HashMap<IpAddr, usize>,
    /// By identity and address: replicas share an identity, and clients behind a gateway share its address.
    by_caller: HashMap<(Arc<str>, IpAddr), usize>,
}

/// An admitted stream; it is counted until this is dropped.
pub(crate) struct AdmittedStream {
    admission: Arc<Admission>,
    address: IpAddr,
    /// `None`: not authenticated.
    caller: Option<Arc<str>>,
}

impl Admission {
    /// `per_second`: 0 means unlimited.
    pub(crate) fn new(per_address: usize, per_caller: usize, per_second: u32) -> Arc<Admission> {
        let rate = (per_second > 0).then(|| Mutex::new(TokenBucket::new(per_second, 1)));
        Arc::new(Admission {
            per_address,
            per_caller,
            open: Mutex::default(),
            rate,
            rejects_new_streams: AtomicBool::new(false),
        })
    }

    pub(crate) fn reject_new_streams(&self, reject: bool) {
        self.rejects_new_streams.store(reject, Ordering::Relaxed);
    }

    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<AdmittedStream, StreamError> {
        if self.rejects_new_streams.load(Ordering::Relaxed) {
            return Err(StreamError::LowMemory);
        }
        self.count(address)
    }

    /// Also while new streams are rejected: for short calls.
    pub(crate) fn count(self: &Arc<Self>, address: IpAddr) -> Result<AdmittedStream, StreamError> {
        let mut open = self.open();
        let count = open.by_address.entry(address).or_default();
        if *count >= self.per_address {
            return Err(StreamError::TooManyStreams { limit: self.per_address });
        }
        *count += 1;
        Ok(AdmittedStream { admission: self.clone(), address, caller: None })
    }

    /// Takes from the rate limit of new streams. Returns how long the stream has to wait.
    pub(crate) fn reserve(&self) -> Result<Duration, StreamError> {
        let Some(rate) = &self.rate else { return Ok(Duration::ZERO) };
        let wait = rate.lock().unwrap_or_else(PoisonError::into_inner).take_within(Instant::now(), 1, MAX_WAIT);
        wait.ok_or(StreamError::TooManyRequests)
    }

    fn open(&self) -> MutexGuard<'_, OpenCounts> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmittedStream {
    /// Counts it for its caller too, once that is authenticated.
    pub(crate) fn count_caller(&mut self, caller: &str) -> Result<(), StreamError> {
        let limit = self.admission.per_caller;
        let key = (Arc::from(caller), self.address);
        let mut open = self.admission.open();
        let count = open.by_caller.entry(key).or_default();
        if *count >= limit {
            return Err(StreamError::TooManyOfCaller { limit });
        }
        *count += 1;
        self.caller = Some(Arc::from(caller));
        Ok(())
    }
}

impl Drop for AdmittedStream {
    fn drop(&mut self) {
        let mut open = self.admission.open();
        decrement(&mut open.by_address, &self.address);
        if let Some(caller) = self.caller.take() {
            decrement(&mut open.by_caller, &(caller, self.address));
        }
    }
}

/// An entry at zero is removed.
fn decrement<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_open_streams_per_address() {
        let admission = Admission::new(2, 2, 0);
        let [here, there]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let first = admission.admit(here);
        let _second = admission.admit(here).expect("room");
        assert!(matches!(admission.admit(here), Err(StreamError::TooManyStreams { limit: 2 })));
        assert!(admission.admit(there).is_ok());
        drop(first);
        assert!(admission.admit(here).is_ok());
        assert_eq!(admission.open().by_address.len(), 1, "an entry at zero is removed");
        admission.reject_new_streams(true);
        assert!(matches!(admission.admit(there), Err(StreamError::LowMemory)));
        assert!(admission.count(there).is_ok(), "certificates are renewed");
    }

    #[test]
    fn limits_open_streams_per_identity_and_address() {
        let admission = Admission::new(10, 1, 0);
        let [here, there]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let admit = |address, caller| {
            let mut admitted = admission.admit(address)?;
            admitted.count_caller(caller).map(|()| admitted)
        };
        let first = admit(here, "spiffe://a");
        assert!(first.is_ok());
        assert!(matches!(admit(here, "spiffe://a"), Err(StreamError::TooManyOfCaller { limit: 1 })));
        assert!(admit(here, "spiffe://b").is_ok());
        assert!(admit(there, "spiffe://a").is_ok(), "a replica");
        drop(first);
        assert!(admit(here, "spiffe://a").is_ok());
        let open = admission.open();
        assert_eq!((open.by_address.len(), open.by_caller.len()), (0, 0));
    }
}
