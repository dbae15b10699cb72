//! Our two conditions in the status of an object. Pure.

use config::store::ObjectStatus;
use serde_json::{Value, json};

/// The state of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it was not accepted.
    pub errors: Vec<String>,
    /// Parts that were left out.
    pub warnings: Vec<String>,
    /// Connected proxies that hold something made from it, and those of them that have ACKed all of that.
    pub holders: usize,
    pub acknowledged: usize,
    /// There are proxies of other replicas beside these, which have ACKed it and were not counted.
    pub uncounted: bool,
    /// The proxy that NACKed it, and its error.
    pub rejection: Option<String>,
}

/// Which of the connected proxies a verdict counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Coverage {
    All,
    /// Not those of this replica, or not as of this version of the object.
    Unreported(String),
    /// The replicas could not be read.
    Unknown,
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
    /// Only the count of proxies.
    Count,
    More,
}

/// Of a message, in characters; the API server accepts 32,768 bytes in a usual condition.
const MAX_MESSAGE: usize = 1000;
const RECONCILED: &str = "Reconciled";
const REFUSED: &str = "Refused";
const WAITING: &str = "Waiting";
const OTHER_REPLICAS: &str = "OtherReplicas";
const REPLICAS_UNKNOWN: &str = "ReplicasUnknown";
const NOT_USED: &str = "NotUsed";
const COUNTED: [&str; 5] = ["Acknowledged", NOT_USED, WAITING, OTHER_REPLICAS, REPLICAS_UNKNOWN];

impl Conditions {
    pub(super) fn of(
        verdict: &Verdict,
        ObjectStatus { generation, rejected, .. }: &ObjectStatus,
        coverage: Coverage,
    ) -> Conditions {
        let reconciled = if *rejected { not_accepted() } else { reconciled(verdict).within(coverage) };
        Conditions { generation: *generation, accepted: accepted(verdict), reconciled }
    }

    /// ACKs, or reports on them, are pending.
    pub(super) fn is_pending(&self) -> bool {
        [WAITING, OTHER_REPLICAS].contains(&self.reconciled.reason)
    }

    /// That proxies reject the object, if the current conditions do not say so of this generation.
    pub(super) fn new_rejection(&self, current: &str) -> Option<&str> {
        let is_known = |it: &Value| {
            it["type"] == RECONCILED && it["reason"] == REFUSED && it["observedGeneration"] == self.generation
        };
        let is_new = self.reconciled.reason == REFUSED && !parsed(current).iter().any(is_known);
        is_new.then_some(self.reconciled.message.as_str())
    }

    /// `current`: the conditions of the object, as JSON.
    pub(super) fn change(&self, current: &str) -> Change {
        let current = parsed(current);
        let find =
            |condition: &Condition| current.iter().find(|it| it["type"] == condition.kind).unwrap_or(&Value::Null);
        let (accepted, reconciled) = (find(&self.accepted), find(&self.reconciled));
        let (same, counted) =
            (self.accepted.is(accepted, self.generation), self.reconciled.is(reconciled, self.generation));
        let is_count = || {
            let holds = |current: &Value| self.reconciled.status == Status::True && current["status"] == "True";
            // That proxies use it now is news, and not a number.
            let settled = |reason: &str| COUNTED.contains(&reason) && reason != NOT_USED && holds(reconciled);
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

    /// All conditions, with those of others unchanged.
    pub(super) fn merged_into(&self, current: &str, now: jiff::Timestamp) -> Value {
        let current = parsed(current);
        let others = current.iter().filter(|it| it["type"] != self.accepted.kind && it["type"] != self.reconciled.kind);
        let own = [&self.accepted, &self.reconciled].map(|condition| {
            let before = current.iter().find(|it| it["type"] == condition.kind);
            let unchanged =
                before.filter(|it| it["status"] == condition.status()).map(|it| it["lastTransitionTime"].clone());
            json!({
                "type": condition.kind, "status": condition.status(), "reason": condition.reason,
                "message": condition.message, "observedGeneration": self.generation,
                "lastTransitionTime": unchanged.filter(Value::is_string).unwrap_or_else(|| format!("{now:.0}").into()),
            })
        });
        others.cloned().chain(own).collect()
    }
}

impl Condition {
    fn status(&self) -> &'static str {
        self.status.name()
    }

    /// Without all replicas nobody can tell that no proxy is pending or has NACKed it. One NACK suffices for False.
    fn within(self, coverage: Coverage) -> Condition {
        let (reason, replicas) = match coverage {
            _ if self.status != Status::True => return self,
            Coverage::All => return self,
            Coverage::Unreported(name) => {
                (OTHER_REPLICAS, format!("replica {name} has not reported what its proxies have acknowledged"))
            }
            Coverage::Unknown => (REPLICAS_UNKNOWN, "this replica may not read the reports of others".to_owned()),
        };
        Condition { status: Status::Unknown, reason, message: format!("{replicas}: {}", self.message), ..self }
    }

    fn is(&self, current: &Value, generation: i64) -> bool {
        current["status"] == self.status()
            && current["reason"] == self.reason
            && current["message"] == *self.message
            && current["observedGeneration"] == generation
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

fn not_accepted() -> Condition {
    let message = "proxies keep its last good version, if there was one".to_owned();
    Condition { kind: RECONCILED, status: Status::False, reason: "NotAccepted", message }
}

fn reconciled(Verdict { holders, acknowledged, uncounted, rejection, .. }: &Verdict) -> Condition {
    let counted = || {
        let others = if *uncounted { ", and of other replicas none is waited for" } else { "" };
        format!("{acknowledged} of {holders} proxies have acknowledged it{others}")
    };
    let (holds, reason, message) = match rejection {
        Some(rejection) => (false, REFUSED, joined(std::slice::from_ref(rejection))),
        None if *holders == 0 && !uncounted => {
            (true, NOT_USED, "no connected proxy holds anything that was made from it".to_owned())
        }
        None if acknowledged < holders => (false, WAITING, counted()),
        None => (true, "Acknowledged", counted()),
    };
    Condition { kind: RECONCILED, status: Status::of(holds), reason, message }
}

fn joined(texts: &[String]) -> String {
    let all = texts.join("; ");
    match all.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}...", &all[..end]),
        None => all,
    }
}

fn parsed(conditions: &str) -> Vec<Value> {
    serde_json::from_str(conditions).unwrap_or_default()
}
