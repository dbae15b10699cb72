//! When each workload last got a certificate from this replica, and when that one ends: for the console. In memory, and bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Some 32 bytes each. Beyond it, those of workloads without an entry are not recorded until others have expired.
const TOTAL: usize = 1 << 17;
/// Expired entries are looked for when there are more than this, and then at twice as many as are left.
const FIRST_SWEEP: usize = 1024;

#[derive(Default)]
pub struct CertificateAges(Mutex<State>);

#[derive(Default)]
struct State {
    /// By `ca::workload`.
    newest: HashMap<u64, CertificateAge>,
    /// Entries at which the next sweep is due, beyond the first.
    sweep_at: usize,
    /// No certificate of an entry ends before: a sweep finds nothing until then.
    first_end: u32,
}

/// The newest certificate of a workload, in seconds of Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateAge {
    pub issued: u32,
    pub ends: u32,
}

impl CertificateAges {
    pub(crate) fn record(&self, identity: &str, address: IpAddr, issued: SystemTime, ends: SystemTime) {
        let age = CertificateAge { issued: seconds(issued), ends: seconds(ends) };
        let workload = ca::workload(identity, address);
        let mut state = self.state();
        if state.newest.len() >= state.sweep_at.clamp(FIRST_SWEEP, TOTAL) && age.issued >= state.first_end {
            state.newest.retain(|_, kept| kept.ends > age.issued);
            state.sweep_at = state.newest.len() * 2;
            state.first_end = state.newest.values().map(|kept| kept.ends).min().unwrap_or(u32::MAX);
        }
        if state.newest.len() < TOTAL || state.newest.contains_key(&workload) {
            state.newest.insert(workload, age);
            state.first_end = state.first_end.min(age.ends);
        }
    }

    /// `None`: another replica issued it, or this one before it was restarted.
    pub fn of(&self, identity: &str, address: IpAddr) -> Option<CertificateAge> {
        self.state().newest.get(&ca::workload(identity, address)).copied()
    }

    // Single insertions: the state is consistent after a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until 2106.
fn seconds(at: SystemTime) -> u32 {
    let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since_epoch.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::time::Duration;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_newest_certificate_of_a_workload_counts() {
        let ages = CertificateAges::default();
        ages.record("spiffe://a", ADDRESS, at(100), at(200));
        ages.record("spiffe://a", ADDRESS, at(180), at(280));
        assert_eq!(ages.of("spiffe://a", ADDRESS), Some(CertificateAge { issued: 180, ends: 280 }));
        assert_eq!(ages.of("spiffe://b", ADDRESS), None);
    }

    #[test]
    fn expired_ones_make_room() {
        let ages = CertificateAges::default();
        for number in 0..TOTAL * 2 {
            ages.record("spiffe://hostile", Ipv6Addr::from(number as u128).into(), at(100), at(200));
        }
        assert_eq!(ages.state().newest.len(), TOTAL);
        ages.record("spiffe://a", ADDRESS, at(150), at(250));
        assert_eq!(ages.of("spiffe://a", ADDRESS), None, "there is no room");
        ages.record("spiffe://a", ADDRESS, at(200), at(300));
        assert_eq!((ages.of("spiffe://a", ADDRESS).is_some(), ages.state().newest.len()), (true, 1));
    }
}
