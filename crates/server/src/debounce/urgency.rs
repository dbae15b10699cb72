//! Whether a change takes the fast path: the removal of an endpoint is pushed at once, a new one waits a short window for others. Pure.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use config::kind::Kind;
use config::kinds::endpoint_slice::EndpointSlice;
use config::object::AnyObject;
use config::store::{Name, Snapshot, Update};

use crate::settings::DebounceSettings;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Waits until the source is quiet.
    Debounced,
    Endpoint {
        namespace: Arc<str>,
        wait: Duration,
    },
    Secret {
        namespace: Arc<str>,
    },
}

/// `objects`: what is applied so far.
pub(super) fn urgency(update: &Update, objects: &Snapshot, limits: DebounceSettings) -> Urgency {
    let (kind, namespace) = match update {
        Update::Put(object) => (object.kind(), &object.meta().namespace),
        Update::Delete(id) => (id.kind, &id.namespace),
        Update::Diagnostics { .. } | Update::Keys { .. } | Update::MeshConfig(_) | Update::ObjectStatus { .. } => {
            return Urgency::Debounced;
        }
    };
    match (kind, limits.endpoints) {
        (Kind::Secret, _) => Urgency::Secret { namespace: namespace.clone() },
        (Kind::EndpointSlice | Kind::Endpoints | Kind::WorkloadEntry | Kind::Pod, Some(window)) => {
            let wait = match update {
                // It changes nothing by itself, and endpoints that come with it may name it.
                Update::Put(AnyObject::Pod(_)) => limits.after,
                Update::Put(object) if !removes_endpoint(object, objects) => window,
                _ => Duration::ZERO,
            };
            Urgency::Endpoint { namespace: namespace.clone(), wait }
        }
        _ => Urgency::Debounced,
    }
}

/// What proxies are sent stays as it is: another status of the same version, or a version with the content of the one before. The status that we write
/// comes back like this, and so do the heartbeats of pods and nodes.
pub(super) fn changes_nothing(update: &Update, objects: &Snapshot) -> bool {
    match update {
        Update::Put(object) => objects.holds(object),
        Update::ObjectStatus { id, status: Some(new) } => objects
            .object_statuses
            .get(id)
            .is_some_and(|old| (old.generation, old.rejected) == (new.generation, new.rejected)),
        _ => false,
    }
}

fn removes_endpoint(object: &AnyObject, objects: &Snapshot) -> bool {
    let name = Name { namespace: object.meta().namespace.clone(), name: object.meta().name.clone() };
    match object {
        AnyObject::EndpointSlice(new) => {
            objects.endpoint_slices.get(&name).is_some_and(|old| loses_ready_address(&old.spec, &new.spec))
        }
        AnyObject::Endpoints(new) => {
            objects.endpoints.get(&name).is_some_and(|old| loses_ready_address(&old.spec, &new.spec))
        }
        AnyObject::WorkloadEntry(new) => {
            objects.workload_entries.get(&name).is_some_and(|old| old.spec.address != new.spec.address)
        }
        _ => false,
    }
}

/// An address that was ready is no longer.
fn loses_ready_address(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    !ready_addresses(old).is_subset(&ready_addresses(new))
}

fn ready_addresses(slice: &EndpointSlice) -> HashSet<&IpAddr> {
    slice.endpoints.iter().filter(|it| it.ready).flat_map(|it| &it.addresses).collect()
}
