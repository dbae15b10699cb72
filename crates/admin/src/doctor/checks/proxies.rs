//! Proxies: rejected configuration, streams without a workload, what they leave behind.

use serde_json::json;

use super::{CheckOutcome, DoctorCheck, PROXIES, listed, of_list, ok};
use crate::doctor::facts::Facts;
use crate::doctor::sample::Observation;

const CLEAN_UP: f64 = 1.0;

pub(super) fn rejections(facts: &Facts) -> DoctorCheck {
    let check = ok(PROXIES, "rejects", "no proxy rejects its configuration");
    let Some(first) = facts.rejections.first() else { return check };
    let made_from =
        if first.objects.is_empty() { String::new() } else { format!(", made from {}", listed(&first.objects)) };
    let what = format!(
        "{} causes: {} proxies reject their {}{made_from}: {} ({})",
        facts.rejections.len(),
        first.proxies.len(),
        first.kind,
        first.reason,
        listed(&first.proxies)
    );
    let hint = if first.objects.is_empty() {
        "the log names the objects that the rejected resources were made from"
    } else {
        "correct or remove one of these objects; until then the proxies keep what they had"
    };
    check.found(CheckOutcome::Error, what, hint, json!(facts.rejections))
}

pub(super) fn state_of_the_world(facts: &Facts) -> DoctorCheck {
    let check = ok(PROXIES, "state-of-the-world", "every proxy uses delta xDS");
    let what = format!("{} proxies are sent everything at every push", facts.state_of_the_world.len());
    of_list(check, &facts.state_of_the_world, &what, "let their agents use delta xDS: ISTIO_DELTA_XDS=true")
}

/// Without a connected proxy nothing is known, which is not the same as in order.
pub(super) fn zombies(facts: &Facts) -> DoctorCheck {
    let what = format!("{} proxies, {} pods with a sidecar", facts.proxies, facts.expected);
    let check = ok(PROXIES, "zombies", format!("for every proxy there is a workload ({what})"));
    if facts.proxies == 0 && facts.expected > 0 {
        let hint = "look at the injection and at the network of these pods: `meltemi check-inject`, and the log of one sidecar";
        return check.found(CheckOutcome::Warning, format!("no proxy is connected: {what}"), hint, json!([]));
    }
    if facts.proxies == 0 {
        return DoctorCheck { outcome: CheckOutcome::Unknown, what: "no proxy is connected".to_owned(), ..check };
    }
    let found = format!("{} of {what} have no workload any more", facts.zombies.len());
    of_list(
        check,
        &facts.zombies,
        &found,
        "they are closed within a minute; if they come back, look for nodes that vanish",
    )
}

pub(super) fn clean_up(seen: &Observation) -> DoctorCheck {
    let check = ok(PROXIES, "clean-up", "what a proxy leaves behind is gone at once");
    let slow = seen.last().quantile(0.99, "pilot_destroy_time_seconds").filter(|p99| *p99 > CLEAN_UP);
    let Some(p99) = slow else { return check };
    check.found(
        CheckOutcome::Warning,
        format!("p99 of cleaning up after a stream is {p99:.1} s"),
        "the instance is too busy (see CPU), or its log is read too slowly (at the level debug each stream writes to it)",
        json!({"p99Seconds": p99}),
    )
}
