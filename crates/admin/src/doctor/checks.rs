//! The checks: each compares facts and metrics with a threshold, and has a finding, figures and a hint. Pure.

mod certificates;
mod objects;
mod pipeline;
mod proxies;
mod resources;
mod scope;

use serde::Serialize;
use serde_json::{Value, json};

use super::facts::Facts;
use super::sample::Observation;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DoctorCheck {
    pub group: &'static str,
    pub id: &'static str,
    /// The replica that it is about, of several. Empty: all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replica: String,
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
    /// There is nothing to judge by.
    Unknown,
    Warning,
    Error,
}

const PIPELINE: &str = "push pipeline";
const SCOPE: &str = "scope";
const OBJECTS: &str = "objects";
const CERTIFICATES: &str = "certificates";
const PROXIES: &str = "proxies";
const RESOURCES: &str = "resources";
/// What is of the mesh rather than of one instance.
const OF_THE_MESH: [&str; 3] = [SCOPE, OBJECTS, PROXIES];

/// In the order in which an operator would look.
pub fn all(facts: &Facts, seen: &Observation) -> Vec<DoctorCheck> {
    let mut checks = vec![
        pipeline::stage(seen),
        pipeline::convergence(seen),
        pipeline::push_time(seen),
        pipeline::debounce(facts, seen),
        pipeline::throttle(facts, seen),
        pipeline::back_pressure(seen),
        scope::unscoped(facts),
        scope::idle_namespaces(facts),
        objects::broad_filters(facts),
        objects::wildcard_entries(facts),
        objects::long_entries(facts),
        objects::doubled_entries(facts),
        objects::repeated_policies(facts),
        certificates::load(facts, seen),
        certificates::key(facts),
        proxies::rejections(facts),
        proxies::state_of_the_world(facts),
        proxies::zombies(facts),
        proxies::clean_up(seen),
        resources::cpu(seen),
        resources::memory(seen),
    ];
    checks.push(resources::sharding(&checks));
    checks
}

/// Those that say something about one namespace.
pub fn of_namespace(checks: Vec<DoctorCheck>) -> Vec<DoctorCheck> {
    checks.into_iter().filter(|check| OF_THE_MESH.contains(&check.group) && check.id != "clean-up").collect()
}

/// One list for all replicas: of each check the worst result, with its replica where that matters.
pub fn combined(replicas: Vec<(String, Vec<DoctorCheck>)>) -> Vec<DoctorCheck> {
    let mut worst: Vec<DoctorCheck> = Vec::new();
    for (name, checks) in replicas {
        for (at, check) in checks.into_iter().enumerate() {
            let of_replica = !OF_THE_MESH.contains(&check.group) || check.id == "clean-up";
            let replica = if of_replica { name.clone() } else { String::new() };
            let check = DoctorCheck { replica, ..check };
            match worst.get_mut(at) {
                None => worst.push(check),
                Some(known) if known.outcome < check.outcome => *known = check,
                Some(_) => {}
            }
        }
    }
    worst
}

fn ok(group: &'static str, id: &'static str, what: impl Into<String>) -> DoctorCheck {
    DoctorCheck {
        group,
        id,
        replica: String::new(),
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
