//! The root certificate in every namespace: the ConfigMap `istio-ca-root-cert`, from which sidecars learn whom to trust. What differs from
//! what the store shows is written, so a ConfigMap that somebody changed or deleted is put right.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use config::store::{Name, Snapshot};
use serde_json::{Value, json};
use sources::kube::{Client, Failure, Scope};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::leadership::Leadership;
use crate::object;

pub const NAME: &str = "istio-ca-root-cert";
const KEY: &str = "root-cert.pem";
/// Namespaces of Kubernetes itself that have no workloads; istiod's list.
const IGNORED: [&str; 3] = ["kube-public", "kube-node-lease", "local-path-storage"];
/// What changes together is compared at once with what is wanted.
const LOOK: Duration = Duration::from_secs(1);
/// Nobody tells when what is to be trusted changes, or when a write is to be tried again.
const RARELY: Duration = Duration::from_secs(5);
/// A namespace is written at most this often, whoever else writes it.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct RootCert {
    pub client: Client,
    pub objects: watch::Receiver<Arc<Snapshot>>,
    pub leads: Leadership,
    /// Only these are watched, so others cannot be judged. Empty: all are.
    pub watched: BTreeSet<Arc<str>>,
}

impl RootCert {
    /// Until there are no more objects. `roots`: what is to be trusted now, as PEM.
    pub async fn follow(mut self, roots: impl Fn() -> String + Send) {
        let mut written: HashMap<Arc<str>, Instant> = HashMap::new();
        loop {
            sleep(LOOK).await;
            written.retain(|_, at| at.elapsed() < PATIENCE);
            let (snapshot, roots) = (self.objects.borrow_and_update().clone(), roots());
            let judged = namespaces(&snapshot).filter(|namespace| self.watches(&snapshot, namespace));
            for namespace in judged.filter(|namespace| !is_right(&snapshot, namespace, &roots)) {
                // Asked before each write: another may lead by now.
                if !self.leads.is_held() {
                    break;
                }
                if !written.contains_key(namespace) {
                    written.insert(namespace.clone(), Instant::now());
                    self.leads.write(self.write(namespace, &roots)).await;
                }
            }
            tokio::select! {
                changed = self.objects.changed() => if changed.is_err() { return },
                Ok(()) = self.leads.changed() => {}
                () = sleep(RARELY) => {}
            }
        }
    }

    fn watches(&self, snapshot: &Snapshot, namespace: &str) -> bool {
        self.watched.is_empty() || self.watched.contains(namespace) || namespace == snapshot.mesh.root_namespace
    }

    async fn write(&self, namespace: &str, roots: &str) {
        match self.apply(namespace, roots).await {
            Ok(true) => info!(namespace, "the root certificate was written"),
            Ok(false) => debug!(namespace, "the root certificate is there already"),
            // The next look sees what they wrote.
            Err(failure) if object::is_conflict(&failure) => debug!(namespace, "the root certificate changed"),
            // The namespace is on its way out.
            Err(Failure::Refused { code: 404, .. }) => debug!(namespace, "no namespace for the root certificate"),
            Err(Failure::Refused { code: 403, message, .. }) if message.contains("being terminated") => {}
            Err(failure) => warn!(namespace, %failure, "the root certificate could not be written; it is tried again"),
        }
    }

    /// Whether there was something to write. Only over the version that was read just before: a request of a former leader that arrives
    /// late changes nothing. Read as a list, for which the right is there.
    async fn apply(&self, namespace: &str, roots: &str) -> Result<bool, Failure> {
        let all = format!("/api/v1/namespaces/{namespace}/configmaps");
        let found = object::get(&self.client, &format!("{all}?fieldSelector=metadata.name%3D{NAME}")).await?;
        let found = found.as_ref().map_or(&Value::Null, |list| &list["items"][0]);
        if found["data"][KEY] == roots {
            return Ok(false);
        }
        let mut metadata = json!({ "name": NAME, "namespace": namespace, "labels": { "istio.io/config": "true" } });
        if let Some(version) = found["metadata"].get("resourceVersion") {
            metadata["resourceVersion"] = version.clone();
        }
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { KEY: roots } });
        object::apply(&self.client, &format!("{all}/{NAME}"), &object).await.map(|_| true)
    }
}

/// Those that need the root certificate.
pub fn namespaces(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<str>> {
    let scope = Scope::new(snapshot);
    let alive = snapshot.namespaces.values().filter(|object| !object.meta.deleting);
    alive.map(|object| &object.meta.name).filter(move |name| !IGNORED.contains(&&***name) && scope.holds(name))
}

fn is_right(snapshot: &Snapshot, namespace: &Arc<str>, roots: &str) -> bool {
    let name = Name { namespace: namespace.clone(), name: NAME.into() };
    let found = snapshot.config_maps.get(&name);
    found.is_some_and(|object| object.spec.data.get(KEY).is_some_and(|held| held == roots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    #[test]
    fn every_living_namespace_that_is_in_the_mesh_needs_it() {
        let text = "\
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {mesh: in}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: out}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kube-public, labels: {mesh: in}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: going, labels: {mesh: in}, deletionTimestamp: '2026-01-01T00:00:00Z'}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-ca-root-cert, namespace: shop}, data: {root-cert.pem: R}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: istio, namespace: istio-system}, data: {mesh: 'discoverySelectors: [{matchLabels: {mesh: in}}]'}}";
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let snapshot = store.apply(parse_documents("f", text).objects.into_iter().map(Update::Put).collect());
        let names: Vec<&str> = namespaces(&snapshot).map(|name| &**name).collect();
        assert_eq!(names, ["shop"]);
        assert!(is_right(&snapshot, &"shop".into(), "R") && !is_right(&snapshot, &"shop".into(), "S"));
        assert!(!is_right(&snapshot, &"out".into(), "R"));
    }
}
