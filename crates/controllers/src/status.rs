//! The status of Istio's objects: whether each was accepted, and whether proxies have ACKed it. Written where it differs from the
//! snapshot, by one replica, at a limited rate. The caller computes the verdicts.

mod condition;
mod event;

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

use self::condition::{Change, Conditions};
use crate::acknowledgements::{Acknowledgements, OtherReports};
use crate::leadership::Leadership;
use crate::object;

pub(crate) use self::condition::Coverage;
pub use self::condition::Verdict;

/// The field manager of our writes.
const FIELD_MANAGER: &str = "meltemi-status";
/// The debounce after a change of objects, and after an ACK, a NACK, a connect or a disconnect.
const DEBOUNCE: Duration = Duration::from_secs(1);
const ACK_DEBOUNCE: Duration = Duration::from_millis(500);
/// How often a change of ACKs is looked for, which costs a read of a number.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often the leader reads what other replicas report.
const READ_INTERVAL: Duration = Duration::from_millis(1500);
/// Verdicts are computed again after this long without a change.
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Computing verdicts takes at most this share of one core.
const CPU_SHARE: u32 = 20;
/// Between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// How long proxies, and reports of other replicas, may take before the status says that they are waited for: most changes need one write.
const ACK_GRACE: Duration = Duration::from_secs(2);
/// Between two writes of an object while ACKs come and go.
const PENDING_INTERVAL: Duration = Duration::from_secs(2);
/// How often a change of the count of proxies alone is written: with few objects, and with many.
const FEW_COUNT_INTERVAL: Duration = Duration::from_secs(3);
const COUNT_INTERVAL: Duration = Duration::from_secs(300);
const FEW_OBJECTS: usize = 50;
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
    /// Verdicts count the proxies that are connected here; other replicas report theirs.
    pub acknowledgements: Acknowledgements,
    /// A number that changes with every ACK, NACK, connect and disconnect of a proxy.
    pub proxy_changes: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// What was computed from objects and proxies, and when.
struct Judged {
    snapshot: Arc<Snapshot>,
    verdicts: Verdicts,
    at: Instant,
    proxy_changes: u64,
}

/// The state of an object.
struct WriteState {
    generation: i64,
    /// The resourceVersion at which the generation was first seen.
    first_version: u64,
    since: Instant,
    /// Since when ACKs are pending without a break.
    pending_since: Option<Instant>,
    /// The resourceVersion after our last write, its time and content. `None`: nothing was written yet.
    written: Option<(u64, Instant, Conditions)>,
    /// Consecutive writes of the same content.
    repeats: u32,
    /// The resourceVersion that was found to have these conditions: to compare them again costs more than all else of a pass.
    settled: Option<(u64, Conditions)>,
    /// It is due in a moment.
    waits: bool,
}

/// What a pass of the writer remembers for the next.
struct PassState {
    objects: HashMap<ObjectId, WriteState>,
    forbidden: ForbiddenKinds,
    /// Whether the reports of other replicas may be read.
    knows_replicas: bool,
    read_at: Instant,
    /// What the last pass counted with. `None`: there was none as the leader.
    others: Option<OtherReports>,
    /// The status of an object is written in a moment, unless it changes.
    waiting: bool,
}

