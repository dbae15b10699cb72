//! Which failures of watches are logged: an API server that is away fails all of them over and over, and is one event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::client::RequestError;
use super::resource::ApiResource;

/// How often a failure that lasts is logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The failing watches of a cluster. Watches that fail alike, without a response or with the same status, share their log lines.
#[derive(Debug, Default)]
pub(super) struct Outages(BTreeMap<Option<u16>, Outage>);

#[derive(Debug)]
struct Outage {
    since: Instant,
    logged: Instant,
    watches: BTreeSet<ApiResource>,
}

/// The figures of a log line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutageLine {
    /// How many watches fail alike.
    pub(super) watches: usize,
    pub(super) lasting: Duration,
}

impl Outages {
    /// `None`: not to be logged.
    pub(super) fn failed(&mut self, resource: &ApiResource, failure: &RequestError) -> Option<OutageLine> {
        let alike = match failure {
            RequestError::Status { code, .. } => Some(*code),
            RequestError::Connection(_) | RequestError::Unreadable(_) => None,
        };
        let now = Instant::now();
        let begins = !self.0.contains_key(&alike);
        let fresh = || Outage { since: now, logged: now, watches: BTreeSet::new() };
        let outage = self.0.entry(alike).or_insert_with(fresh);
        outage.watches.insert(resource.clone());
        if !begins && outage.logged.elapsed() < LOG_INTERVAL {
            return None;
        }
        outage.logged = now;
        Some(OutageLine { watches: outage.watches.len(), lasting: outage.since.elapsed() })
    }

    /// How long the outage lasted, if this watch was the last that failed.
    pub(super) fn recovered(&mut self, resource: &ApiResource) -> Option<Duration> {
        let mut over = None;
        self.0.retain(|_, outage| {
            let ends = outage.watches.remove(resource) && outage.watches.is_empty();
            if ends {
                over = Some(outage.since.elapsed());
            }
            !ends
        });
        over.filter(|_| self.0.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::kind::Kind;
    use tokio::time::advance;

    fn watch(kind: Kind) -> ApiResource {
        ApiResource { kind, namespace: None }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_away_is_a_line_a_minute_whatever_the_number_of_watches() {
        let (mut outages, away) = (Outages::default(), RequestError::Connection("refused".to_owned()));
        let mut lines = Vec::new();
        for _ in 0..120 {
            lines.extend(Kind::ALL.iter().filter_map(|kind| outages.failed(&watch(*kind), &away)));
            advance(Duration::from_secs(1)).await;
        }
        let all = Kind::ALL.len();
        assert_eq!(lines.iter().map(|line| line.watches).collect::<Vec<_>>(), [1, all]);
        let over: Vec<_> = Kind::ALL.iter().filter_map(|kind| outages.recovered(&watch(*kind))).collect();
        assert_eq!(over, [Duration::from_secs(120)], "the last one says so");
        assert!(outages.failed(&watch(Kind::Pod), &away).is_some(), "the next outage is another");
    }

    #[tokio::test(start_paused = true)]
    async fn another_kind_of_failure_has_a_line_of_its_own() {
        let mut outages = Outages::default();
        let status =
            |code| RequestError::Status { code, reason: String::new(), message: String::new(), retry_after: None };
        assert!(outages.failed(&watch(Kind::Pod), &status(500)).is_some());
        assert!(outages.failed(&watch(Kind::Pod), &status(429)).is_some());
        assert!(outages.failed(&watch(Kind::Node), &status(429)).is_none());
    }
}
