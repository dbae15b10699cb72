//! What replicas tell each other: each writes a line about itself into one Lease, and reads those of the others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sources::kube::{Client, Failure};
use tokio::time::Instant;
use tracing::debug;

use crate::object;

/// What a replica says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Line {
    pub version: String,
    /// Proxies that are connected.
    pub streams: usize,
    /// A hash of all objects that it holds, by kind.
    pub inputs: BTreeMap<String, String>,
    /// RFC 3339, by its own clock, for people.
    pub at: String,
}

/// Another replica, or this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<L = Line> {
    pub name: String,
    pub line: L,
    /// Since when, by our clock, it has said nothing new.
    pub silent: Duration,
}

/// `L`: the line, which must differ from one time to the next, or its replica counts as silent.
pub struct Replicas<L = Line> {
    client: Client,
    all: String,
    lease: String,
    name: String,
    seen: Mutex<BTreeMap<String, (L, Instant)>>,
}

/// Before the name of a replica in an annotation's name.
const PREFIX: &str = "replica.meltemi/";
/// Of an annotation's name after its prefix.
const LONGEST: usize = 63;
/// Whoever is silent for so long has gone without a word, and its line is removed.
const FORGOTTEN: Duration = Duration::from_secs(600);

impl<L: Serialize + DeserializeOwned + Default + Clone + PartialEq> Replicas<L> {
    pub fn new(client: Client, namespace: &str, lease: &str, name: &str) -> Replicas<L> {
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        // The end of a pod's name is what tells it from others.
        let start = name.len().saturating_sub(LONGEST);
        let name = name.get(start..).unwrap_or(name).trim_start_matches(['-', '.']).to_owned();
        Replicas { client, all, lease: lease.to_owned(), name, seen: Mutex::default() }
    }

    /// How we are called in what others say.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says how we are, and hears how the others are.
    pub async fn tell(&self, line: &L) -> Result<(), Failure> {
        let text = serde_json::to_string(line).map_err(|error| Failure::Unreadable(error.to_string()))?;
        let found = self.apply(&json!({ format!("{PREFIX}{}", self.name): text })).await?;
        for name in self.heard(&found, Instant::now()) {
            debug!(name, "a replica has gone without a word");
            let gone = json!({ "metadata": { "annotations": { format!("{PREFIX}{name}"): null } } });
            object::merge(&self.client, &format!("{}/{}", self.all, self.lease), &gone).await?;
        }
        Ok(())
    }

    /// Takes our line back.
    pub async fn leave(&self) -> Result<(), Failure> {
        self.apply(&json!({})).await.map(drop)
    }

    /// By name.
    pub fn seen(&self) -> Vec<Seen<L>> {
        let seen = |(name, (line, at)): (&String, &(L, Instant))| Seen {
            name: name.clone(),
            line: line.clone(),
            silent: at.elapsed(),
        };
        self.held().iter().map(seen).collect()
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

    /// Answers who is to be forgotten.
    fn heard(&self, lease: &Value, now: Instant) -> Vec<String> {
        let annotations = lease["metadata"]["annotations"].as_object();
        let mut lines = BTreeMap::new();
        for (key, text) in annotations.into_iter().flatten() {
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            let line: L = text.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            lines.insert(name.to_owned(), line);
        }
        let mut held = self.held();
        held.retain(|name, _| lines.contains_key(name));
        for (name, line) in lines {
            match held.get(&name) {
                Some((before, _)) if *before == line => {}
                _ => drop(held.insert(name, (line, now))),
            }
        }
        let forgotten = held.iter().filter(|(name, (_, at))| **name != self.name && now - *at > FORGOTTEN);
        forgotten.map(|(name, _)| name.clone()).collect()
    }

    // Lines are replaced whole.
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, (L, Instant)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
