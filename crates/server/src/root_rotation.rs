//! Rotation of the root certificate: its stage, the coverage that all replicas report of their workloads, and the next stage, where there is
//! enough evidence or an operator forces it.

mod ages;
mod evidence;
mod exchange;
mod issued;
mod reports;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ca::{Authority, CertificateService, RootFolder, RootOptions, RotationStage};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep};
use xds::Connections;

pub use ages::{CertificateAge, CertificateAges};
pub use evidence::ReplicaCoverage;
use evidence::{Conditions, NAMED, THRESHOLD};
pub(crate) use evidence::{CoverageReport, Evidence};
pub(crate) use issued::IssuedCertificates;
pub(crate) use reports::SharedRotation;

/// Kubelets sync the volumes of pods every minute, from a cache of ConfigMaps that is up to a minute old.
const CONFIG_MAP_PROPAGATION: Duration = Duration::from_secs(120);
/// From new files to a CA that signs with them, on a busy machine.
const CA_LOAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest name of a workload, which comes from its node.
const NAME_LENGTH: usize = 100;

pub struct RootRotation {
    pub(crate) root_folder: RootFolder,
    pub(crate) root: RootOptions,
    pub(crate) certificates: Arc<CertificateService>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) issued: Arc<IssuedCertificates>,
    /// The lifetime of workload certificates: after it, every one of the previous stage has expired.
    pub(crate) lifetime: Duration,
    /// Notifies the CA to load the new files at once.
    pub(crate) files_changed: Arc<Notify>,
    /// `None`: there is no cluster, and so there are no other replicas.
    pub(crate) shared: Option<SharedRotation>,
    /// Serializes requests: the second sees the stage of the first.
    pub(crate) lock: Mutex<()>,
}

/// A request to advance the rotation.
pub struct AdvanceRequest {
    /// The stage that the operator has seen, as `RotationStatus::id`.
    pub from: String,
    /// Without the evidence.
    pub force: bool,
    /// Workloads that must be covered at the least.
    pub workloads: usize,
    /// The service account of the token.
    pub by: String,
}

/// The content of the page `/debug/ca`, shown by `meltemi ca`.
#[derive(Debug, Serialize, Deserialize)]
pub struct RotationStatus {
    /// `settled`, `announced` or `switched`.
    pub stage: String,
    /// The stage and the keys of the roots in use: what a request to advance begins from.
    pub id: String,
    pub since: Option<String>,
    pub roots: Vec<RootStatus>,
    /// Authenticated workloads, an identity at an address each, that are connected to any replica.
    pub proxies: usize,
    pub covered: usize,
    /// Excluded: they had no certificate since the stage began, and every older one has expired.
    pub expired: usize,
    pub coverage: f64,
    pub threshold: f64,
    /// Some of the workloads that are not covered.
    pub waiting_for: Vec<String>,
    /// Empty: there is no cluster.
    pub replicas: Vec<ReplicaCoverage>,
    /// Conditions of the next stage that are not met.
    pub missing: Vec<String>,
    pub next: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RootStatus {
    pub ends: String,
    pub signs: bool,
    /// The first bytes of its key's hash.
    pub key: String,
}

/// The workloads that are connected here: number and name of each, in the order of the numbers.
type Workloads = Vec<(u64, String)>;

impl RootRotation {
    pub fn status(&self, now: SystemTime) -> RotationStatus {
        self.status_for(1, now)
    }

