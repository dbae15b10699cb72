//! The virtual hosts of one VirtualService within a route configuration, so that a change of its routes encodes only those.

use std::sync::Arc;

use model::{EgressListener, Mesh, Placement, ResolvedVirtualService};
use wire::envoy::config::route::v3::Route;

use super::{HTTP_PROXY, egress_of, shared_client, virtual_host, virtual_service};

/// The names of the virtual hosts that the VirtualService routes, and their routes after `old` became `new`. Both have the same hosts, and
/// nothing else changed. `None`: more than the routes of these hosts may have changed.
pub fn changed_routes(
    mesh: &Mesh,
    placement: &Placement,
    name: &str,
    old: &ResolvedVirtualService,
    new: &Arc<ResolvedVirtualService>,
) -> Option<(Vec<String>, Vec<Route>)> {
    let port = if name == HTTP_PROXY || name.starts_with("unix://") { 0 } else { name.parse().ok()? };
    let egress = egress_of(placement, name, port)?;
    let client = shared_client(mesh, placement, egress, port);
    if !egress.virtual_services.iter().any(|object| Arc::ptr_eq(object, new)) || !virtual_host::may_use(&client, new) {
        return Some((Vec::new(), Vec::new()));
    }
    // A VirtualService without routes for this client leaves its hosts to another one.
    let routes = virtual_service::routes(&client, new);
    if routes.is_empty() != virtual_service::routes(&client, old).is_empty() || shares_a_host(egress, new) {
        return None;
    }
    let names = if routes.is_empty() { Vec::new() } else { virtual_host::virtual_host_names(&client, egress, new) };
    Some((names, routes))
}

/// If several claim one host, others than the first may still route some of its virtual hosts.
fn shares_a_host(egress: &EgressListener, object: &Arc<ResolvedVirtualService>) -> bool {
    let others = egress.virtual_services.iter().filter(|other| !Arc::ptr_eq(other, object));
    others.flat_map(|other| &other.hosts).any(|host| object.hosts.contains(host))
}
