//! Counters of what the swarm has received since the last mark: per proxy and in total. Times are microseconds since the swarm was made.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::resource_type::ResourceType;
use crate::scan::Response;

pub(crate) struct Tally {
    base: Instant,
    mark: AtomicU64,
    /// When any stream was last opened, failed or received a response.
    last_activity: AtomicU64,
    open: AtomicUsize,
    failed: AtomicU64,
    last_failure: Mutex<String>,
    kinds: [Sum; 4],
    proxies: Vec<ProxyTally>,
    audience: Mutex<Audience>,
}

/// The proxies that are expected to receive a push in a phase.
pub(crate) enum Audience {
    All,
    Nobody,
    Namespace(String),
}

impl Audience {
    pub(crate) fn of(text: &str) -> Audience {
        match text {
            "all" => Audience::All,
            "none" => Audience::Nobody,
            namespace => Audience::Namespace(namespace.to_owned()),
        }
    }

    fn has(&self, namespace: &str) -> bool {
        match self {
            Audience::All => true,
            Audience::Nobody => false,
            Audience::Namespace(name) => name == namespace,
        }
    }
}

#[derive(Default)]
struct Sum {
    responses: AtomicU64,
    resources: AtomicU64,
    removed: AtomicU64,
    bytes: AtomicU64,
}

/// One proxy. Zero: nothing received since the mark.
struct ProxyTally {
    namespace: String,
    first: AtomicU64,
    last: AtomicU64,
    responses: [AtomicU32; 4],
}

impl ProxyTally {
    fn was_reached(&self) -> bool {
        self.last.load(Relaxed) > 0
    }
}

impl Tally {
    pub(crate) fn new(namespaces: impl IntoIterator<Item = String>) -> Tally {
        let own = |namespace| ProxyTally {
            namespace,
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            responses: Default::default(),
        };
        Tally {
            base: Instant::now(),
            mark: AtomicU64::new(0),
            last_activity: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
            last_failure: Mutex::default(),
            kinds: Default::default(),
            proxies: namespaces.into_iter().map(own).collect(),
            audience: Mutex::new(Audience::All),
        }
    }

    /// Forgets what was received so far; times count from now.
    pub(crate) fn mark(&self, audience: Audience) {
        *self.audience.lock().expect("nobody panics while it is replaced") = audience;
        self.mark.store(self.now(), Relaxed);
        self.failed.store(0, Relaxed);
        for sum in &self.kinds {
            let counts = [&sum.responses, &sum.resources, &sum.removed, &sum.bytes];
            counts.into_iter().for_each(|count| count.store(0, Relaxed));
        }
        for own in &self.proxies {
            own.first.store(0, Relaxed);
            own.last.store(0, Relaxed);
            own.responses.iter().for_each(|count| count.store(0, Relaxed));
        }
    }

