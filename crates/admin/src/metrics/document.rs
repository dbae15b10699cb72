//! docs/metrics.md, generated from the metrics themselves: `MELTEMI_BLESS=1 cargo test -p admin the_document` writes it.

use std::fmt::Write;

use prometheus::Registry;
use prometheus::core::Collector;
use prometheus::proto::MetricType;
use sources::kube::WatchesHealth;
use xds::MetricInfo;

use super::replicas::ReplicaCollector;
use super::{Exporter, ExporterSettings};
use crate::watches;
use server::Metrics;

const HEAD: &str = "\
# Metrics

Every metric that `/metrics` on `--monitoringAddr` (15014) has. Names, labels and buckets are istiod's, unless the last column says otherwise. Metrics
that begin with `meltemi_` are not in istiod. Times are in seconds.

Histograms of seconds have istiod's buckets and in addition .005, .01, .05, 60, 120 and 300. The last bucket of istiod is 30, so an alert on more
than 30 s cannot fire there.

Which metrics to look at for a symptom is in [troubleshooting.md](troubleshooting.md), for an alert in [operating.md](operating.md). This page is
generated from the program (`MELTEMI_BLESS=1 cargo test -p admin the_document`), and a test compares them.
";

pub(super) const LEFT_OUT: &str = "\
## Left out

Metrics of istiod that Meltemi does not have:

| metric | why |
|---|---|
| `pilot_duplicate_envoy_clusters`, `pilot_conflict_inbound_listener`, `pilot_conflict_outbound_listener_tcp_over_current_tcp` | conflicts are resolved before resources are generated, and `meltemi check` names both objects |
| `pilot_total_rejected_configs`, `provider_lookup_cluster_failures` | what is left out of an object, and why, is a diagnostic: `meltemi check` and the log have it, with the field |
| `pilot_k8s_proxies_with_no_service_targets` | a workload without a Service is valid; `/debug/instancesz` shows what selects each proxy |
| `pilot_k8s_endpoints_with_no_pods` | `endpoint_no_pod` says how many there are now |
| `controller_sync_errors_total` | `meltemi_watch_state` and `meltemi_watch_age_seconds` show which kind is behind, and for how long |
| `xds_cache_reads`, `xds_cache_evictions`, `xds_cache_size`, `xds_cache_dependent_config_size` | there is no separate cache; shared bytes are counted in `meltemi_memory_bytes{part=\"serialization\"}` |
| `pilot_worker_queue_depth`, `pilot_worker_queue_latency`, `pilot_worker_queue_duration` | there are no such queues |
| `galley_validation_config_updates`, `galley_validation_config_update_error`, `galley_validation_config_load_error`, `webhook_patch_attempts_total`, `webhook_patch_retries_total`, `webhook_patch_failures_total` | the `caBundle` is compared every five seconds and written if it differs; writes and failures are logged |
| `auto_registration_success_total`, `auto_registration_updates_total`, `auto_registration_unregister_total`, `auto_registration_deletes_total`, `auto_registration_errors_total` | there is no auto-registration of virtual machines |
| `istiod_remote_cluster_sync_status`, `remote_cluster_sync_timeouts_total`, `remote_cluster_secret_events_total` | objects are read from one cluster |
| `go_memstats_alloc_bytes_total`, `go_memstats_mallocs_total`, `go_gc_*` | there is no garbage collector, and counting every allocation is too expensive |
";

/// Heading, a sentence before the table, and how the names in it begin. The first section that fits has the metric.
const SECTIONS: [(&str, &str, &[&str]); 6] = [
    ("Replicas", "Only where objects are read from an API server.\n\n", &["meltemi_leader", "meltemi_replicas"]),
    ("The CA", "Only if the secure port is on.\n\n", &["citadel_", "meltemi_identity_", "meltemi_forwarded_"]),
    (
        "Cost by stage",
        "The stages are those of a push: `informer_cache` (objects: read, checked, stored), `debounce`, `push_context` (the configuration \
         of each class of proxies), `push_queue`, `delta` (the resources that one proxy lacks),\n`serialization`, `send` (sockets, HTTP/2), \
         `certificates`, `ack` (requests). `/debug/memory` shows the bytes with the resident memory of the process, and per proxy, service \
         and endpoint.\n\n",
        &["meltemi_stage_", "meltemi_memory_bytes"],
    ),
    (
        "Process",
        "On Linux. On other systems, metrics that are read from `/proc` are 0.\n\n",
        &[
            "process_",
            "go_",
            "pilot_info",
            "istio_build",
            "istiod_uptime",
            "meltemi_tasks",
            "meltemi_cpu_",
            "meltemi_memory_limit",
        ],
    ),
    (
        "Streams",
        "",
        &[
            "pilot_xds",
            "pilot_total_xds",
            "pilot_proxy",
            "pilot_destroy",
            "pilot_sds",
            "grpc_",
            "meltemi_push",
            "meltemi_unacked",
            "meltemi_xds",
        ],
    ),
    ("Objects and refresh", "", &[""]),
];

