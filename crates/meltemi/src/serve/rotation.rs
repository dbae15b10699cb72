//! The rotation of the root: how far it has come, from what all replicas report of their workloads, and the next stage, where there is enough
//! evidence or an operator insists.

mod evidence;
mod exchange;
mod issued;
mod reports;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ca::{Authority, Certificates, Kept, RootOptions, Stage};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep};
use xds::Connections;

use evidence::{Conditions, NAMED, THRESHOLD};
pub(crate) use evidence::{Evidence, ReplicaCoverage, Report};
pub(crate) use issued::Issued;
pub(crate) use reports::Shared;

/// Kubelets bring a changed ConfigMap into pods within a minute, and look at their caches of ConfigMaps every minute.
const CONFIG_MAPS: Duration = Duration::from_secs(120);
/// From new files to an authority that signs with them, on a machine with other work.
const LOADED_WITHIN: Duration = Duration::from_secs(5);
/// Of the name of a workload, which is its own word.
const NAME_LENGTH: usize = 100;

pub(crate) struct Rotation {
    pub(crate) kept: Kept,
    pub(crate) root: RootOptions,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) issued: Arc<Issued>,
    /// How long a certificate of a workload lives: after that, every one of the stage before has expired.
    pub(crate) lifetime: Duration,
    /// The files are new: the authority is made from them at once.
    pub(crate) moved: Arc<Notify>,
    /// `None`: there is no cluster, and so there are no other replicas.
    pub(crate) shared: Option<Shared>,
    /// One after the other: the second sees the stage that the first has made.
    pub(crate) turn: Mutex<()>,
}

/// A request to advance.
pub(crate) struct Advance {
    /// The stage that the operator has seen, as `CaStatus::id`.
    pub(crate) from: String,
    /// Without the evidence.
    pub(crate) force: bool,
    /// Workloads that must be covered at the least.
    pub(crate) workloads: usize,
    /// Whose token it came with.
    pub(crate) by: String,
}

/// As `meltemi ca` and the page `/debug/ca` show it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CaStatus {
    /// `settled`, `announced` or `switched`.
    pub(crate) stage: String,
    /// The stage and the keys of the roots in use: what a request to advance begins from.
    pub(crate) id: String,
    pub(crate) since: Option<String>,
    pub(crate) roots: Vec<RootStatus>,
    /// Workloads, an identity at an address each, that are connected to any replica and have shown who they are.
    pub(crate) proxies: usize,
    pub(crate) covered: usize,
    /// Not counted any longer: they had no certificate since the stage began, and every older one has expired.
    pub(crate) expired: usize,
    pub(crate) coverage: f64,
    pub(crate) threshold: f64,
    /// Some of those that are not covered.
    pub(crate) waiting_for: Vec<String>,
    /// Empty: there is no cluster.
    pub(crate) replicas: Vec<ReplicaCoverage>,
    /// What is missing before the next stage. Empty: nothing.
    pub(crate) missing: Vec<String>,
    pub(crate) next: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RootStatus {
    pub(crate) ends: String,
    pub(crate) signs: bool,
    /// The first bytes of its key's hash.
    pub(crate) key: String,
}

/// The workloads that are connected here: number and name of each, in the order of the numbers.
type Workloads = Vec<(u64, String)>;

impl Rotation {
    pub(crate) fn status(&self, now: SystemTime) -> CaStatus {
        self.status_for(1, now)
    }

    fn status_for(&self, workloads: usize, now: SystemTime) -> CaStatus {
        let authority = self.certificates.authority();
        let (stage, since) = self.stage_began();
        let own = self.report(&self.workloads(), now);
        let name = self.shared.as_ref().map(Shared::name);
        let others = self.shared.as_ref().map(Shared::others).unwrap_or_default();
        let evidence = Evidence::new(&own, name, &others);
        let age = since.map(|since| now.duration_since(since).unwrap_or_default());
        let stage_length = if self.shared.is_some() { CONFIG_MAPS } else { Duration::ZERO };
        let mut missing = evidence.missing(stage.name(), age, &Conditions { workloads, stage: stage_length });
        missing.extend(self.shared.as_ref().and_then(Shared::problem));
        CaStatus {
            stage: stage.name().to_owned(),
            id: id(stage, &authority),
            since: since.map(shown),
            roots: roots(&authority),
            proxies: evidence.proxies,
            covered: evidence.covered,
            expired: evidence.expired,
            coverage: evidence.coverage(),
            threshold: THRESHOLD,
            waiting_for: evidence.waiting_for,
            replicas: evidence.replicas,
            missing,
            next: next(stage).to_owned(),
        }
    }

