//! Whether patches leave alone what only one workload has: the tracing fields and inline routes of its HTTP connection managers. They then change the
//! listeners of all workloads alike, so that these are made from one template.

use config::kinds::envoy_filter::ApplyTo;
use model::{Patch, PatchSet};
use prost::Name;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;

use super::{LISTENER_PATCH_KINDS, ROUTE_PATCH_KINDS, value};

/// For listeners with inline routes.
pub(crate) fn keep_routes(set: &PatchSet) -> bool {
    !set.has(ROUTE_PATCH_KINDS)
}

pub(crate) fn keep_connection_managers(set: &PatchSet) -> bool {
    LISTENER_PATCH_KINDS.iter().flat_map(|kind| set.of(*kind)).all(|patch| keeps_connection_managers(patch))
}

/// A patch may merge into connection managers, or add one, which has no field of a workload.
fn keeps_connection_managers(patch: &Patch) -> bool {
    match patch.apply_to {
        // They change a list of filters and nothing around it.
        ApplyTo::HttpFilter | ApplyTo::ListenerFilter => true,
        _ => !value::bytes(patch).is_some_and(names_connection_manager),
    }
}

fn names_connection_manager(value: &[u8]) -> bool {
    let name = HttpConnectionManager::full_name();
    value.windows(name.len()).any(|part| part == name.as_bytes())
}
