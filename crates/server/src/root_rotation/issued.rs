//! Workloads that got a certificate since the CA in use was loaded, and with it all roots of the stage; and the ages of all certificates. In memory,
//! and bounded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use super::ages::CertificateAges;

/// The limit of addresses per identity: IPv6 gives a hostile workload any number of them. Beyond it, workloads of an identity count as not
/// covered until they are excluded.
const MAX_WORKLOADS_PER_IDENTITY: u32 = 16_384;
/// Eight bytes each.
const MAX_WORKLOADS: usize = 1 << 20;

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
    pub(crate) fn reset(&self, rotating: bool) {
        *self.state() = State { since: rotating.then(Instant::now), ..State::default() };
    }

    /// `signing_started`: before it was signed, since the CA may be replaced meanwhile. `not_after`: `None` if it is not known.
    pub(crate) fn record(
        &self,
        identity: &str,
        address: IpAddr,
        signing_started: Instant,
        not_after: Option<SystemTime>,
    ) {
        if let Some(not_after) = not_after {
            self.ages.record(identity, address, SystemTime::now(), not_after);
        }
        let mut state = self.state();
        if state.since.is_none_or(|since| signing_started < since) || state.workloads.len() >= MAX_WORKLOADS {
            return;
        }
        let (workload, identity) = (ca::workload(identity, address), ca::digest(&[identity.as_bytes()]));
        if state.workloads.contains(&workload) {
            return;
        }
        let of_identity = state.identities.entry(identity).or_default();
        if *of_identity < MAX_WORKLOADS_PER_IDENTITY {
            *of_identity += 1;
            state.workloads.insert(workload);
        }
    }

    /// Another replica has signed for this workload. Only for workloads connected here: that bounds their number by the number of
    /// streams, in place of the limit per identity.
    pub(crate) fn record_signed_by_other_replica(&self, workload: u64) {
        let mut state = self.state();
        if state.since.is_some() && state.workloads.len() < MAX_WORKLOADS {
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
        issued.record_signed_by_other_replica(ca::workload("spiffe://a", ADDRESS));
        assert!(!holds(&issued, "spiffe://a"));
        issued.reset(true);
        issued.record("spiffe://a", ADDRESS, Instant::now(), None);
        assert!(holds(&issued, "spiffe://a"));
        issued.reset(false);
        assert!(!holds(&issued, "spiffe://a"));
    }

    #[test]
    fn certificates_of_the_previous_ca_do_not_count() {
        let issued = IssuedCertificates::default();
        let signing_started = Instant::now() - Duration::from_millis(1);
        issued.reset(true);
        issued.record("spiffe://a", ADDRESS, signing_started, None);
        assert!(!holds(&issued, "spiffe://a"));
    }

    #[test]
    fn one_identity_at_many_addresses_leaves_room_for_others() {
        let issued = IssuedCertificates::default();
        issued.reset(true);
        let now = Instant::now();
        for address in 0..MAX_WORKLOADS_PER_IDENTITY * 2 {
            issued.record("spiffe://hostile", std::net::Ipv6Addr::from(u128::from(address)).into(), now, None);
        }
        assert_eq!(issued.state().workloads.len(), MAX_WORKLOADS_PER_IDENTITY as usize);
        issued.record("spiffe://a", ADDRESS, now, None);
        assert!(holds(&issued, "spiffe://a"));
    }
}
