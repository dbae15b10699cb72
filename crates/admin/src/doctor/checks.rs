//! The checks: each compares facts and metrics with a threshold, and has a finding, figures and a hint. Pure.

use serde::Serialize;
use serde_json::{Value, json};

use super::facts::{Facts, UnscopedNamespace};
use super::sample::SampleWindow;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DoctorCheck {
    pub group: &'static str,
    pub id: &'static str,
    #[serde(rename = "mark")]
    pub outcome: CheckOutcome,
    /// The finding, with figures.
    pub what: String,
    /// What to do; empty: nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// The finding as numbers and names.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub figures: Value,
    /// Objects that are ready to be applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apply: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckOutcome {
    Ok,
    Warning,
    Error,
}

/// The thresholds of the playbook for istiod, in seconds and shares.
const CONVERGENCE: f64 = 30.0;
const PUSH_WARNS: f64 = 5.0;
const PUSH_FAILS: f64 = 10.0;
const CPU: f64 = 0.8;
const MEMORY: f64 = 0.8;
const CLEAN_UP: f64 = 1.0;
const UNANSWERED: f64 = 5.0;
const DEFAULT_DEBOUNCE_MS: u64 = 100;
const REBUILDS_PER_SECOND: f64 = 3.0;
const QUEUE: f64 = 1.0;
const PROXIES_PER_SLOT: usize = 50;
const CERTIFICATES_PER_SECOND: f64 = 1.0;
/// A certificate is renewed at this share of its life.
const RENEWED_AT: f64 = 0.8;
const IDLE_SERVICES: f64 = 0.2;

/// In the order in which an operator would look.
pub fn all(facts: &Facts, seen: &SampleWindow<'_>) -> Vec<DoctorCheck> {
    let mut checks = vec![
        stage(seen),
        convergence(seen),
        push_time(seen),
        debounce(facts, seen),
        throttle(facts, seen),
        back_pressure(seen),
        unscoped(facts),
        idle_namespaces(facts),
        broad_filters(facts),
        wildcard_entries(facts),
        long_entries(facts),
        doubled_entries(facts),
        repeated_policies(facts),
        certificate_load(facts, seen),
        key_type(facts),
        rejections(facts),
        state_of_the_world(facts),
        zombies(facts),
        clean_up(seen),
        cpu(seen),
        memory(seen),
    ];
    checks.push(sharding(&checks));
    checks
}

fn ok(group: &'static str, id: &'static str, what: impl Into<String>) -> DoctorCheck {
    DoctorCheck {
        group,
        id,
        outcome: CheckOutcome::Ok,
        what: what.into(),
        hint: String::new(),
        figures: Value::Null,
        apply: Vec::new(),
    }
}

impl DoctorCheck {
    fn found(self, outcome: CheckOutcome, what: impl Into<String>, hint: &str, figures: Value) -> DoctorCheck {
        DoctorCheck { outcome, what: what.into(), hint: hint.to_owned(), figures, ..self }
    }
}

const PIPELINE: &str = "push pipeline";
const SCOPE: &str = "scope";
const OBJECTS: &str = "objects";
const CERTIFICATES: &str = "certificates";
const PROXIES: &str = "proxies";
const RESOURCES: &str = "resources";

fn stage(seen: &SampleWindow<'_>) -> DoctorCheck {
    let stages = seen.rates_by("meltemi_stage_cpu_seconds_total", "stage");
    let total: f64 = stages.iter().map(|(_, rate)| rate).sum();
    let check = ok(PIPELINE, "stage", "no stage needs more than a hundredth of a processor");
    match stages.first() {
        Some((stage, rate)) if total > 0.01 => {
            let share = rate / total * 100.0;
            DoctorCheck {
                what: format!("{stage} dominates: {share:.0} % of {total:.2} processors"),
                figures: json!({"stage": stage, "share": share / 100.0, "processors": total}),
                ..check
            }
        }
        _ => check,
    }
}

fn convergence(seen: &SampleWindow<'_>) -> DoctorCheck {
    let check = ok(PIPELINE, "convergence", "nothing was pushed in the observed time");
    let Some(p99) = seen.quantile(0.99, "pilot_proxy_convergence_time") else { return check };
    if p99 > CONVERGENCE {
        let what = format!("p99 from change to ACK is {p99:.1} s");
        return check.found(
            CheckOutcome::Error,
            what,
            "the other checks say which stage takes the time",
            json!({"p99Seconds": p99}),
        );
    }
    DoctorCheck { what: format!("p99 from change to ACK is {p99:.2} s"), figures: json!({"p99Seconds": p99}), ..check }
}

