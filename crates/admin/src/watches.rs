//! The health of the watches of the API server: the page `/debug/watches` and its metrics.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts};
use serde::Serialize;
use sources::kube::{ApiResource, DELAY_BUCKETS, State, WatchDelays, WatchHealth, WatchesHealth};

/// One line of the page.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WatchStatus {
    kind: &'static str,
    /// Empty: the whole cluster.
    namespace: String,
    state: &'static str,
    /// RFC 3339: since when it is in this state.
    since: String,
    /// Seconds since the last event or list; 0 while the watch is live.
    age_seconds: f64,
    objects: usize,
    resource_version: u64,
    lists: u64,
    events: u64,
    event_bytes: u64,
    failures: u64,
    repairs: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    trouble: String,
}

pub(crate) fn page(health: &WatchesHealth, now: SystemTime) -> Vec<WatchStatus> {
    let line = |(resource, watch): (ApiResource, WatchHealth)| WatchStatus {
        kind: resource.kind.name(),
        namespace: resource.namespace.as_deref().unwrap_or_default().to_owned(),
        state: watch.state.name(),
        since: jiff::Timestamp::try_from(watch.since).map(|time| format!("{time:.0}")).unwrap_or_default(),
        age_seconds: age(&watch, now).as_secs_f64().round(),
        objects: watch.objects,
        resource_version: watch.version,
        lists: watch.lists,
        events: watch.received.count,
        event_bytes: watch.received.bytes,
        failures: watch.failures,
        repairs: watch.repairs,
        trouble: watch.trouble,
    };
    health.snapshot().into_iter().map(line).collect()
}

/// The age of the objects of this watch.
fn age(watch: &WatchHealth, now: SystemTime) -> Duration {
    match watch.state {
        State::Live | State::Absent => Duration::ZERO,
        _ => now.duration_since(watch.last_event.unwrap_or(watch.since)).unwrap_or_default(),
    }
}

/// Reads the health of the watches when Prometheus scrapes.
pub(crate) struct WatchCollector {
    health: WatchesHealth,
    state: IntGaugeVec,
    age: GaugeVec,
    objects: IntGaugeVec,
    lists: IntCounterVec,
    repairs: IntCounterVec,
    events: IntCounterVec,
    event_bytes: IntCounterVec,
    delay: Desc,
}

impl WatchCollector {
    pub(crate) fn new(health: WatchesHealth) -> WatchCollector {
        WatchCollector {
            health,
            state: gauge("meltemi_watch_state", "watches of a kind in this state", &["kind", "state"]),
            age: GaugeVec::new(
                Opts::new(
                    "meltemi_watch_age_seconds",
                    "time since the last event or list of a kind; 0 while its watch is live",
                ),
                &["kind"],
            )
            .expect(SOUND),
            objects: gauge("meltemi_watch_objects", "objects of a kind in the cache of its watch", &["kind"]),
            lists: counter("meltemi_watch_lists_total", "lists of a kind"),
            repairs: counter(
                "meltemi_watch_repairs_total",
                "objects in which an audit found the cache to differ from the API server, and repaired it",
            ),
            events: counter(
                "meltemi_watch_events_total",
                "additions, updates and deletions that the watches of a kind received, also of objects that are not for this control plane",
            ),
            event_bytes: counter("meltemi_watch_event_bytes_total", "bytes of these events, as they are encoded"),
            delay: Desc::new(DELAY.to_owned(), delay_help(), vec!["kind".to_owned()], Default::default()).expect(SOUND),
        }
    }

    fn vectors(&self) -> [&dyn Collector; 7] {
        [&self.state, &self.age, &self.objects, &self.lists, &self.repairs, &self.events, &self.event_bytes]
    }
}

const SOUND: &str = "names and labels are constants that Prometheus allows";

fn gauge(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    IntGaugeVec::new(Opts::new(name, help), labels).expect(SOUND)
}

fn counter(name: &str, help: &str) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), &["kind"]).expect(SOUND)
}

