//! Reports of replicas as annotations of one Lease, written and read by all of them. The caller defines their content.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sources::kube::{KubeClient, RequestError};
use tokio::time::Instant;
use tracing::debug;

use crate::lease_owner::LeaseOwner;
use crate::object;

/// A replica, possibly this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedReport<R> {
    pub name: String,
    pub line: R,
    /// How long, by our clock, its report has not changed.
    pub silent: Duration,
}

/// `R`: the report, which must differ each time, or its replica counts as silent.
pub struct Reports<R> {
    client: KubeClient,
    all: String,
    lease: String,
    name: String,
    owner: Arc<LeaseOwner>,
    /// Our annotations as last written. Locked during a write: a repeated write must not undo a later one.
    published: tokio::sync::Mutex<Value>,
    seen: Mutex<ReportTable<R>>,
}

/// Reports by the name of their replica, each with the time at which it was first read.
pub(crate) struct ReportTable<R>(BTreeMap<String, (R, Instant)>);

/// Prefix of the annotation with a replica's report.
pub(crate) const PREFIX: &str = "replica.meltemi/";
/// The maximal length of an annotation's name after its prefix.
const MAX_NAME: usize = 63;
/// A replica that is silent for this long has gone without removing its report, which is removed then.
pub(crate) const REMOVED_AFTER: Duration = Duration::from_secs(600);

impl<R> Reports<R> {
    pub fn new(client: KubeClient, owner: Arc<LeaseOwner>, namespace: &str, lease: &str, name: &str) -> Reports<R> {
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        // The end of a pod's name is what distinguishes it.
        let start = name.len().saturating_sub(MAX_NAME);
        let name = name.get(start..).unwrap_or(name).trim_start_matches(['-', '.']).to_owned();
        let (lease, published) = (lease.to_owned(), tokio::sync::Mutex::new(json!({})));
        Reports { client, all, lease, name, owner, published, seen: Mutex::default() }
    }
}

impl<R: Serialize + DeserializeOwned + Default + Clone + PartialEq> Reports<R> {
    /// Our name in the reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes our report, and reads those of the others.
    pub async fn publish(&self, report: &R) -> Result<(), RequestError> {
        let text = serde_json::to_string(report).map_err(|error| RequestError::Unreadable(error.to_string()))?;
        let found = {
            let mut published = self.published.lock().await;
            *published = json!({ format!("{PREFIX}{}", self.name): text });
            self.apply(&published).await?
        };
        self.own(&found).await;
        let forgotten = self.table().update(&found, &self.name);
        for name in forgotten {
            debug!(name, "replica vanished: removing its report");
            let gone = json!({ "metadata": { "annotations": { format!("{PREFIX}{name}"): null } } });
            object::merge(&self.client, &format!("{}/{}", self.all, self.lease), &gone).await?;
        }
        Ok(())
    }

    /// Reads the reports of the others. Our report is written again unchanged: replicas have the right to patch this Lease, not to get it.
    pub async fn refresh(&self) -> Result<(), RequestError> {
        let published = self.published.lock().await;
        let found = self.apply(&published).await?;
        self.table().update(&found, &self.name);
        Ok(())
    }

    /// Removes our report.
    pub async fn leave(&self) -> Result<(), RequestError> {
        let mut published = self.published.lock().await;
        *published = json!({});
        self.apply(&published).await.map(drop)
    }

    /// Sorted by name.
    pub fn seen(&self) -> Vec<PublishedReport<R>> {
        self.table().seen()
    }

    /// Each replica is the field manager of its own annotation, so that none overwrites another's.
    async fn apply(&self, annotations: &Value) -> Result<Value, RequestError> {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": self.lease, "annotations": annotations },
        });
        let (path, owner) = (format!("{}/{}", self.all, self.lease), format!("meltemi-{}", self.name));
        object::apply_as(&self.client, &path, &owner, &object).await
    }

    /// Whoever finds the Lease without an owner becomes it. An apply of each replica would leave the name of every pod in the Lease for good.
    async fn own(&self, found: &Value) {
        if found["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty()) {
            return;
        }
        let Some(reference) = self.owner.reference().await else { return };
        let owned = json!({ "metadata": { "ownerReferences": [reference] } });
        if let Err(failure) = object::merge(&self.client, &format!("{}/{}", self.all, self.lease), &owned).await {
            debug!(%failure, lease = self.lease, "cannot become the owner of the Lease");
        }
    }

    // Reports are replaced whole.
    fn table(&self) -> MutexGuard<'_, ReportTable<R>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Default for ReportTable<R> {
    fn default() -> ReportTable<R> {
        ReportTable(BTreeMap::new())
    }
}

impl<R: DeserializeOwned + Default + Clone + PartialEq> ReportTable<R> {
    /// Returns the replicas whose reports are to be removed.
    pub(crate) fn update(&mut self, lease: &Value, own: &str) -> Vec<String> {
        let annotations = lease["metadata"]["annotations"].as_object();
        let mut reports = BTreeMap::new();
        for (key, text) in annotations.into_iter().flatten() {
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            let report: R = text.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            reports.insert(name.to_owned(), report);
        }
        self.0.retain(|name, _| reports.contains_key(name));
        for (name, report) in reports {
            match self.0.get(&name) {
                Some((before, _)) if *before == report => {}
                _ => drop(self.0.insert(name, (report, Instant::now()))),
            }
        }
        let forgotten = self.0.iter().filter(|(name, (_, at))| *name != own && at.elapsed() > REMOVED_AFTER);
        forgotten.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn seen(&self) -> Vec<PublishedReport<R>> {
        let seen = |(name, (report, at)): (&String, &(R, Instant))| PublishedReport {
            name: name.clone(),
            line: report.clone(),
            silent: at.elapsed(),
        };
        self.0.iter().map(seen).collect()
    }
}
