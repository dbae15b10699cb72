//! CPU and memory of an instance, the stage that takes them, and whether one instance is enough.

use serde_json::json;

use super::pipeline::busiest;
use super::{CheckOutcome, DoctorCheck, RESOURCES, ok, size};
use crate::doctor::sample::{Observation, SampleWindow};

const CPU: f64 = 0.8;
const MEMORY: f64 = 0.8;
/// Of the memory of the process. Where every part is smaller, the program itself does not fit, and no configuration changes that.
const LARGE_PART: f64 = 0.1;

/// Against the request of the container, outside of rollouts.
pub(super) fn cpu(seen: &Observation) -> DoctorCheck {
    let request = seen.last().sum("meltemi_cpu_request_cores");
    let used = |window: &SampleWindow<'_>| window.rate("process_cpu_seconds_total");
    let shown = used(&seen.whole());
    let share = if request > 0.0 { shown / request } else { 0.0 };
    let check = ok(RESOURCES, "cpu", format!("{shown:.2} of {request} processors"));
    if request <= 0.0 || !seen.outside_rollouts().sustained(|window| Some(used(window) > CPU * request)) {
        return DoctorCheck { figures: json!({"share": share}), ..check };
    }
    let busiest = busiest(&seen.whole());
    let (stage, hint) = busiest.map_or((String::new(), SCOPE_FIRST), |(stage, share, _)| {
        (format!(", of which {stage} takes {:.0} %", share * 100.0), cpu_remedy(&stage))
    });
    check.found(
        CheckOutcome::Warning,
        format!("{shown:.2} of {request} processors outside rollouts: {:.0} %{stage}", share * 100.0),
        hint,
        json!({"share": share}),
    )
}

const SCOPE_FIRST: &str = "Sidecars first, then shard";

/// Of the playbook, by the stage that dominates.
fn cpu_remedy(stage: &str) -> &'static str {
    match stage {
        "push_context" => {
            "Sidecars, EnvoyFilters with a workloadSelector, PILOT_DEBOUNCE_AFTER=300ms and PILOT_DEBOUNCE_MAX=15s, no wildcard ServiceEntries"
        }
        "certificates" => "PILOT_WORKLOAD_CERT_TTL=48h, an ECDSA key, or an external authority",
        "delta" | "push_queue" => "Sidecars, then shard by proxies",
        "serialization" | "send" => "Sidecars, and proxies that use delta xDS",
        "informer_cache" | "debounce" => "watch fewer namespaces: discoverySelectors, WATCHED_NAMESPACES",
        _ => SCOPE_FIRST,
    }
}

pub(super) fn memory(seen: &Observation) -> DoctorCheck {
    let used = |window: &SampleWindow<'_>| window.after.sum("process_resident_memory_bytes");
    let (resident, limit) = (used(&seen.whole()), seen.last().sum("meltemi_memory_limit_bytes"));
    let share = if limit > 0.0 { resident / limit } else { 0.0 };
    let shown = format!("{} of {}", size(resident as usize), size(limit as usize));
    let check = ok(RESOURCES, "memory", shown.clone());
    if limit <= 0.0 || !seen.sustained(|window| Some(used(window) > MEMORY * limit)) {
        return check;
    }
    let parts = seen.last().by("meltemi_memory_bytes", "part");
    let largest = parts.first();
    let part = largest.map_or_else(String::new, |(part, bytes)| {
        format!("; the largest part is {part} with {}", size(*bytes as usize))
    });
    check.found(
        CheckOutcome::Error,
        format!("{shown}: {:.0} %{part}", share * 100.0),
        largest
            .filter(|(_, bytes)| *bytes > LARGE_PART * resident)
            .map_or(RAISE_THE_LIMIT, |(part, _)| memory_remedy(part)),
        json!({"share": share, "parts": parts.into_iter().collect::<std::collections::BTreeMap<_, _>>()}),
    )
}

const RAISE_THE_LIMIT: &str = "raise the limit; /debug/memory shows what holds it";

/// Of the playbook, by the part that is largest.
fn memory_remedy(part: &str) -> &'static str {
    match part {
        "informer_cache" => {
            "watch fewer namespaces (discoverySelectors, WATCHED_NAMESPACES), keep EndpointSlices (PILOT_USE_ENDPOINT_SLICE=true), or raise the limit"
        }
        "push_context" => "Sidecars, and one policy for a namespace instead of one for each workload",
        "serialization" | "send" => "Sidecars; PILOT_PUSH_THROTTLE=50 lowers the peak of a push",
        "delta" | "ack" => "shard by proxies, after a look at zombies: streams without a workload",
        "push_queue" | "debounce" => "PILOT_DEBOUNCE_AFTER=300ms, so that fewer pushes overlap",
        _ => RAISE_THE_LIMIT,
    }
}

/// After scoping and debounce: another instance repeats what every instance does. Not because of a number of proxies.
pub(super) fn sharding(checks: &[DoctorCheck]) -> DoctorCheck {
    let is = |id: &str, outcome: CheckOutcome| checks.iter().any(|check| check.id == id && check.outcome >= outcome);
    let slow = is("convergence", CheckOutcome::Error);
    let busy = is("cpu", CheckOutcome::Warning);
    let first: Vec<&str> = ["unscoped", "debounce", "envoy-filters", "throttle", "idle-namespaces"]
        .into_iter()
        .filter(|id| is(id, CheckOutcome::Warning))
        .collect();
    let check = ok(RESOURCES, "sharding", "one instance is enough");
    if !slow && !busy {
        return check;
    }
    if !first.is_empty() {
        return DoctorCheck { what: format!("not before these are resolved: {}", first.join(", ")), ..check };
    }
    let hint = "give the namespaces with most churn a revision of their own (label istio.io/rev); then regions, then batch workloads";
    check.found(
        CheckOutcome::Warning,
        "one instance is not enough, with scoping and debounce in place",
        hint,
        json!({"convergence": slow, "cpu": busy}),
    )
}