    fn status_for(&self, workloads: usize, now: SystemTime) -> RotationStatus {
        let authority = self.certificates.authority();
        let (stage, since) = self.stage_began();
        let own = self.report(&self.workloads(), now);
        let name = self.shared.as_ref().map(SharedRotation::name);
        let others = self.shared.as_ref().map(SharedRotation::others).unwrap_or_default();
        let evidence = Evidence::new(&own, name, &others);
        let age = since.map(|since| now.duration_since(since).unwrap_or_default());
        let min_stage_age = if self.shared.is_some() { CONFIG_MAP_PROPAGATION } else { Duration::ZERO };
        let mut missing = evidence.missing(stage.name(), age, &Conditions { workloads, min_stage_age });
        missing.extend(self.shared.as_ref().and_then(SharedRotation::problem));
        RotationStatus {
            stage: stage.name().to_owned(),
            id: id(stage, &authority),
            since: since.map(rfc3339),
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

    /// Advances to the next stage, or returns why not.
    pub async fn rotate(&self, request: &AdvanceRequest, now: SystemTime) -> Result<RotationStatus, String> {
        let _guard = self.lock.lock().await;
        let status = self.status_for(request.workloads.max(1), now);
        if request.from != status.id {
            return Err(format!(
                "the rotation is at {}, not at {:?}: somebody else advanced it; look at `meltemi ca status` before you go on",
                status.id, request.from
            ));
        }
        if !self.is_loaded() {
            return Err("the CA has not loaded the last stage yet; try again in a few seconds".to_owned());
        }
        let missing = status.missing.join("; ");
        if !missing.is_empty() && !request.force {
            return Err(format!(
                "the evidence for the next stage is incomplete: {missing}. `--force` advances without it, and workloads that do not know the new root lose their connections"
            ));
        }
        if missing.is_empty() {
            tracing::info!(by = request.by, from = status.id, "root rotation: advancing");
        } else {
            tracing::warn!(
                by = request.by,
                from = status.id,
                missing,
                "root rotation: advancing without evidence (--force)"
            );
        }
        self.advance(now).await?;
        self.files_changed.notify_one();
        self.wait_until_loaded().await;
        Ok(self.status(now))
    }

    fn is_loaded(&self) -> bool {
        self.root_folder.is_loaded(&self.certificates.authority()).unwrap_or(false)
    }

    /// So that the returned status is of the new stage.
    async fn wait_until_loaded(&self) {
        let end = Instant::now() + CA_LOAD_TIMEOUT;
        while !self.is_loaded() && Instant::now() < end {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// With several replicas the Secret is written first, and only if it is unchanged: of two replicas that advance at once, one succeeds.
    async fn advance(&self, now: SystemTime) -> Result<(), String> {
        match &self.shared {
            Some(shared) => shared.advance(&self.root_folder, &self.root, now).await,
            None => self.root_folder.advance(&self.root, now).map(drop).map_err(|error| error.to_string()),
        }
    }

    /// The stage, and the earliest time at which a replica reports that it began: a restarted replica has newer files.
    fn stage_began(&self) -> (RotationStage, Option<SystemTime>) {
        let (stage, since) = self.root_folder.stage();
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

    /// The workloads without a certificate of this stage, in their order.
    fn uncovered<'a>(&self, workloads: &'a Workloads) -> Vec<&'a (u64, String)> {
        match (self.is_loaded(), self.root_folder.stage().0) {
            (true, RotationStage::Settled) => Vec::new(),
            (true, _) => workloads.iter().filter(|(number, _)| !self.issued.holds(*number)).collect(),
            // Certificates are still those of the stage before.
            (false, _) => workloads.iter().collect(),
        }
    }

    fn report(&self, workloads: &Workloads, now: SystemTime) -> CoverageReport {
        let (stage, since) = self.stage_began();
        let uncovered = self.uncovered(workloads);
        let age = since.map(|since| now.duration_since(since).unwrap_or_default());
        // All their earlier certificates have expired: they are broken, gone or hostile, and no longer block the rotation.
        let expired = if age.is_some_and(|age| age >= self.lifetime) { uncovered.len() } else { 0 };
        CoverageReport {
            stage: id(stage, &self.certificates.authority()),
            since: since.and_then(|since| Some(since.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())),
            workloads: workloads.len(),
            covered: workloads.len() - uncovered.len(),
            expired,
            waiting_for: uncovered.iter().take(NAMED).map(|(_, name)| name.clone()).collect(),
            at: rfc3339(now),
            ..CoverageReport::default()
        }
    }
}

fn id(stage: RotationStage, authority: &Authority) -> String {
    let keys: Vec<String> = authority.roots().iter().map(ca::Certificate::key_hash).collect();
    format!("{}-{}", stage.name(), keys.join("-"))
}

fn next(stage: RotationStage) -> &'static str {
    match stage {
        RotationStage::Settled => "`meltemi ca rotate` makes a new root and announces it; the old one goes on signing",
        RotationStage::Announced => "`meltemi ca rotate` lets the new root sign; the old one stays trusted",
        RotationStage::Switched => "`meltemi ca rotate` ends the trust in the old root",
    }
}

fn roots(authority: &Authority) -> Vec<RootStatus> {
    let one = |(index, root): (usize, &ca::Certificate)| RootStatus {
        ends: rfc3339(root.not_after),
        signs: index == 0,
        key: root.key_hash(),
    };
    authority.roots().iter().enumerate().map(one).collect()
}

fn rfc3339(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| String::new(), |at| format!("{at:.0}"))
}

#[cfg(test)]
mod tests;
