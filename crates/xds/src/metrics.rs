//! What is counted, under istiod's names. Labels come from closed sets or from live proxies, never from requests as
//! such.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::{Connections, Memory, Stages, TypeUrl, Variant, refusal::Code};

const SERVICE: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
const PUSH_SECONDS: [f64; 9] = [0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
const SEND_SECONDS: [f64; 8] = [0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
const CONVERGENCE_SECONDS: [f64; 8] = [0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
const DESTROY_SECONDS: [f64; 6] = [0.0001, 0.001, 0.01, 0.1, 1.0, 10.0];
const SIZE_BYTES: [f64; 6] = [1.0, 1e4, 1e6, 4e6, 1e7, 4e7];

pub struct Metrics {
    stages: Stages,
    memory: Memory,
    connected: IntGaugeVec,
    by_version: Mutex<BTreeMap<String, i64>>,
    pushes: IntCounterVec,
    push_time: HistogramVec,
    send_time: Histogram,
    size: HistogramVec,
    rejects: IntCounterVec,
    /// For the types that istiod has such a gauge for.
    reject_gauges: BTreeMap<TypeUrl, IntGaugeVec>,
    expired_nonce: IntCounterVec,
    internal_errors: IntCounter,
    recv_max: IntGauge,
    convergence: Histogram,
    queue_time: Histogram,
    queue_depth: IntGauge,
    slots_in_use: IntGauge,
    oldest: Oldest,
    zombies: IntCounter,
    destroy_time: Histogram,
    started: IntCounterVec,
    handled: IntCounterVec,
    received: IntCounterVec,
    sent: IntCounterVec,
}

impl Metrics {
    pub fn new(registry: &Registry) -> Result<Arc<Metrics>, prometheus::Error> {
        let maker = Maker { registry };
        let call = ["grpc_type", "grpc_service", "grpc_method"];
        let handled = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
        Ok(Arc::new(Metrics {
            stages: Stages::new(registry)?,
            memory: Memory::new(registry)?,
            connected: maker.gauges("pilot_xds", "Connected proxies by their version.", &["version"])?,
            by_version: Mutex::default(),
            pushes: maker.counters(
                "pilot_xds_pushes",
                "Responses sent, by type; <type>_senderr: not sent.",
                &["type"],
            )?,
            push_time: maker.histograms("pilot_xds_push_time", "Making and sending a response.", &PUSH_SECONDS)?,
            send_time: maker.histogram("pilot_xds_send_time", "Writing a response, in seconds.", &SEND_SECONDS)?,
            size: maker.histograms("pilot_xds_config_size_bytes", "Size of a response, in bytes.", &SIZE_BYTES)?,
            rejects: maker.counters("pilot_total_xds_rejects", "Responses refused by proxies.", &["type"])?,
            reject_gauges: maker.reject_gauges()?,
            expired_nonce: maker.counters("pilot_xds_expired_nonce", "Requests with an old nonce.", &["type"])?,
            internal_errors: maker.counter("pilot_total_xds_internal_errors", "Streams ended by an error of ours.")?,
            recv_max: maker.gauge("pilot_xds_recv_max", "The largest request, in bytes.")?,
            convergence: maker.histogram(
                "pilot_proxy_convergence_time",
                "From a change to its acceptance by a proxy, in seconds.",
                &CONVERGENCE_SECONDS,
            )?,
            queue_time: maker.histogram(
                "pilot_proxy_queue_time",
                "From the news for a proxy to its turn to be written to, in seconds.",
                &CONVERGENCE_SECONDS,
            )?,
            queue_depth: maker
                .gauge("meltemi_push_queue_depth", "Streams that wait for their turn to be written to.")?,
            slots_in_use: maker.gauge("meltemi_push_slots_in_use", "Streams that are being written to.")?,
            oldest: maker.registered(Oldest::new()?)?,
            zombies: maker.counter(
                "meltemi_xds_zombies_total",
                "Streams closed because no ping was answered or their workload is gone.",
            )?,
            destroy_time: maker.histogram(
                "pilot_destroy_time_seconds",
                "Cleaning up after a stream, in seconds.",
                &DESTROY_SECONDS,
            )?,
            started: maker.counters("grpc_server_started_total", "Calls begun.", &call)?,
            handled: maker.counters("grpc_server_handled_total", "Calls ended, by code.", &handled)?,
            received: maker.counters("grpc_server_msg_received_total", "Messages received.", &call)?,
            sent: maker.counters("grpc_server_msg_sent_total", "Messages sent.", &call)?,
        }))
    }

    pub fn stages(&self) -> &Stages {
        &self.stages
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Counts a proxy as connected until the answer is dropped.
    pub(crate) fn connect(self: &Arc<Self>, version: &str) -> Connected {
        let version = safe_version(version);
        self.count_version(&version, 1);
        Connected { metrics: self.clone(), version }
    }

    fn count_version(&self, version: &str, by: i64) {
        let mut table = self.by_version.lock().unwrap_or_else(PoisonError::into_inner);
        let count = table.entry(version.to_owned()).or_default();
        *count += by;
        if *count > 0 {
            self.connected.with_label_values(&[version]).set(*count);
        } else {
            table.remove(version);
            // Absent already: as wanted.
            let _ = self.connected.remove_label_values(&[version]);
        }
    }

    pub(crate) fn pushed(&self, variant: Variant, kind: TypeUrl, bytes: usize) {
        self.pushes.with_label_values(&[kind.label()]).inc();
        self.size.with_label_values(&[kind.label()]).observe(bytes as f64);
        self.sent.with_label_values(&call_labels(variant)).inc();
    }

    pub(crate) fn push_failed(&self, kind: TypeUrl) {
        self.pushes.with_label_values(&[&format!("{}_senderr", kind.label())]).inc();
    }

    pub(crate) fn written(&self, kind: TypeUrl, push: Duration, send: Duration) {
        self.push_time.with_label_values(&[kind.label()]).observe(push.as_secs_f64());
        self.send_time.observe(send.as_secs_f64());
    }

    pub(crate) fn converged(&self, after: Duration) {
        self.convergence.observe(after.as_secs_f64());
    }

    pub(crate) fn look_at(&self, connections: &Arc<Connections>) {
        // Set already: another server shows its streams.
        let _ = self.oldest.connections.set(Arc::downgrade(connections));
    }

    pub(crate) fn zombies(&self, streams: usize) {
        self.zombies.inc_by(streams as u64);
    }

    pub(crate) fn destroyed(&self, took: Duration) {
        self.destroy_time.observe(took.as_secs_f64());
    }

    pub(crate) fn queued(&self, waited: Duration) {
        self.queue_time.observe(waited.as_secs_f64());
    }

    pub(crate) fn queue(&self, waiting: usize, inside: usize) {
        self.queue_depth.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.slots_in_use.set(i64::try_from(inside).unwrap_or(i64::MAX));
    }

    pub(crate) fn rejected(&self, kind: TypeUrl) {
        self.rejects.with_label_values(&[kind.label()]).inc();
    }

    /// Shows that a proxy refuses a type until the answer is dropped. `None`: the type has no such gauge.
    pub(crate) fn refusing(&self, kind: TypeUrl, proxy: &str, error: &str) -> Option<Refusing> {
        let gauge = self.reject_gauges.get(&kind)?;
        gauge.with_label_values(&[proxy, error]).set(1);
        Some(Refusing { gauge: gauge.clone(), labels: [proxy.to_owned(), error.to_owned()] })
    }

    pub(crate) fn expired(&self, kind: TypeUrl) {
        self.expired_nonce.with_label_values(&[kind.label()]).inc();
    }

    pub(crate) fn call_started(&self, variant: Variant) {
        self.started.with_label_values(&call_labels(variant)).inc();
    }

    pub(crate) fn call_ended(&self, variant: Variant, code: Code) {
        let [kind, service, method] = call_labels(variant);
        self.handled.with_label_values(&[kind, service, method, code.label()]).inc();
        if code == Code::Internal {
            self.internal_errors.inc();
        }
    }

    /// A stream ended without a word.
    pub(crate) fn call_broke(&self) {
        self.internal_errors.inc();
    }

    pub(crate) fn received(&self, variant: Variant, bytes: usize) {
        self.received.with_label_values(&call_labels(variant)).inc();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if bytes > self.recv_max.get() {
            self.recv_max.set(bytes);
        }
    }
}

/// Computed when it is asked for, so that a response costs nothing here.
#[derive(Clone)]
struct Oldest {
    gauge: Gauge,
    connections: Arc<OnceLock<Weak<Connections>>>,
}

impl Oldest {
    fn new() -> Result<Oldest, prometheus::Error> {
        let help = "Age of the oldest response that was not answered, in seconds.";
        Ok(Oldest { gauge: Gauge::new("meltemi_unacked_oldest_seconds", help)?, connections: Arc::default() })
    }
}

impl Collector for Oldest {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let connections = self.connections.get().and_then(Weak::upgrade);
        let age = connections.map(|connections| connections.oldest_unanswered()).unwrap_or_default();
        self.gauge.set(age.as_secs_f64());
        self.gauge.collect()
    }
}

pub(crate) struct Connected {
    metrics: Arc<Metrics>,
    version: String,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.metrics.count_version(&self.version, -1);
    }
}

pub(crate) struct Refusing {
    gauge: IntGaugeVec,
    labels: [String; 2],
}

impl Drop for Refusing {
    fn drop(&mut self) {
        // Absent already: another stream of this proxy took it down.
        let _ = self.gauge.remove_label_values(&[&self.labels[0], &self.labels[1]]);
    }
}

fn call_labels(variant: Variant) -> [&'static str; 3] {
    let method = match variant {
        Variant::Sotw => "StreamAggregatedResources",
        Variant::Delta => "DeltaAggregatedResources",
    };
    ["bidi_stream", SERVICE, method]
}

/// A proxy may claim any version; a label gets only what looks like one.
fn safe_version(version: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
    if !version.is_empty() && version.len() <= 64 && version.chars().all(legal) { version } else { "unknown" }
        .to_owned()
}

struct Maker<'a> {
    registry: &'a Registry,
}

impl Maker<'_> {
    fn registered<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, prometheus::Error> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.registered(IntCounter::new(name, help)?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.registered(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.registered(IntGauge::new(name, help)?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        self.registered(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, prometheus::Error> {
        self.registered(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
    }

    fn histograms(&self, name: &str, help: &str, buckets: &[f64]) -> Result<HistogramVec, prometheus::Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.registered(HistogramVec::new(opts, &["type"])?)
    }

    fn reject_gauges(&self) -> Result<BTreeMap<TypeUrl, IntGaugeVec>, prometheus::Error> {
        let kinds = [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route];
        let help = "1: the proxy refuses its configuration of this type.";
        let gauge = |kind: TypeUrl| {
            let name = format!("pilot_xds_{}_reject", kind.label());
            Ok((kind, self.gauges(&name, help, &["node", "err"])?))
        };
        kinds.into_iter().map(gauge).collect()
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    fn text(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).expect("encodes")
    }

    #[test]
    fn connected_proxies_are_counted_by_version() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        let one = metrics.connect("1.30.1");
        let two = metrics.connect("1.30.1");
        let odd = metrics.connect("\"} evil\n");
        assert!(text(&registry).contains("pilot_xds{version=\"1.30.1\"} 2"));
        assert!(text(&registry).contains("pilot_xds{version=\"unknown\"} 1"));
        drop((one, odd));
        assert!(text(&registry).contains("pilot_xds{version=\"1.30.1\"} 1"));
        assert!(!text(&registry).contains("unknown"));
        drop(two);
        assert!(!text(&registry).contains("pilot_xds{"));
    }

    #[test]
    fn a_refusal_shows_until_it_is_over() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        let refusing = metrics.refusing(TypeUrl::Listener, "a.b", "Internal");
        assert!(text(&registry).contains("pilot_xds_lds_reject{err=\"Internal\",node=\"a.b\"} 1"));
        drop(refusing);
        assert!(!text(&registry).contains("a.b"));
        assert!(metrics.refusing(TypeUrl::Secret, "a.b", "Internal").is_none());
    }
}
