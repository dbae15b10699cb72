//! Reports of replicas on the ACKs of their proxies, in one Lease of all revisions: each replica sees its own proxies only, and the one that
//! writes the status of an object counts those of all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::store::Snapshot;
use serde::{Deserialize, Serialize};
use sources::kube::RequestError;

use crate::replicas::{Replicas, ServingReplica};
use crate::reports::{PublishedReport, Reports};
use crate::status::{Coverage, Verdict, Verdicts};

/// What the proxies of one replica have ACKed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AckReport {
    /// The namespaces that it reads. Empty: all.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    namespaces: BTreeSet<Arc<str>>,
    /// By kind, the newest resourceVersion that its proxies' configuration is made of.
    latest: BTreeMap<String, u64>,
    /// By object: proxies that have ACKed what was made from it, and those that hold it.
    counts: BTreeMap<String, (usize, usize)>,
    /// By object: the proxy that NACKed it, and its error.
    rejected: BTreeMap<String, String>,
    detail: Detail,
}

/// What `counts` and `rejected` leave out, for the size of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Detail {
    #[default]
    Full,
    /// Objects that all of their proxies have ACKed are left out.
    Pending,
    /// Any object may be left out.
    Truncated,
}

/// Reports of this replica and of the others.
pub struct Acknowledgements {
    pub reports: Reports<AckReport>,
    pub replicas: Arc<Replicas>,
    /// The namespaces that this replica reads. Empty: all.
    pub namespaces: BTreeSet<Arc<str>>,
}

/// The reports of the others, as of the last request.
#[derive(Clone, PartialEq)]
pub(crate) struct OtherReports(Vec<(ServingReplica, Option<AckReport>)>);

/// An object of Kubernetes has at most 256 KiB of annotations: what the reports of all replicas may take, and that of one.
const MAX_BYTES: usize = 192 << 10;
const MAX_REPORT_BYTES: usize = 48 << 10;
/// An error, in characters.
const MAX_ERROR: usize = 300;
/// What JSON adds to the name of an object and two numbers.
const ENTRY_BYTES: usize = 24;

impl Acknowledgements {
    /// Writes our report, and reads those of the others.
    pub(crate) async fn publish(&self, snapshot: &Snapshot, verdicts: &Verdicts) -> Result<(), RequestError> {
        let replicas = self.replicas.serving_others().len() + 1;
        let report = AckReport::new(snapshot, verdicts, self.namespaces.clone(), MAX_BYTES / replicas);
        // An equal one is no write for the API server.
        self.reports.publish(&report).await
    }

    /// Reads the reports of the others.
    pub(crate) async fn refresh(&self) -> Result<(), RequestError> {
        self.reports.refresh().await
    }

    pub(crate) fn others(&self) -> OtherReports {
        let seen = self.reports.seen();
        let report_of = |replica: &ServingReplica| {
            let of = |it: &&PublishedReport<AckReport>| it.name == replica.name;
            seen.iter().find(of).map(|it| it.line.clone())
        };
        let all = self.replicas.serving_others().into_iter();
        OtherReports(all.map(|replica| (replica.clone(), report_of(&replica))).collect())
    }
}

impl AckReport {
    fn new(snapshot: &Snapshot, verdicts: &Verdicts, namespaces: BTreeSet<Arc<str>>, budget: usize) -> AckReport {
        let mut report = AckReport { namespaces, ..AckReport::default() };
        for (id, status) in &snapshot.object_statuses {
            let latest = report.latest.entry(id.kind.name().to_owned()).or_default();
            *latest = status.version.max(*latest);
        }
        let mut budget = budget.min(MAX_REPORT_BYTES);
        let (all_acked, pending): (Vec<_>, Vec<_>) = verdicts
            .iter()
            .filter(|(_, it)| it.holders > 0 || it.rejection.is_some())
            .partition(|(_, it)| it.rejection.is_none() && it.acknowledged == it.holders);
        // In this order: what is left out at the end matters least.
        for (verdicts, left_out) in [(pending, Detail::Truncated), (all_acked, Detail::Pending)] {
            for (id, verdict) in verdicts {
                match budget.checked_sub(report.add(id, verdict)) {
                    Some(rest) => budget = rest,
                    None => {
                        report.remove(id);
                        report.detail = left_out;
                        return report;
                    }
                }
            }
        }
        report
    }

    /// Returns its size in bytes.
    fn add(&mut self, id: &ObjectId, verdict: &Verdict) -> usize {
        let name = id.to_string();
        let mut size = name.len() + ENTRY_BYTES;
        if let Some(error) = &verdict.rejection {
            let error: String = error.chars().take(MAX_ERROR).collect();
            size += name.len() + error.len() + ENTRY_BYTES;
            self.rejected.insert(name.clone(), error);
        }
        self.counts.insert(name, (verdict.acknowledged, verdict.holders));
        size
    }

    fn remove(&mut self, id: &ObjectId) {
        let name = id.to_string();
        self.counts.remove(&name);
        self.rejected.remove(&name);
    }

    /// Adds the proxies of this replica. `None`: it may have some that it does not report. `version`: a resourceVersion of the object in
    /// this generation.
    fn add_to(&self, verdict: &mut Verdict, id: &ObjectId, version: u64) -> Option<()> {
        if !self.namespaces.is_empty() && !self.namespaces.contains(&id.namespace) {
            return Some(());
        }
        let name = id.to_string();
        let (acknowledged, holders) = self.counts.get(&name).copied().unwrap_or_default();
        verdict.acknowledged = verdict.acknowledged.saturating_add(acknowledged);
        verdict.holders = verdict.holders.saturating_add(holders);
        if verdict.rejection.is_none() {
            verdict.rejection = self.rejected.get(&name).cloned();
        }
        let left_out = !self.counts.contains_key(&name);
        verdict.uncounted |= left_out && self.detail != Detail::Full;
        // The resourceVersions of a kind share one counter, and a watch delivers them in order.
        let is_up_to_date = self.latest.get(id.kind.name()).is_some_and(|latest| *latest >= version);
        (is_up_to_date && !(left_out && self.detail == Detail::Truncated)).then_some(())
    }
}

impl OtherReports {
    /// `own`: our own proxies. `revision`: the control planes that the object is for; `None`: all. `version`: a resourceVersion of the
    /// object in this generation.
    pub(crate) fn combine(
        &self,
        own: &Verdict,
        id: &ObjectId,
        revision: Option<&str>,
        version: u64,
    ) -> (Verdict, Coverage) {
        let (mut verdict, mut coverage) = (own.clone(), Coverage::All);
        let concerned = |it: &ServingReplica| revision.is_none_or(|named| named == it.revision);
        for (replica, report) in self.0.iter().filter(|(replica, _)| concerned(replica)) {
            let counted = report.as_ref().and_then(|report| report.add_to(&mut verdict, id, version));
            if counted.is_none() || replica.silent {
                coverage = Coverage::Unreported(replica.name.clone());
            }
        }
        (verdict, coverage)
    }
}

#[cfg(test)]
mod tests;
