//! The ConfigMap `istio-ca-root-cert` with the root certificates in every namespace, from which sidecars learn them. Written where the
//! snapshot differs, so that a changed or deleted ConfigMap is restored.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use config::store::{Name, Snapshot};
use serde_json::{Value, json};
use sources::kube::{KubeClient, NamespaceScope, RequestError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::leadership::Leadership;
use crate::object;

pub const NAME: &str = "istio-ca-root-cert";
const KEY: &str = "root-cert.pem";
/// Namespaces of Kubernetes itself without workloads; istiod's list.
const IGNORED: [&str; 3] = ["kube-public", "kube-node-lease", "local-path-storage"];
/// The debounce after a change.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// The polling interval for changed roots and for retries, which have no notification.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The minimal interval of writes to one namespace, if others write it too.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(5);

pub struct RootCert {
    pub client: KubeClient,
    pub objects: watch::Receiver<Arc<Snapshot>>,
    pub leads: Leadership,
    /// Only these are watched, so that others cannot be compared. Empty: all.
    pub watched: BTreeSet<Arc<str>>,
}

impl RootCert {
    /// Runs until the sender of snapshots is dropped. `roots`: the current root certificates, as PEM.
    pub async fn follow(mut self, roots: impl Fn() -> String + Send) {
        let mut written: HashMap<Arc<str>, Instant> = HashMap::new();
        loop {
            sleep(DEBOUNCE).await;
            written.retain(|_, at| at.elapsed() < MIN_WRITE_INTERVAL);
            let (snapshot, roots) = (self.objects.borrow_and_update().clone(), roots());
            let judged = namespaces(&snapshot).filter(|namespace| self.watches(&snapshot, namespace));
            for namespace in judged.filter(|namespace| !is_current(&snapshot, namespace, &roots)) {
                // Checked before each write: another may lead by now.
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
                () = sleep(POLL_INTERVAL) => {}
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
            // The next snapshot holds the other write.
            Err(failure) if object::is_conflict(&failure) => debug!(namespace, "the root certificate changed"),
            // The namespace is being deleted.
            Err(RequestError::Status { code: 404, .. }) => debug!(namespace, "no namespace for the root certificate"),
            Err(RequestError::Status { code: 403, message, .. }) if message.contains("being terminated") => {}
            Err(failure) => warn!(namespace, %failure, "cannot write the root certificate; retrying"),
        }
    }

    /// Returns whether a write was necessary. Conditional on the version just read, so that a delayed request of a former leader has no
    /// effect. Read as a list, because the role grants list.
    async fn apply(&self, namespace: &str, roots: &str) -> Result<bool, RequestError> {
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

/// Namespaces that need the root certificate.
pub fn namespaces(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<str>> {
    let scope = NamespaceScope::new(snapshot);
    let alive = snapshot.namespaces.values().filter(|object| !object.meta.deleting);
    alive.map(|object| &object.meta.name).filter(move |name| !IGNORED.contains(&&***name) && scope.holds(name))
}

fn is_current(snapshot: &Snapshot, namespace: &Arc<str>, roots: &str) -> bool {
    let name = Name { namespace: namespace.clone(), name: NAME.into() };
    let found = snapshot.config_maps.get(&name);
    found.is_some_and(|object| object.spec.data.get(KEY).is_some_and(|current| current == roots))
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
        assert!(is_current(&snapshot, &"shop".into(), "R") && !is_current(&snapshot, &"shop".into(), "S"));
        assert!(!is_current(&snapshot, &"out".into(), "R"));
    }
}
