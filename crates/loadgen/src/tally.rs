//! What the swarm has received since the last mark: per proxy and in all. Times are microseconds since the swarm was made.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::scan::Response;

pub(crate) struct Tally {
    base: Instant,
    mark: AtomicU64,
    /// Last sign of life of any stream: a response, an opening, a failure.
    stirred: AtomicU64,
    open: AtomicUsize,
    failed: AtomicU64,
    last_failure: Mutex<String>,
    kinds: [Sum; 4],
    proxies: Vec<Seat>,
    audience: Mutex<Audience>,
}

/// Who should hear of a phase.
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
struct Seat {
    namespace: String,
    first: AtomicU64,
    last: AtomicU64,
    responses: [AtomicU32; 4],
}

impl Seat {
    fn was_reached(&self) -> bool {
        self.last.load(Relaxed) > 0
    }
}

impl Tally {
    pub(crate) fn new(namespaces: impl IntoIterator<Item = String>) -> Tally {
        let seat = |namespace| Seat {
            namespace,
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            responses: Default::default(),
        };
        Tally {
            base: Instant::now(),
            mark: AtomicU64::new(0),
            stirred: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
            last_failure: Mutex::default(),
            kinds: Default::default(),
            proxies: namespaces.into_iter().map(seat).collect(),
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
        for seat in &self.proxies {
            seat.first.store(0, Relaxed);
            seat.last.store(0, Relaxed);
            seat.responses.iter().for_each(|count| count.store(0, Relaxed));
        }
    }

    pub(crate) fn received(&self, proxy: usize, response: &Response) {
        let now = self.now();
        self.stirred.store(now, Relaxed);
        let Some(kind) = response.kind else { return };
        let (sum, seat) = (&self.kinds[kind as usize], &self.proxies[proxy]);
        sum.responses.fetch_add(1, Relaxed);
        sum.resources.fetch_add(response.resources.len() as u64, Relaxed);
        sum.removed.fetch_add(response.removed.len() as u64, Relaxed);
        sum.bytes.fetch_add(response.bytes as u64, Relaxed);
        seat.responses[kind as usize].fetch_add(1, Relaxed);
        seat.first.compare_exchange(0, now, Relaxed, Relaxed).ok();
        seat.last.store(now, Relaxed);
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Relaxed);
        self.stirred.store(self.now(), Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    pub(crate) fn failed(&self, why: String) {
        self.failed.fetch_add(1, Relaxed);
        self.stirred.store(self.now(), Relaxed);
        *self.last_failure.lock().expect("nobody panics while writing a text") = why;
    }

    pub(crate) fn proxies(&self) -> usize {
        self.proxies.len()
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// How many of those who should hear of the phase, and answer, have heard nothing.
    pub(crate) fn missed(&self, answers: impl Fn(usize) -> bool) -> usize {
        let audience = self.audience.lock().expect("nobody panics while it is replaced");
        let seats = self.proxies.iter().enumerate();
        seats.filter(|(at, seat)| !seat.was_reached() && answers(*at) && audience.has(&seat.namespace)).count()
    }

    pub(crate) fn is_quiet(&self, time: Duration) -> bool {
        let since = self.now().saturating_sub(self.stirred.load(Relaxed));
        Duration::from_micros(since) >= time
    }

    /// What happened since the mark, as one JSON object. Times are milliseconds since the mark, of the last receipt at each proxy. Of those
    /// that do not answer nothing is expected.
    pub(crate) fn summary(&self, phase: &str, answers: impl Fn(usize) -> bool) -> Value {
        let mark = self.mark.load(Relaxed);
        let since = |at: u64| at.saturating_sub(mark) as f64 / 1000.0;
        let reached: Vec<&Seat> = self.proxies.iter().filter(|seat| seat.was_reached()).collect();
        let mut last: Vec<f64> = reached.iter().map(|seat| since(seat.last.load(Relaxed))).collect();
        last.sort_by(f64::total_cmp);
        let first = reached.iter().map(|seat| since(seat.first.load(Relaxed))).min_by(f64::total_cmp);
        let missed = self.missed(&answers);
        let audience = self.audience.lock().expect("nobody panics while it is replaced");
        let should = self.proxies.iter().enumerate().filter(|(at, seat)| answers(*at) && audience.has(&seat.namespace));
        let strangers = reached.iter().filter(|seat| !audience.has(&seat.namespace)).count();
        let namespaces: BTreeSet<&str> = reached.iter().map(|seat| seat.namespace.as_str()).collect();
        let bytes: u64 = self.kinds.iter().map(|sum| sum.bytes.load(Relaxed)).sum();
        json!({
            "phase": phase,
            "proxies": self.proxies.len(),
            "open": self.open(),
            "reached": reached.len(),
            "namespaces_reached": namespaces.len(),
            "expected": should.count(),
            "missed": missed,
            "strangers": strangers,
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
        let heard = Kind::ALL.into_iter().filter(|kind| self.kinds[*kind as usize].responses.load(Relaxed) > 0);
        let entry = |kind: Kind| {
            let sum = &self.kinds[kind as usize];
            let most = self.proxies.iter().map(|seat| seat.responses[kind as usize].load(Relaxed)).max();
            let value = json!({
                "responses": sum.responses.load(Relaxed),
                "resources": sum.resources.load(Relaxed),
                "removed": sum.removed.load(Relaxed),
                "bytes": sum.bytes.load(Relaxed),
                "most_responses_of_one_proxy": most,
            });
            (kind.short().to_owned(), value)
        };
        heard.map(entry).collect()
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
    fn a_mark_forgets() {
        let tally = Tally::new(["a", "b", "b"].map(String::from));
        let response = || Response { kind: Some(Kind::Route), bytes: 10, ..Default::default() };
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
    fn who_should_hear_is_told_from_who_heard() {
        let tally = Tally::new(["a", "a", "b", "b"].map(String::from));
        tally.mark(Audience::of("a"));
        for proxy in [0, 2] {
            tally.received(proxy, &Response { kind: Some(Kind::Route), ..Default::default() });
        }
        let counts = |answers: fn(usize) -> bool| {
            let summary = tally.summary("x", answers);
            ["expected", "missed", "strangers"].map(|name| summary[name].as_u64().unwrap())
        };
        assert_eq!(counts(|_| true), [2, 1, 1]);
        assert_eq!(counts(|proxy| proxy != 1), [1, 0, 1], "one that never reads is not missed");
    }
}
