//! How long a change may wait: what takes an endpoint away is urgent, what brings one may wait for others. Pure.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use config::kind::Kind;
use config::kinds::endpoint_slice::EndpointSlice;
use config::object::AnyObject;
use config::store::{Name, Snapshot, Update};

use crate::settings::Debounce;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It waits until the source is quiet.
    Calm,
    Endpoint {
        namespace: Arc<str>,
        wait: Duration,
    },
    Secret {
        namespace: Arc<str>,
    },
}

/// `objects`: what proxies were told of so far.
pub(super) fn urgency(update: &Update, objects: &Snapshot, limits: Debounce) -> Urgency {
    let (kind, namespace) = match update {
        Update::Put(object) => (object.kind(), &object.meta().namespace),
        Update::Delete(id) => (id.kind, &id.namespace),
        Update::Notes { .. } | Update::Keys { .. } | Update::MeshConfig(_) | Update::Standing { .. } => {
            return Urgency::Calm;
        }
    };
    match (kind, limits.endpoints) {
        (Kind::Secret, _) => Urgency::Secret { namespace: namespace.clone() },
        (Kind::EndpointSlice | Kind::Endpoints | Kind::WorkloadEntry | Kind::Pod, Some(window)) => {
            let wait = match update {
                // It may be named by endpoints that come with it, and does nothing by itself.
                Update::Put(AnyObject::Pod(_)) => limits.after,
                Update::Put(object) if !takes_away(object, objects) => window,
                _ => Duration::ZERO,
            };
            Urgency::Endpoint { namespace: namespace.clone(), wait }
        }
        _ => Urgency::Calm,
    }
}

fn takes_away(object: &AnyObject, objects: &Snapshot) -> bool {
    let name = Name { namespace: object.meta().namespace.clone(), name: object.meta().name.clone() };
    match object {
        AnyObject::EndpointSlice(new) => {
            objects.endpoint_slices.get(&name).is_some_and(|old| loses(&old.spec, &new.spec))
        }
        AnyObject::Endpoints(new) => objects.endpoints.get(&name).is_some_and(|old| loses(&old.spec, &new.spec)),
        AnyObject::WorkloadEntry(new) => {
            objects.workload_entries.get(&name).is_some_and(|old| old.spec.address != new.spec.address)
        }
        _ => false,
    }
}

/// Some address that got traffic gets none any more.
fn loses(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    !ready(old).is_subset(&ready(new))
}

fn ready(slice: &EndpointSlice) -> HashSet<&IpAddr> {
    slice.endpoints.iter().filter(|it| it.ready).flat_map(|it| &it.addresses).collect()
}