impl Collector for WatchCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.vectors().into_iter().flat_map(Collector::desc).chain([&self.delay]).collect()
    }

    /// Watches of several namespaces count as one: added up, the oldest of their ages, the worst of their states.
    fn collect(&self) -> Vec<MetricFamily> {
        let now = SystemTime::now();
        [&self.state, &self.objects].iter().for_each(|it| it.reset());
        [&self.lists, &self.repairs, &self.events, &self.event_bytes].iter().for_each(|it| it.reset());
        self.age.reset();
        let mut delays = BTreeMap::<&str, WatchDelays>::new();
        for (resource, watch) in self.health.snapshot() {
            let kind = resource.kind.name();
            self.state.with_label_values(&[kind, watch.state.name()]).inc();
            let oldest = self.age.with_label_values(&[kind]);
            oldest.set(oldest.get().max(age(&watch, now).as_secs_f64()));
            self.objects.with_label_values(&[kind]).add(i64::try_from(watch.objects).unwrap_or(i64::MAX));
            self.lists.with_label_values(&[kind]).inc_by(watch.lists);
            self.repairs.with_label_values(&[kind]).inc_by(watch.repairs);
            self.events.with_label_values(&[kind]).inc_by(watch.received.count);
            self.event_bytes.with_label_values(&[kind]).inc_by(watch.received.bytes);
            delays.entry(kind).or_default().add(&watch.received.delays);
        }
        self.vectors().into_iter().flat_map(Collector::collect).chain([delay_family(&delays)]).collect()
    }
}

const DELAY: &str = "meltemi_watch_delay_seconds";

/// The page of all metrics knows the buckets of histograms that are registered; this one is computed at each scrape.
fn delay_help() -> String {
    let buckets: Vec<String> = DELAY_BUCKETS.iter().map(ToString::to_string).collect();
    format!(
        "time from the last write of an object until its event arrived, by the clocks of the API server and of this host. Objects tell whole seconds: up to one is no \
         delay. Buckets: {}",
        buckets.join(" ")
    )
}

fn delay_family(delays: &BTreeMap<&str, WatchDelays>) -> MetricFamily {
    let metrics = delays.iter().map(|(kind, delays)| {
        let mut label = LabelPair::default();
        label.set_name("kind".to_owned());
        label.set_value((*kind).to_owned());
        let mut metric = Metric::from_label(vec![label]);
        metric.set_histogram(histogram(delays));
        metric
    });
    let mut family = MetricFamily::default();
    family.set_name(DELAY.to_owned());
    family.set_help(delay_help());
    family.set_field_type(MetricType::HISTOGRAM);
    family.set_metric(metrics.collect());
    family
}

fn histogram(delays: &WatchDelays) -> Histogram {
    let mut below = 0;
    let buckets = DELAY_BUCKETS.iter().zip(delays.buckets).map(|(bound, count)| {
        below += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(f64::from(*bound));
        bucket.set_cumulative_count(below);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(delays.count);
    histogram.set_sample_sum(delays.seconds);
    histogram
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn delays_are_a_histogram() {
        let delays = WatchDelays { buckets: [4, 1, 0, 2, 0, 0, 0, 0], count: 8, seconds: 500.5 };
        let family = delay_family(&BTreeMap::from([("Pod", delays)]));
        let text = TextEncoder::new().encode_to_string(&[family]).unwrap();
        for line in [
            "# TYPE meltemi_watch_delay_seconds histogram",
            "meltemi_watch_delay_seconds_bucket{kind=\"Pod\",le=\"1\"} 4",
            "meltemi_watch_delay_seconds_bucket{kind=\"Pod\",le=\"5\"} 7",
            "meltemi_watch_delay_seconds_bucket{kind=\"Pod\",le=\"+Inf\"} 8",
            "meltemi_watch_delay_seconds_sum{kind=\"Pod\"} 500.5",
            "meltemi_watch_delay_seconds_count{kind=\"Pod\"} 8",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }
}
