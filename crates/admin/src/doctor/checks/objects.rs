//! Objects that cost more than they need to.

use super::{DoctorCheck, OBJECTS, of_list, ok};
use crate::doctor::facts::Facts;

pub(super) fn broad_filters(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "envoy-filters", "no EnvoyFilter matches every proxy");
    let what = format!("{} EnvoyFilters match all {} proxies", facts.broad_filters.len(), facts.proxies);
    of_list(
        check,
        &facts.broad_filters,
        &what,
        "give each a workloadSelector, or move it to the namespace that needs it",
    )
}

pub(super) fn wildcard_entries(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "wildcard-entries", "no ServiceEntry has a wildcard host");
    of_list(check, &facts.wildcard_entries, "ServiceEntries with wildcard hosts", "name the hosts that are called")
}

pub(super) fn long_entries(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "long-entries", "no ServiceEntry has a long list of addresses");
    let names: Vec<String> =
        facts.long_entries.iter().map(|it| format!("{} ({} addresses)", it.entry, it.addresses)).collect();
    of_list(check, &names, "ServiceEntries with many addresses", "let a DNS name stand for them (resolution: DNS)")
}

pub(super) fn doubled_entries(facts: &Facts) -> DoctorCheck {
    let check = ok(OBJECTS, "doubled-services", "no ServiceEntry repeats a Service");
    let names: Vec<String> =
        facts.doubled_entries.iter().map(|it| format!("{} repeats {}", it.entry, it.service)).collect();
    of_list(check, &names, "ServiceEntries that repeat a Service", "remove them: the Service is in the mesh already")
}

pub(super) fn repeated_policies(facts: &Facts) -> DoctorCheck {
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
