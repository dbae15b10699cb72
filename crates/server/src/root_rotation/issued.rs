//! Workloads that got a certificate since the CA in use was loaded, and with it all roots of the stage; and the ages of all certificates. In memory,
//! and bounded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use super::ages::CertificateAges;

/// The limit of addresses per identity: IPv6 gives a hostile workload any number of them. Beyond it, replicas of an identity count as not
/// covered until they are excluded.
const PER_IDENTITY: u32 = 16_384;
/// Eight bytes each.
const TOTAL: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct IssuedCertificates {
    state: Mutex<State>,
    /// Whatever signed them.
    pub(crate) ages: Arc<CertificateAges>,
}

#[derive(Default)]
struct State {
    /// When the CA in use was loaded. `None`: its root is not being rotated, and nothing is recorded.
    since: Option<Instant>,
    /// Hashes by `ca::workload`.
    workloads: HashSet<u64>,
    /// The number of workloads of an identity.
    identities: HashMap<u64, u32>,
}

impl IssuedCertificates {
    /// Another CA signs from now on: earlier certificates do not count.
    pub(crate) fn restart(&self, rotating: bool) {
        *self.state() = State { since: rotating.then(Instant::now), ..State::default() };
    }

    /// `begun`: before it was signed, since the CA may be replaced meanwhile. `ends`: `None` if it is not known.
    pub(crate) fn record(&self, identity: &str, address: IpAddr, begun: Instant, ends: Option<SystemTime>) {
        if let Some(ends) = ends {
            self.ages.record(identity, address, SystemTime::now(), ends);
        }
        let mut state = self.state();
        if state.since.is_none_or(|since| begun < since) || state.workloads.len() >= TOTAL {
            return;
        }
        let (workload, identity) = (ca::workload(identity, address), ca::digest(&[identity.as_bytes()]));
        if state.workloads.contains(&workload) {
            return;
        }
        let of_identity = state.identities.entry(identity).or_default();
        if *of_identity < PER_IDENTITY {
            *of_identity += 1;
            state.workloads.insert(workload);
        }
    }

    /// Records that another replica has signed for a workload that is connected here, so that there are no more of them than streams.
    pub(crate) fn record_elsewhere(&self, workload: u64) {
        let mut state = self.state();
        if state.since.is_some() && state.workloads.len() < TOTAL {
            state.workloads.insert(workload);
        }
    }

    pub(crate) fn holds(&self, workload: u64) -> bool {
        self.state().workloads.contains(&workload)
    }

    // Single insertions: the state is consistent after a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn holds(issued: &IssuedCertificates, identity: &str) -> bool {
        issued.holds(ca::workload(identity, ADDRESS))
    }

    #[test]
    fn nothing_is_recorded_while_no_root_is_rotated() {
        let issued = IssuedCertificates::default();
        issued.record("spiffe://a", ADDRESS, Instant::now(), None);
        issued.record_elsewhere(ca::workload("spiffe://a", ADDRESS));
        assert!(!holds(&issued, "spiffe://a"));
        issued.restart(true);
        issued.record("spiffe://a", ADDRESS, Instant::now(), None);
        assert!(holds(&issued, "spiffe://a"));
        issued.restart(false);
        assert!(!holds(&issued, "spiffe://a"));
    }

    #[test]
    fn certificates_of_the_previous_ca_do_not_count() {
        let issued = IssuedCertificates::default();
        let begun = Instant::now() - Duration::from_millis(1);
        issued.restart(true);
        issued.record("spiffe://a", ADDRESS, begun, None);
        assert!(!holds(&issued, "spiffe://a"));
    }

    #[test]
    fn one_identity_at_many_addresses_leaves_room_for_others() {
        let issued = IssuedCertificates::default();
        issued.restart(true);
        let now = Instant::now();
        for address in 0..PER_IDENTITY * 2 {
            issued.record("spiffe://hostile", std::net::Ipv6Addr::from(u128::from(address)).into(), now, None);
        }
        assert_eq!(issued.state().workloads.len(), PER_IDENTITY as usize);
        issued.record("spiffe://a", ADDRESS, now, None);
        assert!(holds(&issued, "spiffe://a"));
    }
}
