//! The two conditions that are ours among those of an object's status. Pure.

use config::store::Standing;
use serde_json::{Value, json};

/// What is to be said of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it should not be.
    pub errors: Vec<String>,
    /// What was left out of it.
    pub warnings: Vec<String>,
    /// Connected proxies that have something that was made from it, and those of them that have acknowledged all of that.
    pub holders: usize,
    pub acknowledged: usize,
    /// Who refused it and why.
    pub refusal: Option<String>,
}

/// `Accepted` and `Reconciled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conditions {
    generation: i64,
    accepted: Condition,
    reconciled: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// Only how many proxies.
    Count,
    More,
}

/// Of a message, in characters; the API server takes 32,768 bytes of a status' usual kind.
const LONGEST: usize = 1000;
const RECONCILED: &str = "Reconciled";
const WAITING: &str = "Waiting";
const COUNTED: [&str; 3] = ["Acknowledged", "NotUsed", WAITING];

impl Conditions {
    pub(super) fn of(verdict: &Verdict, Standing { generation, refused, .. }: &Standing) -> Conditions {
        let reconciled = if *refused { refused_reconciled() } else { reconciled(verdict) };
        Conditions { generation: *generation, accepted: accepted(verdict), reconciled }
    }

    /// Proxies are waited for.
    pub(super) fn is_pending(&self) -> bool {
        self.reconciled.reason == WAITING
    }

    /// `held`: the conditions of the object, as JSON.
    pub(super) fn change(&self, held: &str) -> Change {
        let held = parsed(held);
        let find = |condition: &Condition| held.iter().find(|it| it["type"] == condition.kind).unwrap_or(&Value::Null);
        let (accepted, reconciled) = (find(&self.accepted), find(&self.reconciled));
        let (same, counted) =
            (self.accepted.is(accepted, self.generation), self.reconciled.is(reconciled, self.generation));
        let is_count = || {
            let settled =
                |reason: &str| self.reconciled.holds && COUNTED.contains(&reason) && reconciled["status"] == "True";
            reconciled["observedGeneration"] == self.generation
                && reconciled["reason"]
                    .as_str()
                    .is_some_and(|reason| reason == self.reconciled.reason || settled(reason))
        };
        match (same, counted) {
            (true, true) => Change::None,
            (true, false) if COUNTED.contains(&self.reconciled.reason) && is_count() => Change::Count,
            _ => Change::More,
        }
    }

    /// The whole list, with those of others as they are.
    pub(super) fn among(&self, held: &str, now: jiff::Timestamp) -> Value {
        let held = parsed(held);
        let others = held.iter().filter(|it| it["type"] != self.accepted.kind && it["type"] != self.reconciled.kind);
        let own = [&self.accepted, &self.reconciled].map(|condition| {
            let before = held.iter().find(|it| it["type"] == condition.kind);
            let kept =
                before.filter(|it| it["status"] == condition.status()).map(|it| it["lastTransitionTime"].clone());
            json!({
                "type": condition.kind, "status": condition.status(), "reason": condition.reason,
                "message": condition.message, "observedGeneration": self.generation,
                "lastTransitionTime": kept.filter(Value::is_string).unwrap_or_else(|| format!("{now:.0}").into()),
            })
        });
        others.cloned().chain(own).collect()
    }
}

impl Condition {
    fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }

    fn is(&self, held: &Value, generation: i64) -> bool {
        held["status"] == self.status()
            && held["reason"] == self.reason
            && held["message"] == *self.message
            && held["observedGeneration"] == generation
    }
}

fn accepted(Verdict { errors, warnings, .. }: &Verdict) -> Condition {
    let (holds, reason, message) = match (errors.is_empty(), warnings.is_empty()) {
        (false, _) => (false, "Invalid", joined(errors)),
        (true, false) => (true, "AcceptedWithWarnings", joined(warnings)),
        (true, true) => (true, "Accepted", String::new()),
    };
    Condition { kind: "Accepted", holds, reason, message }
}

fn refused_reconciled() -> Condition {
    let message = "proxies keep what its last good version said, if there was one".to_owned();
    Condition { kind: RECONCILED, holds: false, reason: "NotAccepted", message }
}

fn reconciled(Verdict { holders, acknowledged, refusal, .. }: &Verdict) -> Condition {
    let counted = || format!("{acknowledged} of {holders} proxies have acknowledged it");
    let (holds, reason, message) = match refusal {
        Some(refusal) => (false, "Refused", joined(std::slice::from_ref(refusal))),
        None if *holders == 0 => {
            (true, "NotUsed", "no connected proxy holds anything that was made from it".to_owned())
        }
        None if acknowledged < holders => (false, WAITING, counted()),
        None => (true, "Acknowledged", counted()),
    };
    Condition { kind: RECONCILED, holds, reason, message }
}

fn joined(texts: &[String]) -> String {
    let all = texts.join("; ");
    match all.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &all[..end]),
        None => all,
    }
}

fn parsed(conditions: &str) -> Vec<Value> {
    serde_json::from_str(conditions).unwrap_or_default()
}
