//! Whether proxies get more than they need: Sidecars, namespaces outside of the mesh.

use serde_json::json;

use super::{CheckOutcome, DoctorCheck, SCOPE, ok, size};
use crate::doctor::facts::{Facts, UnscopedNamespace};

const MAX_IDLE_SERVICES_SHARE: f64 = 0.2;

pub(super) fn unscoped(facts: &Facts) -> DoctorCheck {
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

pub(super) fn idle_namespaces(facts: &Facts) -> DoctorCheck {
    let services: usize = facts.idle_namespaces.iter().map(|it| it.services).sum();
    let check = ok(SCOPE, "idle-namespaces", "most services belong to namespaces of the mesh");
    if services as f64 <= facts.services as f64 * MAX_IDLE_SERVICES_SHARE {
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
