//! The health of the watches of the API server: the page `/debug/watches` and its metrics.

use std::time::{Duration, SystemTime};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts};
use serde::Serialize;
use sources::kube::{ApiResource, State, WatchHealth, WatchesHealth};

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
        }
    }

    fn vectors(&self) -> [&dyn Collector; 5] {
        [&self.state, &self.age, &self.objects, &self.lists, &self.repairs]
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
        self.vectors().into_iter().flat_map(Collector::desc).collect()
    }

    /// Watches of several namespaces count as one: added up, the oldest of their ages, the worst of their states.
    fn collect(&self) -> Vec<MetricFamily> {
        let now = SystemTime::now();
        [&self.state, &self.objects].iter().for_each(|it| it.reset());
        [&self.lists, &self.repairs].iter().for_each(|it| it.reset());
        self.age.reset();
        for (resource, watch) in self.health.snapshot() {
            let kind = resource.kind.name();
            self.state.with_label_values(&[kind, watch.state.name()]).inc();
            let oldest = self.age.with_label_values(&[kind]);
            oldest.set(oldest.get().max(age(&watch, now).as_secs_f64()));
            self.objects.with_label_values(&[kind]).add(i64::try_from(watch.objects).unwrap_or(i64::MAX));
            self.lists.with_label_values(&[kind]).inc_by(watch.lists);
            self.repairs.with_label_values(&[kind]).inc_by(watch.repairs);
        }
        self.vectors().into_iter().flat_map(Collector::collect).collect()
    }
}