fn push_time(seen: &SampleWindow<'_>) -> DoctorCheck {
    let check = ok(PIPELINE, "push-time", "pushes are quick");
    let Some(p99) = seen.quantile(0.99, "pilot_xds_push_time").filter(|p99| *p99 > PUSH_WARNS) else { return check };
    let outcome = if p99 > PUSH_FAILS { CheckOutcome::Error } else { CheckOutcome::Warning };
    check.found(
        outcome,
        format!("p99 of making and sending a response is {p99:.1} s"),
        "configuration is too expensive: look at scope first",
        json!({"p99Seconds": p99}),
    )
}

fn debounce(facts: &Facts, seen: &SampleWindow<'_>) -> DoctorCheck {
    let after = facts.settings.debounce_after_ms;
    let rate = seen.rate("pilot_pushcontext_init_seconds_count");
    let check = ok(PIPELINE, "debounce", format!("PILOT_DEBOUNCE_AFTER is {after} ms, {rate:.1} rebuilds a second"));
    if after >= DEFAULT_DEBOUNCE_MS || rate < REBUILDS_PER_SECOND {
        return check;
    }
    let what = format!("{rate:.1} rebuilds a second with PILOT_DEBOUNCE_AFTER={after}ms: changes are not collected");
    check.found(
        CheckOutcome::Warning,
        what,
        "set PILOT_DEBOUNCE_AFTER to 200ms to 500ms; endpoints take the fast path all the same",
        json!({"rebuildsPerSecond": rate, "debounceAfterMs": after}),
    )
}

fn throttle(facts: &Facts, seen: &SampleWindow<'_>) -> DoctorCheck {
    let (slots, proxies) = (facts.settings.push_throttle, facts.proxies);
    let p99 = seen.quantile(0.99, "pilot_proxy_queue_time").unwrap_or_default();
    let check = ok(PIPELINE, "throttle", format!("proxies wait {:.0} ms for their turn (p99)", p99 * 1000.0));
    let few = slots > 0 && proxies > slots * PROXIES_PER_SLOT;
    if p99 <= QUEUE && !few {
        return check;
    }
    let what = format!("PILOT_PUSH_THROTTLE is {slots} for {proxies} proxies; p99 of the wait is {p99:.2} s");
    check.found(
        CheckOutcome::Warning,
        what,
        "raise PILOT_PUSH_THROTTLE with care, up to 100",
        json!({"pushThrottle": slots, "proxies": proxies, "queueP99Seconds": p99}),
    )
}

fn back_pressure(seen: &SampleWindow<'_>) -> DoctorCheck {
    let oldest = seen.after.sum("meltemi_unacked_oldest_seconds");
    let check = ok(PIPELINE, "back-pressure", "every response is answered soon");
    if oldest <= UNANSWERED {
        return check;
    }
    let waiting = seen.after.sum("meltemi_push_queue_depth");
    let what = format!("a response is unanswered for {oldest:.0} s: some proxies do not read or do not answer");
    let hint =
        "`meltemi proxies` shows them as STALE; look at their network and CPU, and at the size of what they are sent";
    check.found(
        if oldest > CONVERGENCE { CheckOutcome::Error } else { CheckOutcome::Warning },
        what,
        hint,
        json!({"oldestSeconds": oldest, "queueDepth": waiting}),
    )
}

fn unscoped(facts: &Facts) -> DoctorCheck {
    let check = ok(SCOPE, "unscoped", "no namespace would gain much from a Sidecar");
    let Some(first) = facts.unscoped.first() else { return check };
    let proxies: usize = facts.unscoped.iter().map(|it| it.proxies).sum();
    let bytes =
        |read: fn(&UnscopedNamespace) -> usize| facts.unscoped.iter().map(|it| read(it) * it.proxies).sum::<usize>();
    let (before, after) = (bytes(|it| it.before.bytes), bytes(|it| it.after.bytes));
    let what = format!(
        "{} namespaces with {proxies} proxies have no Sidecar: {} carries {} clusters ({}), with one {} ({}); {} instead of {} for all",
        facts.unscoped.len(),
        first.sample,
        first.before.clusters,
        size(first.before.bytes),
        first.after.clusters,
        size(first.after.bytes),
        size(after),
        size(before),
    );
    let hint = "apply a Sidecar to each, after a look at what else they call; -o json has them all";
    let apply = facts.unscoped.iter().map(|it| it.sidecar.clone()).collect();
    DoctorCheck { apply, ..check.found(CheckOutcome::Warning, what, hint, json!(facts.unscoped)) }
}

