//! The way of a change to the proxies: which stage takes the CPU time, and where changes wait.

use serde_json::json;

use super::{CheckOutcome, DoctorCheck, PIPELINE, ok};
use crate::doctor::facts::Facts;
use crate::doctor::sample::{Observation, SampleWindow};

/// The thresholds of the playbook for istiod, in seconds.
const CONVERGENCE: f64 = 30.0;
const PUSH_WARNS: f64 = 5.0;
const PUSH_FAILS: f64 = 10.0;
const UNANSWERED: f64 = 5.0;
const QUEUE: f64 = 1.0;
/// What the playbook raises the debounce to, and the throttle.
const LONG_DEBOUNCE_MS: u64 = 300;
const LONG_DEBOUNCE_MAX_MS: u64 = 15_000;
const HIGHEST_THROTTLE: usize = 200;
const REBUILDS_PER_SECOND: f64 = 1.0;

pub(super) fn stage(seen: &Observation) -> DoctorCheck {
    let check = ok(PIPELINE, "stage", "no stage needs more than a hundredth of a processor");
    match busiest(&seen.whole()) {
        Some((stage, share, total)) if total > 0.01 => DoctorCheck {
            what: format!("{stage} dominates: {:.0} % of {total:.2} processors", share * 100.0),
            figures: json!({"stage": stage, "share": share, "processors": total}),
            ..check
        },
        _ => check,
    }
}

/// The stage with most CPU time, its share, and the processors that all stages use.
pub(super) fn busiest(window: &SampleWindow<'_>) -> Option<(String, f64, f64)> {
    let stages = window.rates_by("meltemi_stage_cpu_seconds_total", "stage");
    let total: f64 = stages.iter().map(|(_, rate)| rate).sum();
    let (stage, rate) = stages.into_iter().next()?;
    (total > 0.0).then(|| (stage, rate / total, total))
}

pub(super) fn convergence(seen: &Observation) -> DoctorCheck {
    let check = ok(PIPELINE, "convergence", "nothing was pushed in the observed time");
    let p99 = |window: &SampleWindow<'_>| window.quantile(0.99, "pilot_proxy_convergence_time");
    let Some(shown) = p99(&seen.whole()) else { return check };
    let figures = json!({"p99Seconds": shown});
    let what = format!("p99 from change to ACK is {shown:.2} s");
    if seen.sustained(|window| p99(window).map(|p99| p99 > CONVERGENCE)) {
        return check.found(CheckOutcome::Error, what, "the other checks say which stage takes the time", figures);
    }
    DoctorCheck { what, figures, ..check }
}

pub(super) fn push_time(seen: &Observation) -> DoctorCheck {
    let check = ok(PIPELINE, "push-time", "pushes are quick");
    let p99 = |window: &SampleWindow<'_>| window.quantile(0.99, "pilot_xds_push_time");
    let above = |limit: f64| seen.sustained(|window| p99(window).map(|p99| p99 > limit));
    if !above(PUSH_WARNS) {
        return check;
    }
    let outcome = if above(PUSH_FAILS) { CheckOutcome::Error } else { CheckOutcome::Warning };
    let shown = p99(&seen.whole()).unwrap_or_default();
    check.found(
        outcome,
        format!("p99 of making and sending a response is {shown:.1} s"),
        "responses are too large: Sidecars first, then proxies that use delta xDS",
        json!({"p99Seconds": shown}),
    )
}

/// Changes that come too often to be collected, outside of rollouts. Endpoints take the fast path whatever the debounce is.
pub(super) fn debounce(facts: &Facts, seen: &Observation) -> DoctorCheck {
    let (after, max) = (facts.settings.debounce_after_ms, facts.settings.debounce_max_ms);
    let steady = seen.outside_rollouts();
    let rate = |window: &SampleWindow<'_>| window.rate("pilot_push_context_recompute_count");
    let shown = rate(&seen.whole());
    let check = ok(PIPELINE, "debounce", format!("PILOT_DEBOUNCE_AFTER is {after} ms, {shown:.1} rebuilds a second"));
    let is_frequent = steady.sustained(|window| Some(rate(window) > REBUILDS_PER_SECOND));
    if !is_frequent || (after >= LONG_DEBOUNCE_MS && max >= LONG_DEBOUNCE_MAX_MS) {
        return check;
    }
    check.found(
        CheckOutcome::Warning,
        format!("{shown:.1} rebuilds a second outside rollouts with PILOT_DEBOUNCE_AFTER={after}ms"),
        "set PILOT_DEBOUNCE_AFTER=300ms and PILOT_DEBOUNCE_MAX=15s; changes of endpoints are not delayed by it",
        json!({"rebuildsPerSecond": shown, "debounceAfterMs": after, "debounceMaxMs": max}),
    )
}

pub(super) fn throttle(facts: &Facts, seen: &Observation) -> DoctorCheck {
    let (slots, proxies) = (facts.settings.push_throttle, facts.proxies);
    let p99 = |window: &SampleWindow<'_>| window.quantile(0.99, "pilot_proxy_queue_time");
    let shown = p99(&seen.whole()).unwrap_or_default();
    let check = ok(PIPELINE, "throttle", format!("proxies wait {:.0} ms for their turn (p99)", shown * 1000.0));
    if !seen.sustained(|window| p99(window).map(|p99| p99 > QUEUE)) {
        return check;
    }
    let hint = match slots {
        // It follows the number of CPUs.
        0 => format!("set PILOT_PUSH_THROTTLE={HIGHEST_THROTTLE}, and watch the CPU"),
        HIGHEST_THROTTLE.. => "it is as high as it should be: see cpu, back-pressure and sharding".to_owned(),
        _ => format!("set PILOT_PUSH_THROTTLE={}, and watch the CPU", (slots * 2).clamp(4, HIGHEST_THROTTLE)),
    };
    check.found(
        CheckOutcome::Warning,
        format!("proxies wait {shown:.1} s for their turn (p99): PILOT_PUSH_THROTTLE is {slots} for {proxies} proxies"),
        &hint,
        json!({"pushThrottle": slots, "proxies": proxies, "queueP99Seconds": shown}),
    )
}

pub(super) fn back_pressure(seen: &Observation) -> DoctorCheck {
    let oldest = seen.last().sum("meltemi_unacked_oldest_seconds");
    let check = ok(PIPELINE, "back-pressure", "every response is answered soon");
    if oldest <= UNANSWERED {
        return check;
    }
    let waiting = seen.last().sum("meltemi_push_queue_depth");
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