    pub(crate) fn received(&self, proxy: usize, response: &Response) {
        let now = self.now();
        self.last_activity.store(now, Relaxed);
        let Some(kind) = response.kind else { return };
        let (sum, own) = (&self.kinds[kind as usize], &self.proxies[proxy]);
        sum.responses.fetch_add(1, Relaxed);
        sum.resources.fetch_add(response.resources.len() as u64, Relaxed);
        sum.removed.fetch_add(response.removed.len() as u64, Relaxed);
        sum.bytes.fetch_add(response.bytes as u64, Relaxed);
        own.responses[kind as usize].fetch_add(1, Relaxed);
        own.first.compare_exchange(0, now, Relaxed, Relaxed).ok();
        own.last.store(now, Relaxed);
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Relaxed);
        self.last_activity.store(self.now(), Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    pub(crate) fn failed(&self, why: String) {
        self.failed.fetch_add(1, Relaxed);
        self.last_activity.store(self.now(), Relaxed);
        *self.last_failure.lock().expect("nobody panics while writing a text") = why;
    }

    pub(crate) fn proxies(&self) -> usize {
        self.proxies.len()
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Expected proxies that behave normally and have received nothing.
    pub(crate) fn missed(&self, answers: impl Fn(usize) -> bool) -> usize {
        let audience = self.audience.lock().expect("nobody panics while it is replaced");
        let proxies = self.proxies.iter().enumerate();
        proxies.filter(|(at, own)| !own.was_reached() && answers(*at) && audience.has(&own.namespace)).count()
    }

    pub(crate) fn is_quiet(&self, time: Duration) -> bool {
        let since = self.now().saturating_sub(self.last_activity.load(Relaxed));
        Duration::from_micros(since) >= time
    }

    /// What happened since the mark, as one JSON object. Times are milliseconds since the mark, of the last receipt at each proxy. Of those
    /// that do not answer nothing is expected.
    pub(crate) fn summary(&self, phase: &str, answers: impl Fn(usize) -> bool) -> Value {
        let mark = self.mark.load(Relaxed);
        let since = |at: u64| at.saturating_sub(mark) as f64 / 1000.0;
        let reached: Vec<&ProxyTally> = self.proxies.iter().filter(|own| own.was_reached()).collect();
        let mut last: Vec<f64> = reached.iter().map(|own| since(own.last.load(Relaxed))).collect();
        last.sort_by(f64::total_cmp);
        let first = reached.iter().map(|own| since(own.first.load(Relaxed))).min_by(f64::total_cmp);
        let missed = self.missed(&answers);
        let audience = self.audience.lock().expect("nobody panics while it is replaced");
        let should = self.proxies.iter().enumerate().filter(|(at, own)| answers(*at) && audience.has(&own.namespace));
        let unexpected = reached.iter().filter(|own| !audience.has(&own.namespace)).count();
        let namespaces: BTreeSet<&str> = reached.iter().map(|own| own.namespace.as_str()).collect();
        let bytes: u64 = self.kinds.iter().map(|sum| sum.bytes.load(Relaxed)).sum();
        json!({
            "phase": phase,
            "proxies": self.proxies.len(),
            "open": self.open(),
            "reached": reached.len(),
            "namespaces_reached": namespaces.len(),
            "expected": should.count(),
            "missed": missed,
            "unexpected": unexpected,
            "first_ms": first,
            "p50_ms": quantile(&last, 0.5),
            "p99_ms": quantile(&last, 0.99),
            "max_ms": last.last(),
            "bytes": bytes,
            "types": self.types(),
            "failed_streams": self.failed.load(Relaxed),
            "last_failure": *self.last_failure.lock().expect("nobody panics while writing a text"),
        })
    }

    fn types(&self) -> Map<String, Value> {
        let received =
            ResourceType::ALL.into_iter().filter(|kind| self.kinds[*kind as usize].responses.load(Relaxed) > 0);
        let entry = |kind: ResourceType| {
            let sum = &self.kinds[kind as usize];
            let most = self.proxies.iter().map(|own| own.responses[kind as usize].load(Relaxed)).max();
            let value = json!({
                "responses": sum.responses.load(Relaxed),
                "resources": sum.resources.load(Relaxed),
                "removed": sum.removed.load(Relaxed),
                "bytes": sum.bytes.load(Relaxed),
                "most_responses_of_one_proxy": most,
            });
            (kind.short().to_owned(), value)
        };
        received.map(entry).collect()
    }

    /// Never zero: that stands for nothing received.
    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }
}

/// The nearest rank. `None`: no values.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((quantile(&hundred, 0.5), quantile(&hundred, 0.99)), (Some(50.0), Some(99.0)));
        assert_eq!((quantile(&[], 0.5), quantile(&[7.0], 0.99)), (None, Some(7.0)));
    }

    #[test]
    fn a_mark_resets_the_counters() {
        let tally = Tally::new(["a", "b", "b"].map(String::from));
        let response = || Response { kind: Some(ResourceType::Route), bytes: 10, ..Default::default() };
        tally.received(0, &response());
        tally.mark(Audience::All);
        tally.received(1, &response());
        tally.received(1, &response());
        let summary = tally.summary("x", |_| true);
        assert_eq!((&summary["reached"], &summary["namespaces_reached"]), (&json!(1), &json!(1)));
        assert_eq!(summary["types"]["RDS"]["most_responses_of_one_proxy"], 2);
        assert_eq!(summary["bytes"], 20);
    }
    #[test]
    fn expected_and_unexpected_proxies_are_counted_apart() {
        let tally = Tally::new(["a", "a", "b", "b"].map(String::from));
        tally.mark(Audience::of("a"));
        for proxy in [0, 2] {
            tally.received(proxy, &Response { kind: Some(ResourceType::Route), ..Default::default() });
        }
        let counts = |answers: fn(usize) -> bool| {
            let summary = tally.summary("x", answers);
            ["expected", "missed", "unexpected"].map(|name| summary[name].as_u64().unwrap())
        };
        assert_eq!(counts(|_| true), [2, 1, 1]);
        assert_eq!(counts(|proxy| proxy != 1), [1, 0, 1], "one that never reads is not missed");
    }
}
