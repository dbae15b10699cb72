//! The figures of the whole server: its health, the stages of a push with rate, time and memory, convergence over the last minutes, what the
//! doctor says, and the replicas. Rates are between two samples of the metrics.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use config::diagnostic::Severity;
use serde_json::{Value, json};
use xds::{Stage, SyncStatus};

use super::change_log::ChangeLog;
use super::proxy_rows::milliseconds;
use super::reach::overall;
use super::work::Work;
use crate::doctor::checks;
use crate::doctor::sample::{MetricsSample, Observation, SampleWindow};
use crate::metrics::ObjectStats;
use crate::state::AdminState;
use crate::watches;

/// Facts about a large mesh take a second to collect.
const DOCTOR_INTERVAL: Duration = Duration::from_secs(60);
const DOCTOR_REST: u32 = 1000;

#[derive(Default)]
pub(super) struct Overview {
    /// The samples of the last seconds; rates are between the oldest and the newest.
    samples: Vec<(Instant, MetricsSample)>,
    doctor: Option<Doctor>,
}

struct Doctor {
    due: Instant,
    findings: Value,
}

/// Rates are over this time at the least, so that they do not jump.
const WINDOW: Duration = Duration::from_secs(10);

impl Overview {
    pub(super) fn sample(&mut self, state: &AdminState, log: &mut ChangeLog) {
        let Ok(text) = state.exporter.page() else { return };
        let now = Instant::now();
        self.samples.push((now, MetricsSample::read(&text)));
        while self.samples.len() > 2 && now.duration_since(self.samples[1].0) >= WINDOW {
            self.samples.remove(0);
        }
        let (first, last) = (&self.samples[0], &self.samples[self.samples.len() - 1]);
        let window = SampleWindow { before: &first.1, after: &last.1, length: last.0.duration_since(first.0) };
        log.put_text("now", row("now", &figures(state, &window)));
        log.put_text("health", row("health", &health(state)));
        log.put_text("heat", row("heat", &json!(state.convergence.heat_map())));
        if let Some(balancer) = state.server.replicas.get() {
            log.put_text("replicas", row("replicas", &json!(balancer.statuses())));
        }
        if self.doctor.as_ref().is_none_or(|doctor| doctor.due <= now) && window.length >= INTERVAL_OF_RATES {
            let work = Work::begin();
            let findings = doctor(state, &window);
            let took = work.spent();
            self.doctor = Some(Doctor { due: now + DOCTOR_INTERVAL.max(took * DOCTOR_REST), findings });
        }
        if let Some(doctor) = &self.doctor {
            log.put_text("doctor", row("doctor", &doctor.findings));
        }
    }
}

/// Below this the doctor's rates say nothing.
const INTERVAL_OF_RATES: Duration = Duration::from_secs(3);

fn row(name: &str, value: &Value) -> String {
    json!([name, value]).to_string()
}

fn figures(state: &AdminState, window: &SampleWindow<'_>) -> Value {
    let after = window.after;
    let by = |pairs: Vec<(String, f64)>| pairs.into_iter().collect::<BTreeMap<String, f64>>();
    let (cpu, memory) =
        (by(window.rates_by("meltemi_stage_cpu_seconds_total", "stage")), by(after.by("meltemi_memory_bytes", "part")));
    let stages: Vec<Value> = Stage::ALL
        .iter()
        .map(|stage| {
            let of = |figures: &BTreeMap<String, f64>| figures.get(stage.label()).copied().unwrap_or_default();
            json!({"stage": stage.label(), "cpu": of(&cpu), "bytes": of(&memory)})
        })
        .collect();
    let times = |name: &str| {
        json!({
            "p50": window.quantile(0.5, name), "p99": window.quantile(0.99, name),
            "p50Ever": after.quantile(0.5, name), "p99Ever": after.quantile(0.99, name),
        })
    };
    json!({
        "at": milliseconds(SystemTime::now()),
        "windowSeconds": window.length.as_secs_f64(),
        "uptimeSeconds": after.sum("istiod_uptime_seconds"),
        "stages": stages,
        "rates": {
            "changes": window.rate("pilot_inbound_updates"),
            "refreshes": window.rate("pilot_pushcontext_init_seconds_count"),
            "responses": window.rate("pilot_xds_pushes"),
            "responseBytes": window.rate("pilot_xds_config_size_bytes_sum"),
            "acks": window.rate("pilot_proxy_convergence_time_count"),
            "rejects": window.rate("pilot_total_xds_rejects"),
            "certificates": window.rate("citadel_server_success_cert_issuance_count"),
            "cpu": window.rate("process_cpu_seconds_total"),
        },
        "times": {
            "debounce": times("pilot_debounce_time"),
            "refresh": times("pilot_pushcontext_init_seconds"),
            "queue": times("pilot_proxy_queue_time"),
            "send": times("pilot_xds_send_time"),
            "convergence": times("pilot_proxy_convergence_time"),
        },
        "queueDepth": after.sum("meltemi_push_queue_depth"),
        "slotsInUse": after.sum("meltemi_push_slots_in_use"),
        "oldestUnackedSeconds": after.sum("meltemi_unacked_oldest_seconds"),
        "residentBytes": after.sum("process_resident_memory_bytes"),
        "memoryLimitBytes": after.sum("meltemi_memory_limit_bytes"),
        "cpuRequest": after.sum("meltemi_cpu_request_cores"),
        "panics": after.sum("meltemi_panics_total"),
        "classes": state.server.views.as_ref().map(|views| views.class_count()),
        "throttle": state.effective.push_throttle,
    })
}

fn health(state: &AdminState) -> Value {
    let mut counts = [0usize; 4];
    state.server.connections.for_each_watched(|_, watched| counts[overall(watched) as usize] += 1);
    let objects = state.server.metrics.objects.snapshot();
    let count =
        |severity| objects.as_ref().map(|it| it.diagnostics.iter().filter(|note| note.severity == severity).count());
    let watches = state.server.watches.as_ref().map(|health| watches::page(health, SystemTime::now()));
    json!({
        "ready": state.server.provider.ready(),
        "draining": state.server.draining.load(std::sync::atomic::Ordering::Relaxed),
        "proxies": counts.iter().sum::<usize>(),
        "synced": counts[SyncStatus::Synced as usize] + counts[SyncStatus::NotSent as usize],
        "stale": counts[SyncStatus::Stale as usize],
        "rejected": counts[SyncStatus::Error as usize],
        "expected": objects.as_ref().map(|it| ObjectStats::of(it, &state.effective.revision).expected_proxies),
        "errors": count(Severity::Error),
        "warnings": count(Severity::Warning),
        // Null: a folder is read, and no API server is watched.
        "watches": watches,
    })
}

fn doctor(state: &AdminState, window: &SampleWindow<'_>) -> Value {
    let Some(facts) = state.facts(&BTreeMap::new(), None) else { return Value::Null };
    let recent =
        || Observation::new(vec![(Duration::ZERO, window.before.clone()), (window.length, window.after.clone())]);
    let kept = state.samples.page(Instant::now()).observation(window.after.clone());
    let checks = checks::all(&facts, &kept.unwrap_or_else(recent));
    json!({"at": milliseconds(SystemTime::now()), "checks": checks})
}
