//! The status of Istio's objects: whether each was accepted, and whether proxies hold what it says. Written where it differs from what the
//! store shows, by one replica, at a limited rate. What is to be said of an object is not known here.

mod condition;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use config::kind::Kind;
use config::note::ObjectId;
use config::store::{Snapshot, Standing};
use serde_json::{Value, json};
use sources::kube::{Client, Failure, object_path};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use self::condition::{Change, Conditions, Coverage};
use crate::leadership::Leadership;
use crate::object;
use crate::replicas::Replicas;

pub use self::condition::Verdict;

/// Who the API server notes as the owner of what is written.
const OWNER: &str = "meltemi-status";
/// After a change, and how long at most without one.
const LOOK: Duration = Duration::from_secs(1);
const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// Looking takes at most this share of one core.
const SHARE: u32 = 20;
/// Between two writes.
const PACE: Duration = Duration::from_millis(100);
/// So long proxies may take to answer before it is said that they have not: most changes need one write.
const ANSWER: Duration = Duration::from_secs(3);
/// How often the number of proxies alone is worth a write: while they are waited for, and later.
const COUNTING: Duration = Duration::from_secs(5);
const COUNTED: Duration = Duration::from_secs(300);
/// What we wrote and is gone again is written again after this, twice this, and so on.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);
/// After a refusal of the API server.
const PAUSE: Duration = Duration::from_secs(30);

pub type Verdicts = HashMap<ObjectId, Verdict>;

pub struct StatusWriter {
    pub client: Client,
    /// As proxies know them: what has not been worked in yet is not told.
    pub objects: watch::Receiver<Arc<Snapshot>>,
    /// Objects that name another are left to that one, also where we read them.
    pub revision: String,
    /// Whether we write of the objects that name our revision, and of those that name none: several revisions share these.
    pub leads: Leadership,
    pub leads_all: Leadership,
    /// Verdicts are of the proxies that are connected here; the others have proxies of their own.
    pub replicas: Arc<Replicas>,
}

/// What is remembered of an object.
struct Memory {
    generation: i64,
    since: Instant,
    /// The resourceVersion after our last write, when that was, and what it said. `None`: nothing was written yet.
    written: Option<(u64, Instant, Conditions)>,
    /// How often in a row the same was written.
    again: u32,
}

