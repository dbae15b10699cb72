//! Replicas of all revisions that share a root: the Secret with the root, and the Lease in which each reports its coverage.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ca::{RootFolder, RootOptions};
use controllers::{CaSecret, PublishedReport, Reports};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::evidence::{CoverageReport, PeerCoverage, SILENT};
use super::exchange::Exchange;
use super::{RootRotation, id};
use crate::replicas::ReplicaBalancer;

/// How often replicas report.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct SharedRotation {
    secret: CaSecret,
    replicas: Reports<CoverageReport>,
    /// Replicas of this revision; those of an older version report no coverage.
    revision: Option<Arc<ReplicaBalancer>>,
    exchange: Mutex<Exchange>,
}

impl SharedRotation {
    pub(crate) fn new(
        secret: CaSecret,
        replicas: Reports<CoverageReport>,
        revision: Option<Arc<ReplicaBalancer>>,
    ) -> SharedRotation {
        SharedRotation { secret, replicas, revision, exchange: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        self.replicas.name()
    }

    pub(super) fn others(&self) -> Vec<PeerCoverage> {
        let mut others: Vec<PeerCoverage> = self
            .replicas
            .seen()
            .into_iter()
            .map(|PublishedReport { name, line, silent }| PeerCoverage { name, report: line, silent })
            .collect();
        for PublishedReport { name, silent, .. } in self.revision.iter().flat_map(|revision| revision.alive()) {
            if others.iter().all(|other| other.name != name) {
                others.push(PeerCoverage { name, report: CoverageReport::default(), silent });
            }
        }
        others.retain(|other| other.name != self.name());
        others
    }

    /// A replica that cannot report does not know the others either.
    pub(super) fn problem(&self) -> Option<String> {
        let own = self.replicas.seen().into_iter().find(|seen| seen.name == self.name());
        match own {
            Some(own) if own.silent <= SILENT => None,
            Some(own) => Some(format!(
                "this replica, {}, has not reached the API server for {} s and does not know how the others are",
                own.name,
                own.silent.as_secs()
            )),
            None => Some(format!("this replica, {}, has not exchanged reports with the others yet", self.name())),
        }
    }

    /// The earliest beginning of this stage that a replica reports.
    pub(super) fn since(&self, stage: &str) -> Option<SystemTime> {
        let of_stage = self.replicas.seen().into_iter().filter(|seen| seen.line.stage == stage);
        let since = of_stage.filter_map(|seen| seen.line.since).min()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))
    }

    pub(super) async fn advance(
        &self,
        root_folder: &RootFolder,
        root: &RootOptions,
        now: SystemTime,
    ) -> Result<(), String> {
        let found = self.secret.read().await.map_err(|failure| format!("Secret istio-ca-secret: {failure}"))?;
        let found = found.ok_or("Secret istio-ca-secret is gone; restore it first")?;
        if found.material != root_folder.material().map_err(|error| error.to_string())? {
            return Err("Secret istio-ca-secret holds another stage than this replica, which follows within seconds; \
                        look at `meltemi ca status` before you go on"
                .to_owned());
        }
        let next = root_folder.next_files(root, now).map_err(|error| error.to_string())?;
        match self.secret.replace(&found, &next).await {
            Ok(_) => root_folder.adopt(&next).map_err(|error| error.to_string()),
            Err(failure) if CaSecret::is_conflict(&failure) => {
                Err("somebody else changed Secret istio-ca-secret at the same time; look at `meltemi ca status` before you go on".to_owned())
            }
            Err(failure) => Err(format!("Secret istio-ca-secret cannot be written: {failure}")),
        }
    }
}

impl RootRotation {
    /// Reports to the other replicas, for as long as the task lives.
    pub(crate) async fn follow(self: Arc<RootRotation>) {
        let Some(shared) = &self.shared else { return };
        let mut last = String::new();
        loop {
            let report = self.exchange_report(shared, SystemTime::now());
            let written = shared.replicas.publish(&report).await;
            let problem = written.err().map(|failure| failure.to_string()).unwrap_or_default();
            if !problem.is_empty() && problem != last {
                warn!(problem, "cannot report the coverage of the root rotation; retrying");
            }
            last = problem;
            sleep(REPORT_INTERVAL).await;
        }
    }

    /// Removes the report, so that others need not wait until it is old.
    pub(crate) async fn leave(&self) {
        if let Some(shared) = &self.shared {
            let _ = timeout(LAST_REPORT_TIMEOUT, shared.replicas.leave()).await;
        }
    }

    /// The report, after the answers of others were recorded.
    fn exchange_report(&self, shared: &SharedRotation, now: SystemTime) -> CoverageReport {
        let (workloads, others) = (self.workloads(), shared.others());
        let live = others.iter().filter(|other| other.silent <= SILENT);
        let live: Vec<_> = live.map(|other| (other.name.as_str(), &other.report)).collect();
        let uncovered: Vec<u64> = self.uncovered(&workloads).iter().map(|(number, _)| *number).collect();
        let stage = id(self.root_folder.stage().0, &self.certificates.authority());
        let mut exchange = shared.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let (asks, answers) = exchange.round((shared.name(), &stage), &live, &uncovered, &self.issued);
        // After the answers were recorded.
        CoverageReport { asks, answers, ..self.report(&workloads, now) }
    }
}
