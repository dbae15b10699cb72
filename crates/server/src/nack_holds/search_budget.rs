//! The time that searches for objects to blame may take. A search is up to seconds of a processor, and any client can have one by rejecting what it is
//! sent. So each client pays for its own, and all together take a small part of one processor. Knows nothing of rejections.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use views::ClassClient;

/// A search waits until as many times its duration have passed: a client's searches take a fiftieth of a processor, those of all clients a tenth.
const PAUSE_OF_CLIENT: u32 = 50;
const PAUSE_OF_ALL: u32 = 10;
/// How much of that may be left when the next search begins: 2 s of searches of one client, 10 s of all.
const CREDIT: Duration = Duration::from_secs(100);

#[derive(Debug, Default)]
pub(super) struct SearchBudget {
    /// Of those that have not paid yet.
    clients: HashMap<ClassClient, Debt>,
    all: Debt,
}

/// When what was spent is paid. `None`: nothing was.
#[derive(Debug, Default, Clone, Copy)]
struct Debt(Option<Instant>);

impl Debt {
    fn is_too_much(self, now: Instant) -> bool {
        self.0.is_some_and(|paid_at| paid_at > now + CREDIT)
    }

    fn is_paid(self, now: Instant) -> bool {
        self.0.is_none_or(|paid_at| paid_at <= now)
    }

    fn add(&mut self, pause: Duration, now: Instant) {
        self.0 = Some(self.0.map_or(now, |paid_at| paid_at.max(now)) + pause);
    }
}

impl SearchBudget {
    pub(super) fn allows(&self, client: &ClassClient, now: Instant) -> bool {
        let of_client = self.clients.get(client).copied().unwrap_or_default();
        !of_client.is_too_much(now) && !self.all.is_too_much(now)
    }

    /// Counts a search that ended now.
    pub(super) fn spend(&mut self, client: &ClassClient, time: Duration, now: Instant) {
        self.clients.retain(|_, debt| !debt.is_paid(now));
        self.clients.entry(client.clone()).or_default().add(time * PAUSE_OF_CLIENT, now);
        self.all.add(time * PAUSE_OF_ALL, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: Duration = Duration::from_secs(1);

    /// Seconds of searches for clients that reject something every second of an hour, each in turn.
    fn spent(clients: &[ClassClient]) -> u32 {
        let (mut budget, begin) = (SearchBudget::default(), Instant::now());
        let ticks = (0..3600).zip(clients.iter().cycle());
        let allowed = ticks.filter(|(second, client)| {
            let now = begin + SEARCH * *second;
            let allowed = budget.allows(client, now);
            if allowed {
                budget.spend(client, SEARCH, now);
            }
            allowed
        });
        u32::try_from(allowed.count()).expect("at most 3600")
    }

    fn client(number: u8) -> ClassClient {
        ClassClient::Address([10, 0, 0, number].into())
    }

    #[test]
    fn a_client_that_rejects_again_and_again_gets_a_fiftieth_of_a_processor() {
        let spent = spent(&[client(1)]);
        assert!((3600 / 50..=3600 / 50 + 4).contains(&spent), "{spent} s of an hour");
    }

    #[test]
    fn all_clients_get_a_tenth_of_a_processor() {
        let spent = spent(&(0..100).map(client).collect::<Vec<_>>());
        assert!((360..=360 + 12).contains(&spent), "{spent} s of an hour");
    }

    #[test]
    fn others_do_not_pay_for_a_client_and_who_has_paid_is_forgotten() {
        let (mut budget, now) = (SearchBudget::default(), Instant::now());
        budget.spend(&client(1), 3 * SEARCH, now);
        assert_eq!((budget.allows(&client(1), now), budget.allows(&client(2), now)), (false, true));
        assert!(budget.allows(&client(1), now + 60 * SEARCH));
        budget.spend(&client(2), SEARCH, now + 200 * SEARCH);
        assert_eq!(budget.clients.len(), 1);
    }
}