impl StatusWriter {
    /// Until there are no more objects. `judge` may take long; an object that it does not name is in force, and no proxy holds anything of it.
    pub async fn follow(mut self, judge: Arc<dyn Fn(&Snapshot) -> Verdicts + Send + Sync>) {
        let (mut memories, mut wait, mut forbidden) = (HashMap::new(), LOOK, BTreeSet::new());
        let mut others = self.replicas.others();
        loop {
            let changed = async {
                tokio::select! {
                    changed = self.objects.changed() => changed,
                    changed = others.changed() => changed,
                }
            };
            match timeout(wait, changed).await {
                Ok(Ok(())) => wait = LOOK,
                Ok(Err(_)) => return,
                Err(_) => wait = (wait * 2).min(LONGEST_LOOK),
            }
            sleep(LOOK).await;
            if !self.leads.is_held() && !self.leads_all.is_held() {
                memories.clear();
                continue;
            }
            let snapshot = self.objects.borrow_and_update().clone();
            let (began, judge, judged) = (Instant::now(), judge.clone(), snapshot.clone());
            let Ok(verdicts) = spawn_blocking(move || judge(&judged)).await else { continue };
            sleep(began.elapsed() * SHARE).await;
            match self.write_all(&snapshot, &verdicts, &mut memories).await {
                Ok(kinds) => {
                    for (kind, message) in kinds.iter().filter(|(kind, _)| !forbidden.contains(*kind)) {
                        warn!(%kind, message, "the status of a kind may not be written; only that is missing");
                    }
                    forbidden = kinds.into_keys().collect();
                }
                Err(failure) => {
                    warn!(%failure, "the status of objects could not be written; it is tried again");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Whether replicas are known. Asked after proxies were counted: a replica that has come meanwhile may have some of them.
    async fn knows_replicas(&self) -> Result<bool, Failure> {
        match self.replicas.refresh().await {
            Ok(()) => Ok(true),
            Err(Failure::Refused { code: 403, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Answers what may not be written, by kind.
    async fn write_all(
        &self,
        snapshot: &Snapshot,
        verdicts: &Verdicts,
        memories: &mut HashMap<ObjectId, Memory>,
    ) -> Result<BTreeMap<Kind, String>, Failure> {
        let mut forbidden = BTreeMap::new();
        memories.retain(|id, _| snapshot.standings.contains_key(id));
        let (none, known, others) = (Verdict::default(), self.knows_replicas().await?, self.replicas.others());
        for (id, standing) in &snapshot.standings {
            // Asked before each write: there may be more replicas by now.
            let others = *others.borrow();
            let (leads, others) = match standing.revision.as_deref() {
                None => (&self.leads_all, others.of_all),
                Some(named) if named == self.revision => (&self.leads, others.of_revision),
                Some(_) => continue,
            };
            // So may another lead.
            if !leads.is_held() || forbidden.contains_key(&id.kind) {
                continue;
            }
            let memory = memories.entry(id.clone()).or_insert_with(|| Memory::new(standing.generation));
            let wanted = Conditions::of(verdicts.get(id).unwrap_or(&none), standing, Coverage::new(known, others));
            if memory.is_due(standing, &wanted) {
                let Some(written) = leads.write(self.write(id, standing, &wanted, memory)).await else { continue };
                match written {
                    Err(Failure::Refused { code: 403, message, .. }) => drop(forbidden.insert(id.kind, message)),
                    done => done?,
                }
                sleep(PACE).await;
            }
        }
        Ok(forbidden)
    }

    async fn write(
        &self,
        id: &ObjectId,
        standing: &Standing,
        wanted: &Conditions,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        let object = json!({
            "apiVersion": &*standing.api_version, "kind": id.kind.name(),
            // Only this version of it: whoever wrote since is not overwritten.
            "metadata": { "name": &*id.name, "namespace": &*id.namespace, "resourceVersion": standing.version.to_string() },
            "status": { "conditions": wanted.among(&standing.conditions, jiff::Timestamp::now()) },
        });
        let path = object_path(id.kind, &standing.api_version, &id.namespace, &id.name);
        let version = match object::apply_as(&self.client, &format!("{path}/status"), OWNER, &object).await {
            Ok(written) => resource_version(&written).unwrap_or(standing.version),
            // The next look sees what they wrote.
            Err(failure) if object::is_conflict(&failure) => standing.version,
            Err(Failure::Refused { code: 404, .. }) => {
                debug!(%id, "no such object, or its kind has no status");
                standing.version
            }
            Err(Failure::Refused { code: 422, message, .. }) => {
                warn!(%id, message, "the status was refused");
                standing.version
            }
            Err(failure) => return Err(failure),
        };
        memory.wrote(version, wanted.clone());
        Ok(())
    }
}

impl Memory {
    fn new(generation: i64) -> Memory {
        Memory { generation, since: Instant::now(), written: None, again: 0 }
    }

    fn wrote(&mut self, version: u64, wanted: Conditions) {
        let same = self.written.as_ref().is_some_and(|(_, _, before)| *before == wanted);
        self.again = if same { self.again + 1 } else { 0 };
        self.written = Some((version, Instant::now(), wanted));
    }

    fn is_due(&mut self, standing: &Standing, wanted: &Conditions) -> bool {
        if self.generation != standing.generation {
            *self = Memory { written: self.written.take(), ..Memory::new(standing.generation) };
        }
        let change = wanted.change(&standing.conditions);
        let last = self.written.as_ref().map(|(_, at, _)| at.elapsed());
        let gone = self.written.as_ref().is_some_and(|(_, _, written)| written == wanted);
        // Our own write, or theirs that we met, has not come back yet. Or it has, and proxies are waited for or are no more: that goes to and fro with
        // every push, and is not worth as many writes. Whatever else is different now is said at once.
        let unseen = self.written.as_ref().is_some_and(|(version, _, written)| {
            let wavers = gone || wanted.is_pending() || written.is_pending();
            standing.version < *version || (standing.version == *version && wavers)
        });
        if change == Change::None || (unseen && last.is_some_and(|last| last < LONGEST_LOOK)) {
            return false;
        }
        if wanted.is_pending() && self.since.elapsed() < ANSWER {
            return false;
        }
        let patience = match change {
            Change::Count if wanted.is_pending() => COUNTING,
            Change::Count => COUNTED,
            _ if gone => (PATIENCE * 2u32.saturating_pow(self.again.min(10))).min(LONGEST_PATIENCE),
            _ => Duration::ZERO,
        };
        last.unwrap_or_else(|| self.since.elapsed()) >= patience
    }
}

fn resource_version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests;
