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

/// Which of the connected proxies a verdict counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coverage {
    All,
    /// Those of one replica of so many: what the proxies of the others hold is not known.
    OneOf(usize),
    /// How many replicas there are could not be read.
    Unknown,
}

impl Coverage {
    pub(super) fn new(known: bool, others: usize) -> Coverage {
        match others {
            _ if !known => Coverage::Unknown,
            0 => Coverage::All,
            others => Coverage::OneOf(others + 1),
        }
    }
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
    status: Status,
    reason: &'static str,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    fn of(holds: bool) -> Status {
        if holds { Status::True } else { Status::False }
    }

    fn name(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
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
const OTHER_REPLICAS: &str = "OtherReplicas";
const REPLICAS_UNKNOWN: &str = "ReplicasUnknown";
const COUNTED: [&str; 5] = ["Acknowledged", "NotUsed", WAITING, OTHER_REPLICAS, REPLICAS_UNKNOWN];

impl Conditions {
    pub(super) fn of(
        verdict: &Verdict,
        Standing { generation, refused, .. }: &Standing,
        coverage: Coverage,
    ) -> Conditions {
        let reconciled = if *refused { refused_reconciled() } else { reconciled(verdict).within(coverage) };
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
            let holds = |held: &Value| self.reconciled.status == Status::True && held["status"] == "True";
            let settled = |reason: &str| COUNTED.contains(&reason) && holds(reconciled);
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
        self.status.name()
    }

    /// One replica cannot say that no proxy is left to acknowledge or reject it. What one proxy says is enough for False.
    fn within(self, coverage: Coverage) -> Condition {
        let (reason, replicas) = match coverage {
            _ if self.status != Status::True => return self,
            Coverage::All => return self,
            Coverage::OneOf(all) => {
                (OTHER_REPLICAS, format!("this replica is one of {all} and knows its own proxies only"))
            }
            Coverage::Unknown => (REPLICAS_UNKNOWN, "this replica may not read how many there are".to_owned()),
        };
        Condition { status: Status::Unknown, reason, message: format!("{replicas}: {}", self.message), ..self }
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
    Condition { kind: "Accepted", status: Status::of(holds), reason, message }
}

fn refused_reconciled() -> Condition {
    let message = "proxies keep what its last good version said, if there was one".to_owned();
    Condition { kind: RECONCILED, status: Status::False, reason: "NotAccepted", message }
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
    Condition { kind: RECONCILED, status: Status::of(holds), reason, message }
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
