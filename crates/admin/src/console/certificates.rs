//! Certificates of connected workloads by age, and those that end next. Known of those that this replica signed since it was started.

use std::time::SystemTime;

use serde::Serialize;
use server::CertificateAge;

use super::proxy_rows::milliseconds;
use crate::access::Access;
use crate::page::Page;
use crate::state::AdminState;

const HOUR: u64 = 3600;
/// Upper bounds of age in seconds; the last group has none.
const BOUNDS: [u64; 5] = [HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 7 * 24 * HOUR];
/// Proxies that are named.
const NAMED: usize = 20;

#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Certificates {
    bounds: [u64; BOUNDS.len()],
    /// Proxies in each group of age.
    counts: [usize; BOUNDS.len() + 1],
    /// Of a known age, and past their end.
    expired: usize,
    /// Authenticated, with a certificate or token of another replica, or from before a restart.
    unknown: usize,
    /// Without authentication.
    plaintext: usize,
    /// Those that end next: name, when it was issued, and when it ends, in Unix milliseconds.
    next: Vec<(String, u64, u64)>,
}

pub(super) fn page(state: &AdminState, access: &Access) -> Page {
    if let Err(rejection) = super::for_control_plane(access) {
        return rejection;
    }
    let ages = state.server.certificate_ages.get();
    let mut certificates = Certificates { bounds: BOUNDS, ..Certificates::default() };
    let mut known = Vec::new();
    state.server.connections.for_each(|connection| {
        let Some(caller) = &connection.caller else {
            certificates.plaintext += 1;
            return;
        };
        match ages.and_then(|ages| ages.of(caller, connection.address.ip())) {
            Some(age) => known.push((connection.proxy.clone(), age)),
            None => certificates.unknown += 1,
        }
    });
    let now = milliseconds(SystemTime::now()) / 1000;
    for (_, age) in &known {
        certificates.add(*age, now);
    }
    known.sort_by(|(a, one), (b, other)| one.ends.cmp(&other.ends).then_with(|| a.id.cmp(&b.id)));
    let named = known.iter().take(NAMED);
    certificates.next = named
        .map(|(proxy, age)| (proxy.id.clone(), u64::from(age.issued) * 1000, u64::from(age.ends) * 1000))
        .collect();
    Page::json(false, &certificates)
}

impl Certificates {
    /// `now`: in Unix seconds.
    fn add(&mut self, age: CertificateAge, now: u64) {
        let seconds = now.saturating_sub(age.issued.into());
        let group = BOUNDS.iter().position(|bound| seconds < *bound).unwrap_or(BOUNDS.len());
        self.counts[group] += 1;
        self.expired += usize::from(u64::from(age.ends) <= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_counted_in_its_group() {
        let mut certificates = Certificates::default();
        let age = |issued, ends| CertificateAge { issued, ends };
        let now = 1_000_000;
        for age in [age(999_999, 2_000_000), age(996_400, 1_000_001), age(100, 1_000_000)] {
            certificates.add(age, now);
        }
        assert_eq!((certificates.counts, certificates.expired), ([1, 1, 0, 0, 0, 1], 1));
    }
}
