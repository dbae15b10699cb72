//! Status reports of replicas in one Lease that all revisions share: version, number of proxies, a digest of their objects.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sources::kube::RequestError;
use tokio::sync::watch;

use crate::reports::{PublishedReport, Reports};

/// The report of a replica.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaReport {
    /// The Istio revision that it serves.
    pub revision: String,
    pub version: String,
    /// Connected proxies.
    pub streams: usize,
    /// It accepts no new streams, and closes those that it has.
    pub draining: bool,
    /// A hash of all its objects, by kind.
    pub inputs: BTreeMap<String, String>,
    /// `ADDRESS:PORT` of its secure port. Empty: unknown, or off.
    pub secure: String,
    /// `ADDRESS:PORT` of its monitoring port. Empty: unknown, or off.
    pub monitoring: String,
    /// RFC 3339, by its own clock, for display.
    pub at: String,
}

/// The number of replicas besides this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OtherReplicas {
    pub of_revision: usize,
    pub of_all: usize,
}

/// Another replica that may serve proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingReplica {
    pub name: String,
    /// The Istio revision that it serves.
    pub revision: String,
    /// It has not reported for long, and may be cut off from the API server.
    pub silent: bool,
}

pub struct Replicas {
    reports: Reports<ReplicaReport>,
    revision: String,
    others: watch::Sender<OtherReplicas>,
}

/// A replica without proxies and without a new report for this long does not count.
const SILENT_AFTER: Duration = Duration::from_secs(20);

impl Replicas {
    pub fn new(reports: Reports<ReplicaReport>, revision: &str) -> Replicas {
        Replicas { reports, revision: revision.to_owned(), others: watch::Sender::default() }
    }

    /// Our name in the reports.
    pub fn name(&self) -> &str {
        self.reports.name()
    }

    /// Writes our report, and reads those of the others.
    pub async fn publish(&self, line: &ReplicaReport) -> Result<(), RequestError> {
        let published = self.reports.publish(&ReplicaReport { revision: self.revision.clone(), ..line.clone() }).await;
        self.count();
        published
    }

    /// Reads the reports of the others.
    pub async fn refresh(&self) -> Result<(), RequestError> {
        let refreshed = self.reports.refresh().await;
        self.count();
        refreshed
    }

    /// Removes our report.
    pub async fn leave(&self) -> Result<(), RequestError> {
        self.reports.leave().await
    }

    /// Replicas of our revision that are not draining, by name.
    pub fn seen(&self) -> Vec<PublishedReport<ReplicaReport>> {
        let mut seen = self.reports.seen();
        seen.retain(|seen| seen.line.revision == self.revision && !seen.line.draining);
        seen
    }

    /// How many others may serve proxies, as of the last reports.
    pub fn others(&self) -> watch::Receiver<OtherReplicas> {
        self.others.subscribe()
    }

    /// The others that may serve proxies, of all revisions, as of the last reports.
    pub fn serving_others(&self) -> Vec<ServingReplica> {
        let seen = self.reports.seen();
        let serving = |seen: &PublishedReport<ReplicaReport>| ServingReplica {
            name: seen.name.clone(),
            revision: seen.line.revision.clone(),
            silent: seen.silent > SILENT_AFTER,
        };
        seen.iter().filter(|seen| seen.name != self.name() && may_serve(seen)).map(serving).collect()
    }

    fn count(&self) {
        let others = others(&self.reports.seen(), self.name(), &self.revision);
        self.others.send_if_modified(|known| std::mem::replace(known, others) != others);
    }
}

/// A silent replica with proxies may be cut off from the API server but not from them, so that it counts until its report is removed.
fn may_serve(seen: &PublishedReport<ReplicaReport>) -> bool {
    seen.silent <= SILENT_AFTER || seen.line.streams > 0
}

fn others(seen: &[PublishedReport<ReplicaReport>], own: &str, revision: &str) -> OtherReplicas {
    let serving: Vec<_> = seen.iter().filter(|seen| seen.name != own && may_serve(seen)).collect();
    let of_revision = serving.iter().filter(|seen| seen.line.revision == revision).count();
    OtherReplicas { of_revision, of_all: serving.len() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::reports::{PREFIX, REMOVED_AFTER, ReportTable};

    fn lease(lines: &[(&str, &str, usize)]) -> Value {
        let line = |(name, revision, streams): &(&str, &str, usize)| {
            let line =
                ReplicaReport { revision: (*revision).to_owned(), streams: *streams, ..ReplicaReport::default() };
            (format!("{PREFIX}{name}"), serde_json::to_string(&line).expect("a line is JSON").into())
        };
        json!({ "metadata": { "annotations": lines.iter().map(line).collect::<serde_json::Map<String, Value>>() } })
    }

    fn check(table: &ReportTable<ReplicaReport>, of_revision: usize, of_all: usize) {
        assert_eq!(others(&table.seen(), "a", "default"), OtherReplicas { of_revision, of_all });
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_counted_by_revision_until_they_are_gone() {
        let mut table = ReportTable::default();
        check(&table, 0, 0);
        table.update(&lease(&[("a", "default", 3)]), "a");
        check(&table, 0, 0);
        table.update(&lease(&[("a", "default", 3), ("b", "default", 0), ("c", "canary", 1)]), "a");
        check(&table, 1, 2);
        table.update(&lease(&[("a", "default", 3), ("c", "canary", 1)]), "a");
        check(&table, 0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_replica_counts_as_long_as_it_may_have_proxies() {
        let mut table = ReportTable::default();
        let last = lease(&[("a", "default", 0), ("b", "default", 2), ("c", "default", 0)]);
        table.update(&last, "a");
        check(&table, 2, 2);
        sleep(SILENT_AFTER * 2).await;
        assert!(table.update(&last, "a").is_empty());
        check(&table, 1, 1);
        sleep(REMOVED_AFTER).await;
        assert_eq!(table.update(&last, "a"), ["b", "c"]);
    }
}
