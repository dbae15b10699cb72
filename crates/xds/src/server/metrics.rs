//! The metrics of streams, under istiod's names. Labels come from closed sets or from connected proxies, never from requests as
//! such.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use prometheus::{
    Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::{
    Connections, Memory, Register, Stages, TypeUrl, Variant,
    server::{
        byte_budget::ByteLimit,
        grpc_metrics::GrpcMetrics,
        stream_error::{Code, StreamError, StreamRejection},
    },
};

const PUSH_SECONDS: [f64; 9] = [0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
const SEND_SECONDS: [f64; 8] = [0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
const CONVERGENCE_SECONDS: [f64; 8] = [0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
const DESTROY_SECONDS: [f64; 7] = [0.0001, 0.001, 0.1, 1.0, 5.0, 10.0, 30.0];
const SIZE_BYTES: [f64; 6] = [1.0, 1e4, 1e6, 4e6, 1e7, 4e7];

pub struct Metrics {
    stages: Stages,
    memory: Memory,
    clients: IntGauge,
    connected: IntGaugeVec,
    by_version: Mutex<BTreeMap<String, i64>>,
    pushes: IntCounterVec,
    push_time: HistogramVec,
    send_time: Histogram,
    size: HistogramVec,
    rejects: IntCounterVec,
    push_errors: IntCounterVec,
    reject_gauges: BTreeMap<TypeUrl, RejectGauge>,
    expired_nonce: IntCounterVec,
    internal_errors: IntCounter,
    write_timeouts: IntCounter,
    recv_max: IntGauge,
    convergence: Histogram,
    queue_time: Histogram,
    queue_depth: IntGauge,
    slots_in_use: IntGauge,
    oldest: OldestUnacked,
    zombies: IntCounter,
    rejected_streams: IntCounterVec,
    refused_bytes: IntCounterVec,
    destroy_time: Histogram,
    grpc: GrpcMetrics,
    cached: CachedSeries,
}

/// Series that every push updates: a lookup by label takes longer than the update.
#[derive(Default)]
struct CachedSeries {
    pushes: [OnceLock<IntCounter>; TypeUrl::ALL.len()],
    push_time: [OnceLock<Histogram>; TypeUrl::ALL.len()],
    size: [OnceLock<Histogram>; TypeUrl::ALL.len()],
}

impl Metrics {
    pub fn new(registry: &Registry) -> Result<Arc<Metrics>, prometheus::Error> {
        Metrics::register(&Register::new(registry.clone()))
    }

    pub fn register(on: &Register) -> Result<Arc<Metrics>, prometheus::Error> {
        let metrics = Metrics {
            stages: Stages::new(on)?,
            memory: Memory::new(on)?,
            clients: on.gauge("pilot_xds_clients", "connected proxies. Not in istiod")?,
            connected: connected(on)?,
            by_version: Mutex::default(),
            pushes: on.counters(
                "pilot_xds_pushes",
                "responses sent by type: `cds`, `eds`, `lds`, `rds`, ..; `<type>_senderr`: responses that could not be sent",
                &["type"],
            )?,
            push_time: on.seconds_by(
                "pilot_xds_push_time",
                "time to compute and send a response, with the refresh that it waited for",
                &PUSH_SECONDS,
                &["type"],
            )?,
            send_time: on.seconds("pilot_xds_send_time", "time to write a response", &SEND_SECONDS)?,
            size: on.histograms(
                "pilot_xds_config_size_bytes",
                "size of a response, in bytes",
                &SIZE_BYTES,
                &["type"],
            )?,
            rejects: on.counters("pilot_total_xds_rejects", "responses that a proxy rejected (NACK)", &["type"])?,
            push_errors: on.counters(
                "pilot_xds_push_errors",
                "responses that a proxy rejected (NACK) or that could not be sent. Not in istiod",
                &["type"],
            )?,
            reject_gauges: reject_gauges(on)?,
            expired_nonce: on.counters(
                "pilot_xds_expired_nonce",
                "requests with the nonce of an old response; and, unlike in istiod, each response that was neither ACKed nor NACKed for 30 s, once",
                &["type"],
            )?,
            internal_errors: on
                .counter("pilot_total_xds_internal_errors", "streams that ended with an internal error")?,
            write_timeouts: on.counter(
                "pilot_xds_write_timeout",
                "streams that were closed because a response was not read for five minutes",
            )?,
            recv_max: on.gauge("pilot_xds_recv_max", "the largest request, in bytes")?,
            convergence: on.seconds(
                "pilot_proxy_convergence_time",
                "time from a change to its ACK by a proxy (istiod: until it was sent)",
                &CONVERGENCE_SECONDS,
            )?,
            queue_time: on.seconds(
                "pilot_proxy_queue_time",
                "time from the notification of a stream until it may be written to",
                &CONVERGENCE_SECONDS,
            )?,
            queue_depth: on.gauge("meltemi_push_queue_depth", "streams in the push queue")?,
            slots_in_use: on.gauge(
                "meltemi_push_slots_in_use",
                "streams that are written to at this moment; at most `PILOT_PUSH_THROTTLE`",
            )?,
            oldest: on.add("gauge", OldestUnacked::new()?)?,
            zombies: on.counter(
                "meltemi_xds_zombies_total",
                "streams that were closed because a keepalive ping was not answered, or because the pod of the proxy had been deleted for a minute",
            )?,
            rejected_streams: rejected_streams(on)?,
            refused_bytes: refused_bytes(on)?,
            destroy_time: on.seconds(
                "pilot_destroy_time_seconds",
                "time from the end of a stream until its state is dropped. Not in istiod",
                &DESTROY_SECONDS,
            )?,
            grpc: GrpcMetrics::new(on)?,
            cached: CachedSeries::default(),
        };
        [&metrics.pushes, &metrics.rejects, &metrics.push_errors, &metrics.expired_nonce]
            .into_iter()
            .for_each(init_at_zero);
        Ok(Arc::new(metrics))
    }

    pub fn stages(&self) -> &Stages {
        &self.stages
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Counts a proxy as connected until the guard is dropped.
    pub(crate) fn connect(self: &Arc<Self>, version: &str) -> ConnectedGuard {
        let version = self.version_label(safe_version(version));
        self.count_version(&version, 1);
        ConnectedGuard { metrics: self.clone(), version }
    }

    /// A mesh has a handful of versions; a client can send any number.
    fn version_label(&self, version: String) -> String {
        let table = self.by_version.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() < MAX_VERSIONS || table.contains_key(&version) { version } else { "other".to_owned() }
    }

    fn count_version(&self, version: &str, by: i64) {
        self.clients.add(by);
        let mut table = self.by_version.lock().unwrap_or_else(PoisonError::into_inner);
        let count = table.entry(version.to_owned()).or_default();
        *count += by;
        if *count > 0 {
            self.connected.with_label_values(&[version]).set(*count);
        } else {
            table.remove(version);
            // An error means that it is absent already.
            let _ = self.connected.remove_label_values(&[version]);
        }
    }

    pub(crate) fn record_push(&self, variant: Variant, kind: TypeUrl, bytes: usize) {
        let (cached, label, at) = (&self.cached, [kind.label()], kind as usize);
        cached.pushes[at].get_or_init(|| self.pushes.with_label_values(&label)).inc();
        cached.size[at].get_or_init(|| self.size.with_label_values(&label)).observe(bytes as f64);
        self.grpc.count_sent(variant);
    }

    pub(crate) fn count_push_failure(&self, kind: TypeUrl) {
        self.pushes.with_label_values(&[&format!("{}_senderr", kind.label())]).inc();
        self.push_errors.with_label_values(&[kind.label()]).inc();
    }

    pub(crate) fn record_write(&self, kind: TypeUrl, push: Duration, send: Duration) {
        let push_time = || self.push_time.with_label_values(&[kind.label()]);
        self.cached.push_time[kind as usize].get_or_init(push_time).observe(push.as_secs_f64());
        self.send_time.observe(send.as_secs_f64());
    }

    /// ACKs by the time since their change: the upper bounds in seconds, and how many there were up to each since the start.
    pub fn convergence(&self) -> Vec<(f64, u64)> {
        let families = self.convergence.collect();
        let histograms = families
            .iter()
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .map(prometheus::proto::Metric::get_histogram);
        let buckets = histograms.flat_map(|histogram| {
            let finite = histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
            finite.chain([(f64::INFINITY, histogram.get_sample_count())]).collect::<Vec<_>>()
        });
        buckets.collect()
    }

    pub(crate) fn record_convergence(&self, after: Duration) {
        self.convergence.observe(after.as_secs_f64());
    }

    pub(crate) fn observe(&self, connections: &Arc<Connections>) {
        // Set already: another server is observed.
        let _ = self.oldest.connections.set(Arc::downgrade(connections));
    }

    pub(crate) fn zombies(&self, streams: usize) {
        self.zombies.inc_by(streams as u64);
    }

    pub(crate) fn count_rejected_stream(&self, error: &StreamError) {
        if let Some(reason) = error.rejection() {
            self.rejected_streams.with_label_values(&[reason.label()]).inc();
        }
    }

    pub(crate) fn count_refused_bytes(&self, limit: ByteLimit) {
        self.refused_bytes.with_label_values(&[limit.label()]).inc();
    }

    #[cfg(test)]
    pub(crate) fn refused_bytes(&self, limit: ByteLimit) -> u64 {
        self.refused_bytes.with_label_values(&[limit.label()]).get()
    }

    pub(crate) fn write_timed_out(&self) {
        self.write_timeouts.inc();
    }

    pub(crate) fn record_destroy_time(&self, took: Duration) {
        self.destroy_time.observe(took.as_secs_f64());
    }

    pub(crate) fn record_queue_time(&self, waited: Duration) {
        self.queue_time.observe(waited.as_secs_f64());
    }

    pub(crate) fn record_queue(&self, queued: usize, granted: usize) {
        self.queue_depth.set(i64::try_from(queued).unwrap_or(i64::MAX));
        self.slots_in_use.set(i64::try_from(granted).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_reject(&self, kind: TypeUrl) {
        self.rejects.with_label_values(&[kind.label()]).inc();
        self.push_errors.with_label_values(&[kind.label()]).inc();
    }

    /// Shows that a proxy rejects a type until the guard is dropped. `None`: the type has no such gauge.
    pub(crate) fn start_reject(&self, kind: TypeUrl, proxy: &str, error: &str) -> Option<RejectGuard> {
        let gauge = self.reject_gauges.get(&kind)?;
        let proxy = &proxy[..proxy.floor_char_boundary(MAX_PROXY_NAME)];
        let labels = [proxy.to_owned(), error.to_owned()];
        gauge.count(&labels, 1);
        Some(RejectGuard { gauge: gauge.clone(), labels })
    }

    pub(crate) fn count_expired_nonce(&self, kind: TypeUrl) {
        self.expired_nonce.with_label_values(&[kind.label()]).inc();
    }

    pub(crate) fn call_started(&self, variant: Variant) {
        self.grpc.count_started(variant);
    }

    pub(crate) fn call_ended(&self, variant: Variant, code: Code) {
        self.grpc.count_handled(variant, code);
        if code == Code::Internal {
            self.internal_errors.inc();
        }
    }

    /// A stream panicked.
    pub(crate) fn call_panicked(&self) {
        self.internal_errors.inc();
    }

    pub(crate) fn record_request(&self, variant: Variant, bytes: usize) {
        self.grpc.count_received(variant);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if bytes > self.recv_max.get() {
            self.recv_max.set(bytes);
        }
    }
}

/// Computed at each scrape, so that a response costs nothing here.
#[derive(Clone)]
struct OldestUnacked {
    gauge: Gauge,
    connections: Arc<OnceLock<Weak<Connections>>>,
}

impl OldestUnacked {
    fn new() -> Result<OldestUnacked, prometheus::Error> {
        let help = "age of the oldest response that was neither ACKed nor NACKed";
        Ok(OldestUnacked { gauge: Gauge::new("meltemi_unacked_oldest_seconds", help)?, connections: Arc::default() })
    }
}

impl Collector for OldestUnacked {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let connections = self.connections.get().and_then(Weak::upgrade);
        let age = connections.map(|connections| connections.oldest_unacked()).unwrap_or_default();
        self.gauge.set(age.as_secs_f64());
        self.gauge.collect()
    }
}

pub(crate) struct ConnectedGuard {
    metrics: Arc<Metrics>,
    version: String,
}

impl Drop for ConnectedGuard {
    fn drop(&mut self) {
        self.metrics.count_version(&self.version, -1);
    }
}

/// 1 for each proxy that rejects a type on any stream. Streams are counted: the old stream of a proxy that reconnected may end after the new
/// one has started to reject.
#[derive(Clone)]
struct RejectGauge {
    gauge: IntGaugeVec,
    streams: Arc<Mutex<BTreeMap<[String; 2], i64>>>,
}

impl RejectGauge {
    fn count(&self, labels: &[String; 2], by: i64) {
        let mut table = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let count = table.entry(labels.clone()).or_default();
        *count += by;
        if *count > 0 {
            self.gauge.with_label_values(labels).set(1);
        } else {
            table.remove(labels);
            // An error means that it is absent already.
            let _ = self.gauge.remove_label_values(labels);
        }
    }
}

pub(crate) struct RejectGuard {
    gauge: RejectGauge,
    labels: [String; 2],
}

impl Drop for RejectGuard {
    fn drop(&mut self) {
        self.gauge.count(&self.labels, -1);
    }
}

/// Versions of proxies with a label of their own.
const MAX_VERSIONS: usize = 50;
/// Of a label: the name of a pod, a dot, and a namespace, as long as Kubernetes allows.
const MAX_PROXY_NAME: usize = 253 + 1 + 63;

/// A proxy may send any version; only what looks like one becomes a label.
fn safe_version(version: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
    if !version.is_empty() && version.len() <= 64 && version.chars().all(legal) { version } else { "unknown" }
        .to_owned()
}

/// istiod has the gauges of the first four types.
fn reject_gauges(register: &Register) -> Result<BTreeMap<TypeUrl, RejectGauge>, prometheus::Error> {
    let istiods = [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route];
    let others = [TypeUrl::Secret, TypeUrl::Extension, TypeUrl::NameTable];
    let help = "1 while a proxy rejects its configuration of this type";
    let gauge = |kind: TypeUrl| {
        let name = format!("pilot_xds_{}_reject", kind.label());
        let help = if istiods.contains(&kind) { help.to_owned() } else { format!("{help}. Not in istiod") };
        let gauge = register.gauges(&name, &help, &["node", "err"])?;
        Ok((kind, RejectGauge { gauge, streams: Arc::default() }))
    };
    istiods.into_iter().chain(others).map(gauge).collect()
}

fn connected(on: &Register) -> Result<IntGaugeVec, prometheus::Error> {
    on.gauges("pilot_xds", "connected proxies by their version; `unknown` if they send none", &["version"])
}

fn rejected_streams(on: &Register) -> Result<IntCounterVec, prometheus::Error> {
    let counters = on.counters(
        "meltemi_xds_streams_rejected_total",
        "new streams that were rejected: `memory` (from 88 % of the limit on), `not_ready`, `too_many_streams` (of one address or identity), `unauthenticated`, \
         `token_review` (the API server did not answer)",
        &["reason"],
    )?;
    for reason in StreamRejection::ALL {
        counters.with_label_values(&[reason.label()]);
    }
    Ok(counters)
}

fn refused_bytes(on: &Register) -> Result<IntCounterVec, prometheus::Error> {
    let counters = on.counters(
        "meltemi_xds_bytes_refused_total",
        "buffers, names and nodes that were not accepted, which ends their stream, by the limit in bytes that they exceed: of their `connection`, of their \
         `address`, of the `pool` that addresses share, of `all`",
        &["limit"],
    )?;
    for limit in ByteLimit::ALL {
        counters.with_label_values(&[limit.label()]);
    }
    Ok(counters)
}

/// Creates the series at zero: graphs and alerts treat a missing series differently.
fn init_at_zero(counters: &IntCounterVec) {
    for kind in TypeUrl::ALL {
        counters.with_label_values(&[kind.label()]);
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
        assert!(text(&registry).contains("pilot_xds_clients 3"));
        drop((one, odd));
        assert!(text(&registry).contains("pilot_xds{version=\"1.30.1\"} 1"));
        assert!(!text(&registry).contains("version=\"unknown\""));
        drop(two);
        assert!(!text(&registry).contains("pilot_xds{"));
    }

    #[test]
    fn clients_create_a_limited_number_of_labels_of_limited_length() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        let connected: Vec<_> = (0..1000).map(|patch| metrics.connect(&format!("1.30.{patch}"))).collect();
        let labels = text(&registry).lines().filter(|line| line.starts_with("pilot_xds{")).count();
        assert_eq!(labels, MAX_VERSIONS + 1, "and one for the others");
        drop(connected);
        assert!(!text(&registry).contains("pilot_xds{"));
        let _rejecting = metrics.start_reject(TypeUrl::Cluster, &"é".repeat(100_000), "Internal");
        assert!(text(&registry).lines().all(|line| line.len() < 1000));
    }

    #[test]
    fn a_reject_gauge_is_removed_with_its_guard() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        let guard = metrics.start_reject(TypeUrl::Listener, "a.b", "Internal");
        assert!(text(&registry).contains("pilot_xds_lds_reject{err=\"Internal\",node=\"a.b\"} 1"));
        drop(guard);
        assert!(!text(&registry).contains("a.b"));
        let _secret = metrics.start_reject(TypeUrl::Secret, "a.b", "Internal");
        assert!(text(&registry).contains("pilot_xds_sds_reject{err=\"Internal\",node=\"a.b\"} 1"));
    }

    #[test]
    fn a_reject_gauge_lasts_as_long_as_any_stream_of_the_proxy_rejects() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        let old = metrics.start_reject(TypeUrl::Listener, "a.b", "Internal");
        let new = metrics.start_reject(TypeUrl::Listener, "a.b", "Internal");
        drop(old);
        assert!(text(&registry).contains("pilot_xds_lds_reject{err=\"Internal\",node=\"a.b\"} 1"));
        drop(new);
        assert!(!text(&registry).contains("a.b"));
    }
}
