//! Reports that replicas write about themselves into one Lease, as annotations, and read of each other. What they say is the caller's.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sources::kube::{Client, Failure};
use tokio::time::Instant;
use tracing::debug;

use crate::object;

/// Another replica, or this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<R> {
    pub name: String,
    pub line: R,
    /// Since when, by our clock, it has said nothing new.
    pub silent: Duration,
}

/// `R`: the report, which must differ from one time to the next, or its replica counts as silent.
pub struct Reports<R> {
    client: Client,
    all: String,
    lease: String,
    name: String,
    /// Our annotations as last written. Held during a write: a repetition must not undo a later one.
    told: tokio::sync::Mutex<Value>,
    seen: Mutex<Table<R>>,
}

/// Reports by the name of their replica, each with when it was first heard.
pub(crate) struct Table<R>(BTreeMap<String, (R, Instant)>);

/// Before the name of a replica in an annotation's name.
pub(crate) const PREFIX: &str = "replica.meltemi/";
/// Of an annotation's name after its prefix.
const LONGEST: usize = 63;
/// Whoever is silent for so long has gone without a word, and its report is removed.
pub(crate) const FORGOTTEN: Duration = Duration::from_secs(600);

impl<R: Serialize + DeserializeOwned + Default + Clone + PartialEq> Reports<R> {
    pub fn new(client: Client, namespace: &str, lease: &str, name: &str) -> Reports<R> {
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        // The end of a pod's name is what tells it from others.
        let start = name.len().saturating_sub(LONGEST);
        let name = name.get(start..).unwrap_or(name).trim_start_matches(['-', '.']).to_owned();
        let (lease, told) = (lease.to_owned(), tokio::sync::Mutex::new(json!({})));
        Reports { client, all, lease, name, told, seen: Mutex::default() }
    }

    /// How we are called in what others say.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says how we are, and hears how the others are.
    pub async fn tell(&self, report: &R) -> Result<(), Failure> {
        let text = serde_json::to_string(report).map_err(|error| Failure::Unreadable(error.to_string()))?;
        let found = {
            let mut told = self.told.lock().await;
            *told = json!({ format!("{PREFIX}{}", self.name): text });
            self.apply(&told).await?
        };
        let forgotten = self.held().note(&found, &self.name);
        for name in forgotten {
            debug!(name, "a replica has gone without a word");
            let gone = json!({ "metadata": { "annotations": { format!("{PREFIX}{name}"): null } } });
            object::merge(&self.client, &format!("{}/{}", self.all, self.lease), &gone).await?;
        }
        Ok(())
    }

    /// Hears how the others are now. Our report is written once more as it is: replicas may patch this Lease and not get it.
    pub async fn refresh(&self) -> Result<(), Failure> {
        let told = self.told.lock().await;
        let found = self.apply(&told).await?;
        self.held().note(&found, &self.name);
        Ok(())
    }

    /// Takes our report back.
    pub async fn leave(&self) -> Result<(), Failure> {
        let mut told = self.told.lock().await;
        *told = json!({});
        self.apply(&told).await.map(drop)
    }

    /// By name.
    pub fn seen(&self) -> Vec<Seen<R>> {
        self.held().seen()
    }

    /// Each replica owns its own annotation, so that nobody writes over another's.
    async fn apply(&self, annotations: &Value) -> Result<Value, Failure> {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": self.lease, "annotations": annotations },
        });
        let (path, owner) = (format!("{}/{}", self.all, self.lease), format!("meltemi-{}", self.name));
        object::apply_as(&self.client, &path, &owner, &object).await
    }

    // Reports are replaced whole.
    fn held(&self) -> MutexGuard<'_, Table<R>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Default for Table<R> {
    fn default() -> Table<R> {
        Table(BTreeMap::new())
    }
}

impl<R: DeserializeOwned + Default + Clone + PartialEq> Table<R> {
    /// Answers who is to be forgotten.
    pub(crate) fn note(&mut self, lease: &Value, own: &str) -> Vec<String> {
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
        let forgotten = self.0.iter().filter(|(name, (_, at))| *name != own && at.elapsed() > FORGOTTEN);
        forgotten.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn seen(&self) -> Vec<Seen<R>> {
        let seen = |(name, (report, at)): (&String, &(R, Instant))| Seen {
            name: name.clone(),
            line: report.clone(),
            silent: at.elapsed(),
        };
        self.0.iter().map(seen).collect()
    }
}
