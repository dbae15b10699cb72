//! What one VirtualService says of the virtual hosts of a route configuration, so that a change of it makes only those anew.

use std::sync::Arc;

use model::{EgressListener, Mesh, Placement, VirtualService};
use wire::envoy::config::route::v3::Route;

use super::{HTTP_PROXY, egress_of, shared_client, virtual_host, virtual_service};

/// The names of the virtual hosts that the VirtualService speaks for, and their routes now that `new` stands where `old` stood. Both
/// have the same hosts; nothing else changed. `None`: more than the routes of these hosts may be different.
pub fn respoken(
    mesh: &Mesh,
    placement: &Placement,
    name: &str,
    old: &VirtualService,
    new: &Arc<VirtualService>,
) -> Option<(Vec<String>, Vec<Route>)> {
    let port = if name == HTTP_PROXY || name.starts_with("unix://") { 0 } else { name.parse().ok()? };
    let egress = egress_of(placement, name, port)?;
    let client = shared_client(mesh, placement, egress, port);
    if !egress.virtual_services.iter().any(|object| Arc::ptr_eq(object, new)) || !virtual_host::reads(&client, new) {
        return Some((Vec::new(), Vec::new()));
    }
    // Another may speak as soon as this one is silent.
    let routes = virtual_service::routes(&client, new);
    if routes.is_empty() != virtual_service::routes(&client, old).is_empty() || shares_a_host(egress, new) {
        return None;
    }
    let names = if routes.is_empty() { Vec::new() } else { virtual_host::spoken_by(&client, egress, new) };
    Some((names, routes))
}

/// Of several that claim one host, others than the first may still have some of its virtual hosts.
fn shares_a_host(egress: &EgressListener, object: &Arc<VirtualService>) -> bool {
    let others = egress.virtual_services.iter().filter(|other| !Arc::ptr_eq(other, object));
    others.flat_map(|other| &other.hosts).any(|host| object.hosts.contains(host))
}
