//! The replicas that share a root, of all revisions: the Secret with the root, and the Lease in which each reports how far its workloads are.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ca::{Kept, RootOptions};
use controllers::{AuthoritySecret, Reports, Seen};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::evidence::{Heard, Report, SILENT};
use super::exchange::Exchange;
use super::{Rotation, id};
use crate::serve::Balance;

/// How often replicas report.
const EVERY: Duration = Duration::from_secs(5);
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) struct Shared {
    secret: AuthoritySecret,
    replicas: Reports<Report>,
    /// Replicas of this revision. One of an older version is among them, and reports nothing.
    revision: Option<Arc<Balance>>,
    exchange: Mutex<Exchange>,
}

impl Shared {
    pub(crate) fn new(secret: AuthoritySecret, replicas: Reports<Report>, revision: Option<Arc<Balance>>) -> Shared {
        Shared { secret, replicas, revision, exchange: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        self.replicas.name()
    }

    pub(super) fn others(&self) -> Vec<Heard> {
        let mut others: Vec<Heard> = self
            .replicas
            .seen()
            .into_iter()
            .map(|Seen { name, line, silent }| Heard { name, report: line, silent })
            .collect();
        for Seen { name, silent, .. } in self.revision.iter().flat_map(|revision| revision.alive()) {
            if others.iter().all(|other| other.name != name) {
                others.push(Heard { name, report: Report::default(), silent });
            }
        }
        others.retain(|other| other.name != self.name());
        others
    }

    /// Who cannot report does not hear of the others either.
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

    /// The earliest beginning of this stage that anybody reports.
    pub(super) fn since(&self, stage: &str) -> Option<SystemTime> {
        let of_stage = self.replicas.seen().into_iter().filter(|seen| seen.line.stage == stage);
        let since = of_stage.filter_map(|seen| seen.line.since).min()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))
    }

    pub(super) async fn advance(&self, kept: &Kept, root: &RootOptions, now: SystemTime) -> Result<(), String> {
        let found = self.secret.read().await.map_err(|failure| format!("Secret istio-ca-secret: {failure}"))?;
        let found = found.ok_or("Secret istio-ca-secret is gone; restore it first")?;
        if found.material != kept.material().map_err(|error| error.to_string())? {
            return Err("Secret istio-ca-secret holds another stage than this replica, which follows within seconds; \
                        look at `meltemi ca status` before you go on"
                .to_owned());
        }
        let next = kept.next_material(root, now).map_err(|error| error.to_string())?;
        match self.secret.replace(&found, &next).await {
            Ok(_) => kept.adopt(&next).map_err(|error| error.to_string()),
            Err(failure) if AuthoritySecret::is_conflict(&failure) => {
                Err("somebody else changed Secret istio-ca-secret at the same time; look at `meltemi ca status` before you go on".to_owned())
            }
            Err(failure) => Err(format!("Secret istio-ca-secret cannot be written: {failure}")),
        }
    }
}

impl Rotation {
    /// Reports to the other replicas, for as long as the task lives.
    pub(crate) async fn follow(self: Arc<Rotation>) {
        let Some(shared) = &self.shared else { return };
        let mut told = String::new();
        loop {
            let report = self.exchanged(shared, SystemTime::now());
            let said = shared.replicas.tell(&report).await.err().map(|failure| failure.to_string()).unwrap_or_default();
            if !said.is_empty() && said != told {
                warn!(
                    problem = said,
                    "cannot report to the other replicas how far the rotation of the root is; retrying"
                );
            }
            told = said;
            sleep(EVERY).await;
        }
    }

    /// The others need not wait for our silence.
    pub(crate) async fn leave(&self) {
        if let Some(shared) = &self.shared {
            let _ = timeout(LAST_WORDS, shared.replicas.leave()).await;
        }
    }

    /// The report, after what the others have answered.
    fn exchanged(&self, shared: &Shared, now: SystemTime) -> Report {
        let (workloads, others) = (self.workloads(), shared.others());
        let live = others.iter().filter(|other| other.silent <= SILENT);
        let live: Vec<_> = live.map(|other| (other.name.as_str(), &other.report)).collect();
        let uncovered: Vec<u64> = self.uncovered(&workloads).iter().map(|(number, _)| *number).collect();
        let stage = id(self.kept.stage().0, &self.certificates.authority());
        let mut exchange = shared.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let (asks, answers) = exchange.round((shared.name(), &stage), &live, &uncovered, &self.issued);
        // After the answers were taken.
        Report { asks, answers, ..self.report(&workloads, now) }
    }
}