fn idle_namespaces(facts: &Facts) -> DoctorCheck {
    let services: usize = facts.idle_namespaces.iter().map(|it| it.services).sum();
    let check = ok(SCOPE, "idle-namespaces", "most services belong to namespaces of the mesh");
    if services as f64 <= facts.services as f64 * IDLE_SERVICES {
        return check;
    }
    let what = format!(
        "{services} of {} services are in {} namespaces without a workload of the mesh",
        facts.services,
        facts.idle_namespaces.len()
    );
    check.found(
        CheckOutcome::Warning,
        what,
        "leave them out with discoverySelectors of the mesh config",
        json!(facts.idle_namespaces),
    )
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let first = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{first} and {} more", names.len() - SHOWN) } else { first }
}

fn of_list(check: DoctorCheck, names: &[String], what: &str, hint: &str) -> DoctorCheck {
    if names.is_empty() {
        return check;
    }
    check.found(CheckOutcome::Warning, format!("{what}: {}", listed(names)), hint, json!(names))
}

fn broad_filters(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "envoy-filters", "no EnvoyFilter matches every proxy");
    let what = format!("{} EnvoyFilters match all {} proxies", facts.broad_filters.len(), facts.proxies);
    of_list(
        check,
        &facts.broad_filters,
        &what,
        "give each a workloadSelector, or move it to the namespace that needs it",
    )
}

fn wildcard_entries(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "wildcard-entries", "no ServiceEntry has a wildcard host");
    of_list(check, &facts.wildcard_entries, "ServiceEntries with wildcard hosts", "name the hosts that are called")
}

fn long_entries(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "long-entries", "no ServiceEntry has a long list of addresses");
    let names: Vec<String> =
        facts.long_entries.iter().map(|it| format!("{} ({} addresses)", it.entry, it.addresses)).collect();
    of_list(check, &names, "ServiceEntries with many addresses", "let a DNS name stand for them (resolution: DNS)")
}

fn doubled_entries(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "doubled-services", "no ServiceEntry repeats a Service");
    let names: Vec<String> =
        facts.doubled_entries.iter().map(|it| format!("{} repeats {}", it.entry, it.service)).collect();
    of_list(check, &names, "ServiceEntries that repeat a Service", "remove them: the Service is in the mesh already")
}

fn repeated_policies(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "repeated-policies", "policies do not repeat each other");
    let names: Vec<String> = facts
        .repeated_policies
        .iter()
        .map(|it| format!("{} equal {} in {}", it.policies.len(), it.kind, it.namespace))
        .collect();
    of_list(
        check,
        &names,
        "policies that differ only in the workload",
        "one without a selector, for the namespace, says the same",
    )
}

fn certificate_load(facts: &Facts, seen: &SampleWindow<'_>) -> DoctorCheck {
    let lifetime = facts.settings.lifetime_seconds as f64;
    let expected = if lifetime > 0.0 { facts.proxies as f64 / (lifetime * RENEWED_AT) } else { 0.0 };
    let rate = seen.rate("citadel_server_csr_count").max(expected);
    let check = ok(CERTIFICATES, "signing", format!("{rate:.2} certificates a second"));
    if rate <= CERTIFICATES_PER_SECOND {
        return check;
    }
    let what = format!("{rate:.1} certificates a second: {} proxies, each lasts {lifetime:.0} s", facts.proxies);
    check.found(
        CheckOutcome::Warning,
        what,
        "let them last longer: PILOT_WORKLOAD_CERT_TTL=48h",
        json!({"perSecond": rate, "lifetimeSeconds": lifetime}),
    )
}

fn key_type(facts: &Facts) -> DoctorCheck {
    let key = &facts.settings.key;
    let check = ok(
        CERTIFICATES,
        "key",
        if key.is_empty() { "there is no CA".to_owned() } else { format!("the CA has a {key} key") },
    );
    if !key.starts_with("RSA") {
        return check;
    }
    let hint =
        "ECDSA P-256 signs ten times as fast: CITADEL_SELF_SIGNED_CA_KEY_TYPE=P-256 with the next root, or plug one in";
    check.found(CheckOutcome::Warning, format!("the CA signs with {key}"), hint, json!({"key": key}))
}

fn rejections(facts: &Facts) -> DoctorCheck {
    let check = ok(PROXIES, "rejects", "no proxy rejects its configuration");
    let Some(first) = facts.rejections.first() else { return check };
    let what = format!(
        "{} causes: {} proxies reject their {}: {} ({})",
        facts.rejections.len(),
        first.proxies.len(),
        first.kind,
        first.reason,
        listed(&first.proxies)
    );
    check.found(
        CheckOutcome::Error,
        what,
        "the log names the objects that the rejected resource was made from",
        json!(facts.rejections),
    )
}

