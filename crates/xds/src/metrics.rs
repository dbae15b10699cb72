//! What is counted, under istiod's names. Labels come from closed sets or from live proxies, never from requests as
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

use crate::{Connections, Memory, Register, Stages, TypeUrl, Variant, refusal::Code};

const SERVICE: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
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
    oldest: Oldest,
    zombies: IntCounter,
    destroy_time: Histogram,
    started: IntCounterVec,
    handled: IntCounterVec,
    received: IntCounterVec,
    sent: IntCounterVec,
    found: Found,
}

/// Series that every push counts in, once they are there: looking for one takes longer than counting.
#[derive(Default)]
struct Found {
    pushes: [OnceLock<IntCounter>; TypeUrl::ALL.len()],
    push_time: [OnceLock<Histogram>; TypeUrl::ALL.len()],
    size: [OnceLock<Histogram>; TypeUrl::ALL.len()],
    received: [OnceLock<IntCounter>; 2],
    sent: [OnceLock<IntCounter>; 2],
}

impl Metrics {
    pub fn new(registry: &Registry) -> Result<Arc<Metrics>, prometheus::Error> {
        Metrics::register(&Register::new(registry.clone()))
    }

    pub fn register(on: &Register) -> Result<Arc<Metrics>, prometheus::Error> {
        let call = ["grpc_type", "grpc_service", "grpc_method"];
        let handled = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
        let metrics = Metrics {
            stages: Stages::new(on)?,
            memory: Memory::new(on)?,
            clients: on.gauge("pilot_xds_clients", "connected proxies. Not in istiod")?,
            connected: on.gauges(
                "pilot_xds",
                "connected proxies by their version; `unknown` if they do not say",
                &["version"],
            )?,
            by_version: Mutex::default(),
            pushes: on.counters(
                "pilot_xds_pushes",
                "responses sent, `cds`, `eds`, `lds`, `rds`, ..; `<type>_senderr` those that could not be sent",
                &["type"],
            )?,
            push_time: on.seconds_by(
                "pilot_xds_push_time",
                "making and sending a response, with the refresh that it waited for",
                &PUSH_SECONDS,
                &["type"],
            )?,
            send_time: on.seconds("pilot_xds_send_time", "writing a response", &SEND_SECONDS)?,
            size: on.histograms(
                "pilot_xds_config_size_bytes",
                "size of a response, in bytes",
                &SIZE_BYTES,
                &["type"],
            )?,
            rejects: on.counters("pilot_total_xds_rejects", "responses that a proxy refused", &["type"])?,
            push_errors: on.counters(
                "pilot_xds_push_errors",
                "responses that a proxy refused or that could not be sent. Not in istiod",
                &["type"],
            )?,
            reject_gauges: reject_gauges(on)?,
            expired_nonce: on.counters(
                "pilot_xds_expired_nonce",
                "requests that answer an old response; and, unlike istiod's, each response that was not answered for 30 s, once",
                &["type"],
            )?,
            internal_errors: on
                .counter("pilot_total_xds_internal_errors", "streams that ended by an error of ours")?,
            write_timeouts: on.counter(
                "pilot_xds_write_timeout",
                "streams that were closed because a response was not read for five minutes",
            )?,
            recv_max: on.gauge("pilot_xds_recv_max", "the largest request, in bytes")?,
            convergence: on.seconds(
                "pilot_proxy_convergence_time",
                "from a change until a proxy has accepted it (istiod: until it was sent)",
                &CONVERGENCE_SECONDS,
            )?,
            queue_time: on.seconds(
                "pilot_proxy_queue_time",
                "from the news for a proxy to its turn to be written to",
                &CONVERGENCE_SECONDS,
            )?,
            queue_depth: on.gauge("meltemi_push_queue_depth", "streams that wait for their turn to be written to")?,
            slots_in_use: on.gauge(
                "meltemi_push_slots_in_use",
                "streams that are being written to; at most `PILOT_PUSH_THROTTLE`",
            )?,
            oldest: on.add("gauge", Oldest::new()?)?,
            zombies: on.counter(
                "meltemi_xds_zombies_total",
                "streams that were closed because no ping was answered, or because the pod of the proxy had been gone for a minute",
            )?,
            destroy_time: on.seconds(
                "pilot_destroy_time_seconds",
                "from the end of a stream until its state is gone. Not in istiod",
                &DESTROY_SECONDS,
            )?,
            started: on.counters("grpc_server_started_total", "calls begun", &call)?,
            handled: on.counters("grpc_server_handled_total", "calls ended", &handled)?,
            received: on.counters("grpc_server_msg_received_total", "messages received", &call)?,
            sent: on.counters("grpc_server_msg_sent_total", "messages sent", &call)?,
            found: Found::default(),
        };
        for counters in [&metrics.pushes, &metrics.rejects, &metrics.push_errors, &metrics.expired_nonce] {
            at_zero(counters);
        }
        Ok(Arc::new(metrics))
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
        self.clients.add(by);
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
        let (found, label, at) = (&self.found, [kind.label()], kind as usize);
        found.pushes[at].get_or_init(|| self.pushes.with_label_values(&label)).inc();
        found.size[at].get_or_init(|| self.size.with_label_values(&label)).observe(bytes as f64);
        let sent = || self.sent.with_label_values(&call_labels(variant));
        found.sent[variant as usize].get_or_init(sent).inc();
    }

