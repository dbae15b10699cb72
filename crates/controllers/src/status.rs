//! The status of Istio's objects: whether each was accepted, and whether proxies have ACKed it. Written where it differs from the
//! snapshot, by one replica, at a limited rate. The caller computes the verdicts.

mod condition;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::store::{ObjectStatus, Snapshot};
use serde::Deserialize;
use serde_json::json;
use sources::kube::{KubeClient, RequestError, object_path};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use self::condition::{Change, Conditions, Coverage};
use crate::leadership::Leadership;
use crate::object;
use crate::replicas::Replicas;

pub use self::condition::Verdict;

/// The field manager of our writes.
const FIELD_MANAGER: &str = "meltemi-status";
/// The debounce after a change, and the longest interval without one.
const DEBOUNCE: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Computing verdicts takes at most this share of one core.
const CPU_SHARE: u32 = 20;
/// Between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// How long proxies may take to ACK before the status reports them as pending: most changes need one write.
const ACK_GRACE: Duration = Duration::from_secs(3);
/// How often a change of the count of proxies alone is written: while ACKs are pending, and later.
const PENDING_COUNT_INTERVAL: Duration = Duration::from_secs(5);
const COUNT_INTERVAL: Duration = Duration::from_secs(300);
/// The initial backoff for writes that somebody reverts; doubled each time.
const MIN_BACKOFF: Duration = Duration::from_secs(5);
const MAX_BACKOFF: Duration = Duration::from_secs(600);
/// How long a kind is left out after the API server answered that the role does not allow to write its status.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(600);
/// After an error response of the API server.
const ERROR_PAUSE: Duration = Duration::from_secs(30);

pub type Verdicts = HashMap<ObjectId, Verdict>;

pub struct StatusWriter {
    pub client: KubeClient,
    /// The snapshot that proxies have: later changes are not reported yet.
    pub objects: watch::Receiver<Arc<Snapshot>>,
    /// Objects with the label of another revision are left to it, also where we read them.
    pub revision: String,
    /// Leadership for objects of our revision, and for those without a revision, which several revisions share.
    pub leads: Leadership,
    pub leads_all: Leadership,
    /// Verdicts count the proxies that are connected here; other replicas have proxies of their own.
    pub replicas: Arc<Replicas>,
}

/// The state of an object.
struct WriteState {
    generation: i64,
    since: Instant,
    /// The resourceVersion after our last write, its time and content. `None`: nothing was written yet.
    written: Option<(u64, Instant, Conditions)>,
    /// Consecutive writes of the same content.
    repeats: u32,
    /// The resourceVersion that was found to have these conditions: to compare them again costs more than all else of a pass.
    settled: Option<(u64, Conditions)>,
}

impl StatusWriter {
    /// Runs until the sender of snapshots is dropped. `judge` may be slow; an object without a verdict is accepted, and no proxy holds anything of it.
    pub async fn follow(mut self, judge: Arc<dyn Fn(&Snapshot) -> Verdicts + Send + Sync>) {
        let (mut states, mut wait, mut forbidden) = (HashMap::new(), DEBOUNCE, ForbiddenKinds::default());
        let mut others = self.replicas.others();
        loop {
            let changed = async {
                tokio::select! {
                    changed = self.objects.changed() => changed,
                    changed = others.changed() => changed,
                }
            };
            match timeout(wait, changed).await {
                Ok(Ok(())) => wait = DEBOUNCE,
                Ok(Err(_)) => return,
                Err(_) => wait = (wait * 2).min(MAX_INTERVAL),
            }
            sleep(DEBOUNCE).await;
            if !self.leads.is_held() && !self.leads_all.is_held() {
                states.clear();
                continue;
            }
            let snapshot = self.objects.borrow_and_update().clone();
            if snapshot.object_statuses.keys().all(|id| forbidden.has(id.kind)) {
                continue;
            }
            let (began, judge, judged) = (Instant::now(), judge.clone(), snapshot.clone());
            let Ok(verdicts) = spawn_blocking(move || judge(&judged)).await else { continue };
            sleep(began.elapsed() * CPU_SHARE).await;
            let written = self.write_all(&snapshot, &verdicts, &mut states, &mut forbidden).await;
            if let Some((kinds, message)) = forbidden.report() {
                warn!(kinds, message, "not allowed to write the status of these kinds: theirs is left out");
            }
            if let Err(failure) = written {
                warn!(%failure, "cannot write the status of objects; retrying");
                sleep(ERROR_PAUSE).await;
            }
        }
    }