fn document() -> String {
    let rows = exported();
    let section =
        |row: &MetricInfo| SECTIONS.iter().position(|(_, _, fits)| fits.iter().any(|it| row.name.starts_with(it)));
    let mut text = HEAD.to_owned();
    for at in [5, 4, 0, 1, 2, 3] {
        let (heading, before, _) = SECTIONS[at];
        write!(text, "\n## {heading}\n\n{before}| metric | kind | labels | meaning |\n|---|---|---|---|\n").unwrap();
        for row in rows.iter().filter(|row| section(row) == Some(at)) {
            let labels: Vec<_> = row.labels.iter().map(|label| format!("`{label}`")).collect();
            let MetricInfo { name, kind, help, .. } = row;
            writeln!(text, "| `{name}` | {kind} | {} | {help}{} |", labels.join(", "), buckets(row)).unwrap();
        }
    }
    text + "\n" + LEFT_OUT
}

fn buckets(row: &MetricInfo) -> String {
    let shown: Vec<_> = row.buckets.iter().map(ToString::to_string).collect();
    if shown.is_empty() { String::new() } else { format!(". Buckets: {}", shown.join(" ")) }
}

/// What the server and the metrics page register.
fn registered() -> Vec<MetricInfo> {
    let metrics = std::sync::Arc::new(Metrics::new(Registry::new()).unwrap());
    let _exporter = Exporter::new(metrics.clone(), ExporterSettings::default()).unwrap();
    metrics.register().metrics()
}

/// All of them, by name.
pub(super) fn exported() -> Vec<MetricInfo> {
    let mut rows = registered();
    rows.extend(ca_metrics());
    rows.extend(watches());
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

fn row(name: &str, kind: &'static str, labels: &[String], help: &str) -> MetricInfo {
    let help = help.trim_end_matches('.').to_owned();
    MetricInfo { name: name.to_owned(), kind, labels: labels.to_vec(), help, buckets: Vec::new() }
}

/// Registered by the crate `ca`.
fn ca_metrics() -> Vec<MetricInfo> {
    let registry = Registry::new();
    let _metrics = ca::CaMetrics::new(&registry).unwrap();
    let families = registry.gather();
    let all = families.iter().map(|family| {
        let kind = if family.get_field_type() == MetricType::COUNTER { "counter" } else { "gauge" };
        let labels = family.get_metric().first().into_iter().flat_map(prometheus::proto::Metric::get_label);
        let labels: Vec<String> = labels.map(|label| label.name().to_owned()).collect();
        row(family.name(), kind, &labels, family.help())
    });
    all.collect()
}

/// Registered only where an API server is watched.
fn watches() -> Vec<MetricInfo> {
    let collectors: [Box<dyn Collector>; 2] = [
        Box::new(watches::WatchCollector::new(WatchesHealth::default())),
        Box::new(ReplicaCollector::new(std::sync::Weak::new())),
    ];
    let described = collectors.iter().flat_map(|collector| collector.desc()).map(|desc| {
        let kind = match &desc.fq_name {
            name if name.ends_with("_total") => "counter",
            name if name.ends_with("_delay_seconds") => "histogram",
            _ => "gauge",
        };
        row(&desc.fq_name, kind, &desc.variable_labels, &desc.help)
    });
    described.collect()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "MELTEMI_BLESS makes the test write its file")]
fn the_document_is_that_of_the_metrics() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let document = document();
    if std::env::var_os("MELTEMI_BLESS").is_some() {
        std::fs::write(file, &document).unwrap();
    }
    let current = std::fs::read_to_string(file).unwrap();
    assert!(current == document, "docs/metrics.md is out of date: MELTEMI_BLESS=1 cargo test -p admin the_document");
}

#[test]
fn every_metric_has_help_in_the_style_of_a_table() {
    for row in registered() {
        assert!(
            !row.help.is_empty() && !row.help.ends_with('.') && !row.help.contains('|'),
            "{}: {:?}",
            row.name,
            row.help
        );
    }
}
