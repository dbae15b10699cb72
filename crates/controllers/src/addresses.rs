//! Writes automatically allocated addresses into the status of ServiceEntries. The caller computes them.

use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::ObjectId;
use config::kinds::service_entry::AllocatedAddress;
use config::store::Snapshot;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sources::kube::{KubeClient, RequestError, object_path};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::leadership::Leadership;
use crate::object;

/// The field manager of our writes.
const FIELD_MANAGER: &str = "meltemi-addresses";
/// The debounce after a change.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// After an error response of the API server.
const ERROR_PAUSE: Duration = Duration::from_secs(30);

pub struct AddressWriter {
    pub client: KubeClient,
    /// With the status of the objects.
    pub objects: watch::Receiver<Arc<Snapshot>>,
    pub leads: Leadership,
}

impl AddressWriter {
    /// Runs until the sender of snapshots is dropped. `wanted`: objects whose status differs, with their addresses.
    pub async fn follow(mut self, wanted: impl Fn(&Snapshot) -> Vec<(ObjectId, Vec<AllocatedAddress>)> + Send) {
        loop {
            sleep(DEBOUNCE).await;
            let snapshot = self.objects.borrow_and_update().clone();
            let todo = if self.leads.is_held() { wanted(&snapshot) } else { Vec::new() };
            let done = self.write_all(&snapshot, todo).await;
            if let Err(failure) = done {
                warn!(%failure, "cannot write addresses of ServiceEntries; retrying");
                sleep(ERROR_PAUSE).await;
                continue;
            }
            tokio::select! {
                changed = self.objects.changed() => if changed.is_err() { return },
                changed = self.leads.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn write_all(
        &self,
        snapshot: &Snapshot,
        todo: Vec<(ObjectId, Vec<AllocatedAddress>)>,
    ) -> Result<(), RequestError> {
        for (id, addresses) in todo {
            let Some(status) = snapshot.object_statuses.get(&id) else { continue };
            let addresses: Vec<Value> =
                addresses.iter().map(|it| json!({ "host": it.host, "value": it.value })).collect();
            let object = json!({
                "apiVersion": &*status.api_version, "kind": id.kind.name(),
                // Conditional on this version, so that no later write is overwritten.
                "metadata": { "name": &*id.name, "namespace": &*id.namespace, "resourceVersion": status.version.to_string() },
                "status": { "addresses": addresses },
            });
            let path = object_path(id.kind, &status.api_version, &id.namespace, &id.name);
            let path = format!("{path}/status");
            let write = object::apply_as::<IgnoredAny>(&self.client, &path, FIELD_MANAGER, &object);
            let Some(written) = self.leads.write(write).await else { return Ok(()) };
            match written {
                Ok(_) => info!(%id, addresses = addresses.len(), "allocated addresses written"),
                // The next snapshot holds the other write.
                Err(failure) if object::is_conflict(&failure) => debug!(%id, "changed meanwhile"),
                Err(RequestError::Status { code: 404, .. }) => debug!(%id, "gone meanwhile"),
                Err(failure) => return Err(failure),
            }
            sleep(WRITE_INTERVAL).await;
        }
        Ok(())
    }
}