    /// The next stage, or why not.
    pub(crate) async fn rotate(&self, asked: &Advance, now: SystemTime) -> Result<CaStatus, String> {
        let _turn = self.turn.lock().await;
        let status = self.status_for(asked.workloads.max(1), now);
        if asked.from != status.id {
            return Err(format!(
                "the rotation is at {}, not at {:?}: somebody else advanced it; look at `meltemi ca status` before you go on",
                status.id, asked.from
            ));
        }
        if !self.is_loaded() {
            return Err("the authority has not loaded the last stage yet; try again in a few seconds".to_owned());
        }
        let missing = status.missing.join("; ");
        if !missing.is_empty() && !asked.force {
            return Err(format!(
                "the evidence for the next stage is incomplete: {missing}. `--force` advances without it, and workloads that do not know the new root lose their connections"
            ));
        }
        if missing.is_empty() {
            tracing::info!(by = asked.by, from = status.id, "the rotation of the root advances");
        } else {
            tracing::warn!(by = asked.by, from = status.id, missing, "the rotation of the root advances by --force");
        }
        self.advance(now).await?;
        self.moved.notify_one();
        self.loaded().await;
        Ok(self.status(now))
    }

    fn is_loaded(&self) -> bool {
        self.kept.is_loaded(&self.certificates.authority()).unwrap_or(false)
    }

    /// So that what is told of the new stage holds. Whoever asks next sees it in any case.
    async fn loaded(&self) {
        let end = Instant::now() + LOADED_WITHIN;
        while !self.is_loaded() && Instant::now() < end {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// With several replicas the Secret is written first, and only if it holds what this replica holds: of two that advance at once, one
    /// does.
    async fn advance(&self, now: SystemTime) -> Result<(), String> {
        match &self.shared {
            Some(shared) => shared.advance(&self.kept, &self.root, now).await,
            None => self.kept.advance(&self.root, now).map(drop).map_err(|error| error.to_string()),
        }
    }

    /// Since when, by whichever replica has known the stage for longest: one that started again has its files from then.
    fn stage_began(&self) -> (Stage, Option<SystemTime>) {
        let (stage, since) = self.kept.stage();
        let reported = self.shared.as_ref().and_then(|shared| shared.since(&id(stage, &self.certificates.authority())));
        (stage, since.map(|since| reported.map_or(since, |reported| reported.min(since))))
    }

    fn workloads(&self) -> Workloads {
        let mut found = HashMap::new();
        let mut seen = Vec::new();
        self.connections.for_each(|connection| {
            if let Some(caller) = &connection.caller {
                seen.push((caller.clone(), connection.address.ip(), connection.proxy.clone()));
            }
        });
        for (caller, address, proxy) in seen {
            let name = || proxy.id.chars().take(NAME_LENGTH).collect::<String>();
            found.entry(ca::workload(&caller, address)).or_insert_with(name);
        }
        let mut workloads: Workloads = found.into_iter().collect();
        workloads.sort_unstable();
        workloads
    }

    /// Of the workloads, those without a certificate of this stage, in their order.
    fn uncovered<'a>(&self, workloads: &'a Workloads) -> Vec<&'a (u64, String)> {
        match (self.is_loaded(), self.kept.stage().0) {
            (true, Stage::Settled) => Vec::new(),
            (true, _) => workloads.iter().filter(|(number, _)| !self.issued.holds(*number)).collect(),
            // Certificates are still those of the stage before.
            (false, _) => workloads.iter().collect(),
        }
    }

    fn report(&self, workloads: &Workloads, now: SystemTime) -> Report {
        let (stage, since) = self.stage_began();
        let uncovered = self.uncovered(workloads);
        let age = since.map(|since| now.duration_since(since).unwrap_or_default());
        // Whatever they hold from before has expired: they are broken, gone, or hostile, and nobody waits for them any longer.
        let expired = if age.is_some_and(|age| age >= self.lifetime) { uncovered.len() } else { 0 };
        Report {
            stage: id(stage, &self.certificates.authority()),
            since: since.and_then(|since| Some(since.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())),
            workloads: workloads.len(),
            covered: workloads.len() - uncovered.len(),
            expired,
            waiting_for: uncovered.iter().take(NAMED).map(|(_, name)| name.clone()).collect(),
            at: shown(now),
            ..Report::default()
        }
    }
}

fn id(stage: Stage, authority: &Authority) -> String {
    let keys: Vec<String> = authority.roots().iter().map(ca::Certificate::key_hash).collect();
    format!("{}-{}", stage.name(), keys.join("-"))
}

fn next(stage: Stage) -> &'static str {
    match stage {
        Stage::Settled => "`meltemi ca rotate` makes a new root and announces it; the old one goes on signing",
        Stage::Announced => "`meltemi ca rotate` lets the new root sign; the old one stays trusted",
        Stage::Switched => "`meltemi ca rotate` ends the trust in the old root",
    }
}

fn roots(authority: &Authority) -> Vec<RootStatus> {
    let one = |(index, root): (usize, &ca::Certificate)| RootStatus {
        ends: shown(root.not_after),
        signs: index == 0,
        key: root.key_hash(),
    };
    authority.roots().iter().enumerate().map(one).collect()
}

fn shown(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| String::new(), |at| format!("{at:.0}"))
}

#[cfg(test)]
mod tests;
