//! Which workloads got a certificate since the authority in use was loaded, and with it all roots of the stage. In memory, and bounded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A workload that asks from many addresses, which IPv6 gives to everybody, does not use up the place of others. Beyond this,
/// replicas of one identity count as not covered, until they no longer count at all.
const PER_IDENTITY: u32 = 16_384;
/// Eight bytes each.
const TOTAL: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Issued(Mutex<State>);

#[derive(Default)]
struct State {
    /// When the authority in use was loaded. `None`: its root is not being rotated, and nothing is recorded.
    since: Option<Instant>,
    /// As `ca::workload` numbers them.
    workloads: HashSet<u64>,
    /// How many of an identity.
    identities: HashMap<u64, u32>,
}

impl Issued {
    /// Another authority signs from now on: what was signed before is no evidence.
    pub(crate) fn restart(&self, rotating: bool) {
        *self.state() = State { since: rotating.then(Instant::now), ..State::default() };
    }

    /// `begun`: before it was signed, since the authority may be replaced meanwhile.
    pub(crate) fn note(&self, identity: &str, address: IpAddr, begun: Instant) {
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

    /// Another replica has signed for it. Only of workloads that are connected here, so that there are no more of them than streams.
    pub(crate) fn note_elsewhere(&self, workload: u64) {
        let mut state = self.state();
        if state.since.is_some() && state.workloads.len() < TOTAL {
            state.workloads.insert(workload);
        }
    }

    pub(crate) fn holds(&self, workload: u64) -> bool {
        self.state().workloads.contains(&workload)
    }

    // Single insertions: nothing is half done after a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn holds(issued: &Issued, identity: &str) -> bool {
        issued.holds(ca::workload(identity, ADDRESS))
    }

    #[test]
    fn nothing_is_recorded_while_no_root_is_rotated() {
        let issued = Issued::default();
        issued.note("spiffe://a", ADDRESS, Instant::now());
        issued.note_elsewhere(ca::workload("spiffe://a", ADDRESS));
        assert!(!holds(&issued, "spiffe://a"));
        issued.restart(true);
        issued.note("spiffe://a", ADDRESS, Instant::now());
        assert!(holds(&issued, "spiffe://a"));
        issued.restart(false);
        assert!(!holds(&issued, "spiffe://a"));
    }

    #[test]
    fn what_the_authority_before_signed_is_no_evidence() {
        let issued = Issued::default();
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        issued.restart(true);
        issued.note("spiffe://a", ADDRESS, begun);
        assert!(!holds(&issued, "spiffe://a"));
    }

    #[test]
    fn one_identity_at_many_addresses_leaves_room_for_others() {
        let issued = Issued::default();
        issued.restart(true);
        let now = Instant::now();
        for address in 0..PER_IDENTITY * 2 {
            issued.note("spiffe://hostile", std::net::Ipv6Addr::from(u128::from(address)).into(), now);
        }
        assert_eq!(issued.state().workloads.len(), PER_IDENTITY as usize);
        issued.note("spiffe://a", ADDRESS, now);
        assert!(holds(&issued, "spiffe://a"));
    }
}