fn state_of_the_world(facts: &Facts) -> DoctorCheck {
    let check = ok(PROXIES, "state-of-the-world", "every proxy uses delta xDS");
    let what = format!("{} proxies are sent everything at every push", facts.state_of_the_world.len());
    of_list(check, &facts.state_of_the_world, &what, "let their agents use delta xDS: ISTIO_DELTA_XDS=true")
}

fn zombies(facts: &Facts) -> DoctorCheck {
    let what = format!("{} proxies, {} pods with a sidecar", facts.proxies, facts.expected);
    let check = ok(PROXIES, "zombies", format!("for every proxy there is a workload ({what})"));
    let found = format!("{} of {what} have no workload any more", facts.zombies.len());
    of_list(
        check,
        &facts.zombies,
        &found,
        "they are closed within a minute; if they come back, look for nodes that vanish",
    )
}

fn clean_up(seen: &SampleWindow<'_>) -> DoctorCheck {
    let check = ok(PROXIES, "clean-up", "what a proxy leaves behind is gone at once");
    let slow = seen.after.quantile(0.99, "pilot_destroy_time_seconds").filter(|p99| *p99 > CLEAN_UP);
    let Some(p99) = slow else { return check };
    check.found(
        CheckOutcome::Warning,
        format!("p99 of cleaning up after a stream is {p99:.1} s"),
        "the instance is too busy (see CPU), or its log is read too slowly (at the level debug each stream writes to it)",
        json!({"p99Seconds": p99}),
    )
}

fn cpu(seen: &SampleWindow<'_>) -> DoctorCheck {
    let request = seen.after.sum("meltemi_cpu_request_cores");
    let used = seen.rate("process_cpu_seconds_total");
    let share = if request > 0.0 { used / request } else { 0.0 };
    let check = ok(RESOURCES, "cpu", format!("{used:.2} of {request} processors"));
    if share <= CPU {
        return DoctorCheck { figures: json!({"share": share}), ..check };
    }
    check.found(
        CheckOutcome::Warning,
        format!("{used:.2} of {request} processors: {:.0} %", share * 100.0),
        "if it is so outside rollouts: scope, then shard",
        json!({"share": share}),
    )
}

fn memory(seen: &SampleWindow<'_>) -> DoctorCheck {
    let (resident, limit) =
        (seen.after.sum("process_resident_memory_bytes"), seen.after.sum("meltemi_memory_limit_bytes"));
    let share = if limit > 0.0 { resident / limit } else { 0.0 };
    let shown = format!("{} of {}", size(resident as usize), size(limit as usize));
    let check = ok(RESOURCES, "memory", shown.clone());
    if share <= MEMORY {
        return check;
    }
    let largest = seen.after.by("meltemi_memory_bytes", "part").into_iter().next();
    let part = largest.map_or_else(String::new, |(part, bytes)| {
        format!("; the largest part is {part} with {}", size(bytes as usize))
    });
    check.found(
        CheckOutcome::Error,
        format!("{shown}: {:.0} %{part}", share * 100.0),
        "raise the limit, or see what holds it at /debug/memory",
        json!({"share": share}),
    )
}

/// Only where everything else is in order: a second instance doubles the watches and halves nothing else.
fn sharding(checks: &[DoctorCheck]) -> DoctorCheck {
    let is = |id: &str, outcome: CheckOutcome| checks.iter().any(|check| check.id == id && check.outcome >= outcome);
    let slow = is("convergence", CheckOutcome::Error);
    let busy = is("cpu", CheckOutcome::Warning);
    let avoidable = ["unscoped", "debounce", "envoy-filters", "throttle", "idle-namespaces"]
        .into_iter()
        .any(|id| is(id, CheckOutcome::Warning));
    let check = ok(RESOURCES, "sharding", "one instance is enough");
    if !slow && !busy {
        return check;
    }
    if avoidable {
        return DoctorCheck { what: "not yet: the findings above come first".to_owned(), ..check };
    }
    let hint = "give the namespaces with most churn a revision of their own (label istio.io/rev); then regions, then batch workloads";
    check.found(
        CheckOutcome::Warning,
        "one instance is not enough, with scoping and debounce in place",
        hint,
        json!({"convergence": slow, "cpu": busy}),
    )
}

fn size(bytes: usize) -> String {
    let bytes = bytes as f64;
    match bytes {
        _ if bytes >= 1e9 => format!("{:.1} GB", bytes / 1e9),
        _ if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.1} kB", bytes / 1e3),
    }
}

#[cfg(test)]
mod tests;
