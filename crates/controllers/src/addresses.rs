//! Addresses for hosts that have none, in the status of ServiceEntries. Which these are is not known here.

use std::sync::Arc;
use std::time::Duration;

use config::kinds::service_entry::AllocatedAddress;
use config::note::ObjectId;
use config::store::Snapshot;
use serde_json::{Value, json};
use sources::kube::{Client, Failure, object_path};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::leadership::Leadership;
use crate::object;

/// Who the API server notes as the owner of what is written.
const OWNER: &str = "meltemi-addresses";
/// After a change: what comes together is looked at together.
const LOOK: Duration = Duration::from_secs(1);
/// Between two writes.
const PACE: Duration = Duration::from_millis(100);
/// After a refusal of the API server.
const PAUSE: Duration = Duration::from_secs(30);

pub struct AddressWriter {
    pub client: Client,
    /// With all that is held of their status.
    pub objects: watch::Receiver<Arc<Snapshot>>,
    pub leads: Leadership,
}

impl AddressWriter {
    /// Until there are no more objects. `wanted`: what differs from what the status says.
    pub async fn follow(mut self, wanted: impl Fn(&Snapshot) -> Vec<(ObjectId, Vec<AllocatedAddress>)> + Send) {
        loop {
            sleep(LOOK).await;
            let snapshot = self.objects.borrow_and_update().clone();
            let todo = if self.leads.is_held() { wanted(&snapshot) } else { Vec::new() };
            let done = self.write_all(&snapshot, todo).await;
            if let Err(failure) = done {
                warn!(%failure, "addresses of ServiceEntries could not be written; it is tried again");
                sleep(PAUSE).await;
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
    ) -> Result<(), Failure> {
        for (id, addresses) in todo {
            let Some(standing) = snapshot.standings.get(&id) else { continue };
            let addresses: Vec<Value> =
                addresses.iter().map(|it| json!({ "host": it.host, "value": it.value })).collect();
            let object = json!({
                "apiVersion": &*standing.api_version, "kind": id.kind.name(),
                // Only this version of it: whoever wrote since is not overwritten.
                "metadata": { "name": &*id.name, "namespace": &*id.namespace, "resourceVersion": standing.version.to_string() },
                "status": { "addresses": addresses },
            });
            let path = object_path(id.kind, &standing.api_version, &id.namespace, &id.name);
            let path = format!("{path}/status");
            let write = object::apply_as(&self.client, &path, OWNER, &object);
            let Some(written) = self.leads.write(write).await else { return Ok(()) };
            match written {
                Ok(_) => info!(%id, addresses = addresses.len(), "addresses were given"),
                // The next look sees what they wrote.
                Err(failure) if object::is_conflict(&failure) => debug!(%id, "changed meanwhile"),
                Err(Failure::Refused { code: 404, .. }) => debug!(%id, "gone meanwhile"),
                Err(failure) => return Err(failure),
            }
            sleep(PACE).await;
        }
        Ok(())
    }
}