impl StatusWriter {
    /// Runs until the sender of snapshots is dropped. `judge` may be slow; an object without a verdict is accepted, and no proxy holds anything of it.
    pub async fn follow(mut self, judge: Arc<dyn Fn(&Snapshot) -> Verdicts + Send + Sync>) {
        let mut state = PassState {
            objects: HashMap::new(),
            forbidden: ForbiddenKinds::default(),
            knows_replicas: true,
            read_at: Instant::now(),
            others: None,
            waiting: true,
        };
        let (mut judged, mut others): (Option<Judged>, _) = (None, self.acknowledgements.replicas.others());
        loop {
            let changed = async {
                tokio::select! {
                    changed = self.objects.changed() => changed,
                    changed = others.changed() => changed,
                }
            };
            match timeout(POLL_INTERVAL, changed).await {
                Ok(Ok(())) => {
                    judged = None;
                    sleep(DEBOUNCE).await;
                }
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            let (leads, beside) = (self.leads.is_held() || self.leads_all.is_held(), others.borrow().of_all > 0);
            if !leads {
                state.objects.clear();
                state.others = None;
            }
            if !leads && !beside {
                judged = None;
                continue;
            }
            let passed = self.pass(&judge, &mut judged, &mut state, (leads, beside)).await;
            if let Some((kinds, message)) = state.forbidden.report() {
                warn!(kinds, message, "not allowed to write the status of these kinds: theirs is left out");
            }
            if let Err(failure) = passed {
                warn!(%failure, "cannot write the status of objects; retrying");
                sleep(ERROR_PAUSE).await;
            }
        }
    }

    /// One look at objects, proxies and other replicas. `beside`: there are others.
    async fn pass(
        &mut self,
        judge: &Arc<dyn Fn(&Snapshot) -> Verdicts + Send + Sync>,
        judged: &mut Option<Judged>,
        state: &mut PassState,
        (leads, beside): (bool, bool),
    ) -> Result<(), RequestError> {
        let proxy_changes = (self.proxy_changes)();
        let is_new =
            judged.as_ref().is_none_or(|it| it.proxy_changes != proxy_changes || it.at.elapsed() > MAX_INTERVAL);
        if is_new {
            if judged.is_some() {
                sleep(ACK_DEBOUNCE).await;
            }
            let snapshot = self.objects.borrow_and_update().clone();
            let (began, judge, of) = (Instant::now(), judge.clone(), snapshot.clone());
            // Read before proxies are: an ACK in between is looked at again.
            let proxy_changes = (self.proxy_changes)();
            let Ok(verdicts) = spawn_blocking(move || judge(&of)).await else { return Ok(()) };
            sleep(began.elapsed() * CPU_SHARE).await;
            // Asked again before the next write: the role may be another by now.
            state.knows_replicas = true;
            *judged = Some(Judged { snapshot, verdicts, at: Instant::now(), proxy_changes });
        }
        let Some(judged) = judged else { return Ok(()) };
        if beside && (is_new || leads && state.read_at.elapsed() >= READ_INTERVAL) {
            let exchanged = if is_new {
                self.acknowledgements.publish(&judged.snapshot, &judged.verdicts).await
            } else {
                self.acknowledgements.refresh().await
            };
            state.knows_replicas = is_allowed(exchanged)?;
            state.read_at = Instant::now();
        }
        let others = self.acknowledgements.others();
        let is_settled = !is_new && !state.waiting && state.others.as_ref() == Some(&others);
        if !leads || is_settled {
            return Ok(());
        }
        // Also after an error.
        state.waiting = true;
        state.waiting = self.write_all(judged, others.clone(), state).await?;
        state.others = Some(others);
        Ok(())
    }

    /// Returns whether the status of an object is to be written in a moment.
    async fn write_all(
        &self,
        Judged { snapshot, verdicts, .. }: &Judged,
        mut others: OtherReports,
        state: &mut PassState,
    ) -> Result<bool, RequestError> {
        state.objects.retain(|id, _| snapshot.object_statuses.contains_key(id));
        let count_interval =
            if snapshot.object_statuses.len() <= FEW_OBJECTS { FEW_COUNT_INTERVAL } else { COUNT_INTERVAL };
        let (none, mut is_fresh, mut waiting) = (Verdict::default(), false, false);
        for (id, status) in &snapshot.object_statuses {
            let leads = match status.revision.as_deref() {
                None => &self.leads_all,
                Some(named) if named == self.revision => &self.leads,
                Some(_) => continue,
            };
            // Checked before each write: another may lead by now.
            if !leads.is_held() || state.forbidden.has(id.kind) {
                continue;
            }
            let entry = state.objects.entry(id.clone()).or_insert_with(|| WriteState::new(status));
            let own = verdicts.get(id).unwrap_or(&none);
            let mut wanted = entry.wanted(own, (id, status), &others, state.knows_replicas);
            let mut is_due = entry.is_due(status, &wanted, count_interval);
            if is_due && !is_fresh {
                // Replicas are read after proxies were counted: a new one may have some of them.
                let known = is_allowed(self.acknowledgements.replicas.refresh().await)?;
                state.knows_replicas &= known;
                (others, is_fresh) = (self.acknowledgements.others(), true);
                wanted = entry.wanted(own, (id, status), &others, state.knows_replicas);
                is_due = entry.is_due(status, &wanted, count_interval);
            }
            waiting |= entry.waits;
            if !is_due {
                continue;
            }
            let Some(written) = leads.write(self.write(id, status, &wanted, entry)).await else { continue };
            match written {
                Err(RequestError::Status { code: 403, message, .. }) => state.forbidden.add(id.kind, message),
                done => done?,
            }
            sleep(WRITE_INTERVAL).await;
            others = self.acknowledgements.others();
        }
        Ok(waiting)
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
            Ok(Written { metadata }) => {
                if let Some(message) = wanted.new_rejection(&status.conditions) {
                    self.record_event((id, status), &metadata.uid, message).await;
                }
                metadata.resource_version.parse().unwrap_or(status.version)
            }
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

impl StatusWriter {
    /// The condition says the same: an Event that cannot be written is not tried again.
    async fn record_event(&self, (id, status): (&ObjectId, &ObjectStatus), uid: &str, message: &str) {
        let event = event::rejected(id, &status.api_version, uid, message, jiff::Timestamp::now());
        let path = format!("/api/v1/namespaces/{}/events", id.namespace);
        if let Err(failure) = object::create(&self.client, &path, &event).await {
            debug!(%id, %failure, "cannot write an Event");
        }
    }
}

/// `false`: the role does not allow it.
fn is_allowed(answer: Result<(), RequestError>) -> Result<bool, RequestError> {
    match answer {
        Ok(()) => Ok(true),
        Err(RequestError::Status { code: 403, .. }) => Ok(false),
        Err(failure) => Err(failure),
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
    fn new(status: &ObjectStatus) -> WriteState {
        WriteState {
            generation: status.generation,
            first_version: status.version,
            since: Instant::now(),
            pending_since: None,
            written: None,
            repeats: 0,
            settled: None,
            waits: false,
        }
    }

    /// With the proxies of all replicas. `own`: with those of this one.
    fn wanted(
        &mut self,
        own: &Verdict,
        (id, status): (&ObjectId, &ObjectStatus),
        others: &OtherReports,
        knows_replicas: bool,
    ) -> Conditions {
        if self.generation != status.generation {
            *self = WriteState { written: self.written.take(), ..WriteState::new(status) };
        }
        let (verdict, coverage) = others.combine(own, id, status.revision.as_deref(), self.first_version);
        Conditions::of(&verdict, status, if knows_replicas { coverage } else { Coverage::Unknown })
    }

    fn record_write(&mut self, version: u64, wanted: Conditions) {
        let same = self.written.as_ref().is_some_and(|(_, _, before)| *before == wanted);
        self.repeats = if same { self.repeats + 1 } else { 0 };
        self.written = Some((version, Instant::now(), wanted));
    }

    fn is_due(&mut self, status: &ObjectStatus, wanted: &Conditions, count_interval: Duration) -> bool {
        let pending = wanted.is_pending().then(|| *self.pending_since.get_or_insert_with(Instant::now));
        (self.pending_since, self.waits) = (pending, false);
        if self.settled.as_ref().is_some_and(|(version, settled)| *version == status.version && settled == wanted) {
            return false;
        }
        let change = wanted.change(&status.conditions);
        self.settled = (change == Change::None).then(|| (status.version, wanted.clone()));
        let last = self.written.as_ref().map(|(_, at, _)| at.elapsed());
        let repeats = self.written.as_ref().is_some_and(|(_, _, written)| written == wanted);
        let wavers = pending.is_some() || self.written.as_ref().is_some_and(|(_, _, written)| written.is_pending());
        // Our write is not in the snapshot yet, or the one that we conflicted with.
        let unseen = self
            .written
            .as_ref()
            .is_some_and(|(version, _, _)| status.version < *version || (status.version == *version && repeats));
        if change == Change::None || (unseen && last.is_some_and(|last| last < MAX_INTERVAL)) {
            return false;
        }
        if pending.is_some_and(|since| since.elapsed() < ACK_GRACE) {
            self.waits = true;
            return false;
        }
        let delay = match change {
            Change::Count if wavers => PENDING_INTERVAL,
            Change::Count => count_interval,
            _ if repeats => (MIN_BACKOFF * 2u32.saturating_pow(self.repeats.min(10))).min(MAX_BACKOFF),
            // ACKs come and go with every push: that is not worth as many writes. Any other difference is written at once.
            _ if wavers => PENDING_INTERVAL,
            _ => Duration::ZERO,
        };
        let is_due = last.unwrap_or_else(|| self.since.elapsed()) >= delay;
        self.waits = !is_due && delay <= FEW_COUNT_INTERVAL;
        is_due
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
    #[serde(default)]
    uid: String,
}

#[cfg(test)]
mod tests;