    pub(crate) fn push_failed(&self, kind: TypeUrl) {
        self.pushes.with_label_values(&[&format!("{}_senderr", kind.label())]).inc();
        self.push_errors.with_label_values(&[kind.label()]).inc();
    }

    pub(crate) fn written(&self, kind: TypeUrl, push: Duration, send: Duration) {
        let push_time = || self.push_time.with_label_values(&[kind.label()]);
        self.found.push_time[kind as usize].get_or_init(push_time).observe(push.as_secs_f64());
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

    pub(crate) fn write_timed_out(&self) {
        self.write_timeouts.inc();
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
        self.push_errors.with_label_values(&[kind.label()]).inc();
    }

    /// Shows that a proxy refuses a type until the answer is dropped. `None`: the type has no such gauge.
    pub(crate) fn refusing(&self, kind: TypeUrl, proxy: &str, error: &str) -> Option<Refusing> {
        let gauge = self.reject_gauges.get(&kind)?;
        let labels = [proxy.to_owned(), error.to_owned()];
        gauge.count(&labels, 1);
        Some(Refusing { gauge: gauge.clone(), labels })
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
        let received = || self.received.with_label_values(&call_labels(variant));
        self.found.received[variant as usize].get_or_init(received).inc();
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
        let help = "age of the oldest response that was not answered";
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

/// 1 for each proxy that has a stream on which it refuses a type. Streams are counted: the last one of a proxy that has connected anew may end after
/// the next one has begun to refuse.
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
            // Absent already: as wanted.
            let _ = self.gauge.remove_label_values(labels);
        }
    }
}

pub(crate) struct Refusing {
    gauge: RejectGauge,
    labels: [String; 2],
}

impl Drop for Refusing {
    fn drop(&mut self) {
        self.gauge.count(&self.labels, -1);
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

/// istiod has those of the first four types.
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

/// A counter that is not there yet and one that stands at 0 are not the same to whoever draws or alerts.
fn at_zero(counters: &IntCounterVec) {
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
    fn a_refusal_shows_until_it_is_over() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        let refusing = metrics.refusing(TypeUrl::Listener, "a.b", "Internal");
        assert!(text(&registry).contains("pilot_xds_lds_reject{err=\"Internal\",node=\"a.b\"} 1"));
        drop(refusing);
        assert!(!text(&registry).contains("a.b"));
        let _secret = metrics.refusing(TypeUrl::Secret, "a.b", "Internal");
        assert!(text(&registry).contains("pilot_xds_sds_reject{err=\"Internal\",node=\"a.b\"} 1"));
    }

    #[test]
    fn a_rejection_shows_as_long_as_any_stream_of_the_proxy_rejects() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        let old = metrics.refusing(TypeUrl::Listener, "a.b", "Internal");
        let new = metrics.refusing(TypeUrl::Listener, "a.b", "Internal");
        drop(old);
        assert!(text(&registry).contains("pilot_xds_lds_reject{err=\"Internal\",node=\"a.b\"} 1"));
        drop(new);
        assert!(!text(&registry).contains("a.b"));
    }
}