    /// Whether the replicas are known. Read after proxies were counted: a new replica may have some of them.
    async fn knows_replicas(&self) -> Result<bool, RequestError> {
        match self.replicas.refresh().await {
            Ok(()) => Ok(true),
            Err(RequestError::Status { code: 403, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    async fn write_all(
        &self,
        snapshot: &Snapshot,
        verdicts: &Verdicts,
        states: &mut HashMap<ObjectId, WriteState>,
        forbidden: &mut ForbiddenKinds,
    ) -> Result<(), RequestError> {
        states.retain(|id, _| snapshot.object_statuses.contains_key(id));
        let (none, known, others) = (Verdict::default(), self.knows_replicas().await?, self.replicas.others());
        for (id, status) in &snapshot.object_statuses {
            // Checked before each write: there may be more replicas by now.
            let others = *others.borrow();
            let (leads, others) = match status.revision.as_deref() {
                None => (&self.leads_all, others.of_all),
                Some(named) if named == self.revision => (&self.leads, others.of_revision),
                Some(_) => continue,
            };
            // Another may lead by now.
            if !leads.is_held() || forbidden.has(id.kind) {
                continue;
            }
            let state = states.entry(id.clone()).or_insert_with(|| WriteState::new(status.generation));
            let wanted = Conditions::of(verdicts.get(id).unwrap_or(&none), status, Coverage::new(known, others));
            if state.is_due(status, &wanted) {
                let Some(written) = leads.write(self.write(id, status, &wanted, state)).await else { continue };
                match written {
                    Err(RequestError::Status { code: 403, message, .. }) => forbidden.add(id.kind, message),
                    done => done?,
                }
                sleep(WRITE_INTERVAL).await;
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        id: &ObjectId,
        status: &ObjectStatus,
        wanted: &Conditions,
        state: &mut WriteState,
    ) -> Result<(), RequestError> {
        let object = json!({
            "apiVersion": &*status.api_version, "kind": id.kind.name(),
            // Conditional on this version, so that no later write is overwritten.
            "metadata": { "name": &*id.name, "namespace": &*id.namespace, "resourceVersion": status.version.to_string() },
            "status": { "conditions": wanted.merged_into(&status.conditions, jiff::Timestamp::now()) },
        });
        let path = object_path(id.kind, &status.api_version, &id.namespace, &id.name);
        let path = format!("{path}/status");
        let version = match object::apply_as::<Written>(&self.client, &path, FIELD_MANAGER, &object).await {
            Ok(written) => written.metadata.resource_version.parse().unwrap_or(status.version),
            // The next snapshot holds the other write.
            Err(failure) if object::is_conflict(&failure) => status.version,
            Err(RequestError::Status { code: 404, .. }) => {
                debug!(%id, "no such object, or its kind has no status");
                status.version
            }
            Err(RequestError::Status { code: 422, message, .. }) => {
                warn!(%id, message, "status rejected by the API server");
                status.version
            }
            Err(failure) => return Err(failure),
        };
        state.record_write(version, wanted.clone());
        Ok(())
    }
}

/// The kinds whose status the role does not allow to write: tried again now and then, and reported once.
#[derive(Default)]
struct ForbiddenKinds {
    tried: BTreeMap<Kind, Instant>,
    reported: BTreeSet<Kind>,
    /// Kinds that are not reported yet, and what the API server answered for the first.
    news: Option<(Vec<Kind>, String)>,
}

impl ForbiddenKinds {
    fn has(&self, kind: Kind) -> bool {
        self.tried.get(&kind).is_some_and(|at| at.elapsed() < FORBIDDEN_PAUSE)
    }

    fn add(&mut self, kind: Kind, message: String) {
        self.tried.insert(kind, Instant::now());
        if self.reported.insert(kind) {
            self.news.get_or_insert_with(|| (Vec::new(), message)).0.push(kind);
        }
    }

    /// `None`: all of them were reported.
    fn report(&mut self) -> Option<(String, String)> {
        let (kinds, message) = self.news.take()?;
        Some((kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), message))
    }
}

impl WriteState {
    fn new(generation: i64) -> WriteState {
        WriteState { generation, since: Instant::now(), written: None, repeats: 0, settled: None }
    }

    fn record_write(&mut self, version: u64, wanted: Conditions) {
        let same = self.written.as_ref().is_some_and(|(_, _, before)| *before == wanted);
        self.repeats = if same { self.repeats + 1 } else { 0 };
        self.written = Some((version, Instant::now(), wanted));
    }

    fn is_due(&mut self, status: &ObjectStatus, wanted: &Conditions) -> bool {
        if self.generation != status.generation {
            *self = WriteState { written: self.written.take(), ..WriteState::new(status.generation) };
        }
        if self.settled.as_ref().is_some_and(|(version, settled)| *version == status.version && settled == wanted) {
            return false;
        }
        let change = wanted.change(&status.conditions);
        self.settled = (change == Change::None).then(|| (status.version, wanted.clone()));
        let last = self.written.as_ref().map(|(_, at, _)| at.elapsed());
        let gone = self.written.as_ref().is_some_and(|(_, _, written)| written == wanted);
        // Our write is not in the snapshot yet, or the one that we conflicted with. Or it is, and ACKs are pending or no longer so: that changes
        // with every push, and is not worth as many writes. Any other difference is written at once.
        let unseen = self.written.as_ref().is_some_and(|(version, _, written)| {
            let wavers = gone || wanted.is_pending() || written.is_pending();
            status.version < *version || (status.version == *version && wavers)
        });
        if change == Change::None || (unseen && last.is_some_and(|last| last < MAX_INTERVAL)) {
            return false;
        }
        if wanted.is_pending() && self.since.elapsed() < ACK_GRACE {
            return false;
        }
        let delay = match change {
            Change::Count if wanted.is_pending() => PENDING_COUNT_INTERVAL,
            Change::Count => COUNT_INTERVAL,
            _ if gone => (MIN_BACKOFF * 2u32.saturating_pow(self.repeats.min(10))).min(MAX_BACKOFF),
            _ => Duration::ZERO,
        };
        last.unwrap_or_else(|| self.since.elapsed()) >= delay
    }
}

/// What is read of an object after a write: the rest is most of it.
#[derive(Deserialize)]
struct Written {
    metadata: WrittenMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    resource_version: String,
}

#[cfg(test)]
mod tests;
