//! What a change makes anew for a router: its listeners, and the route configurations whose servers or VirtualServices changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Server, Serves};
use translate::OF_LISTENERS;
use xds::TypeUrl;

use crate::compared::Compared;
use crate::layer::{Changed, Layer, Making, Remade, Ware};
use crate::{parts, rendered, routes};

pub(crate) fn remade(
    making: &mut Making<'_>,
    changed: &Changed<'_>,
    found: &Compared<'_>,
    held: &Layer,
) -> Vec<Remade> {
    let (now, before) = (changed.now.gateway(), changed.before.gateway());
    // Any route may lead to them, also to one of its own namespace that the router does not import.
    let all = !changed.delta.services.is_empty() || !found.services.is_empty() || !found.rules.is_empty();
    let routed = |server: &Arc<Server>| changed.delta.routed.contains(&*server.gateway);
    // Chains of HTTP name their routes and hold none.
    let chained = |server: &Arc<Server>| !matches!(server.serves(), Serves::Http | Serves::Https) && routed(server);
    let mut remade = Vec::new();
    let guarded = changed.now.policies != changed.before.policies;
    let (set, old) = (&changed.now.patches.outbound, &changed.before.patches.outbound);
    let patched = !set.agrees(old, OF_LISTENERS);
    if all
        || guarded
        || patched
        || now.ports != before.ports
        || now.ports.iter().flat_map(|port| &port.servers).any(chained)
    {
        remade.push(Remade::All { made: parts::listen(making, changed.now, held), types: &[TypeUrl::Listener] });
    }
    let gone = held.http.routes.difference(&making.http.routes);
    let mut asked: BTreeSet<_> = gone.map(|name| (TypeUrl::Route, Arc::from(name.as_str()))).collect();
    let touched = |name: &&String| {
        let servers = now.routes.get(*name);
        all || servers != before.routes.get(*name)
            || routes::is_patched_otherwise(found, name)
            || !held.http.routes.contains(*name)
            || servers.is_some_and(|servers| servers.iter().any(routed))
    };
    let made: Vec<_> = making
        .http
        .routes
        .iter()
        .filter(touched)
        .map(|name| Ware::new(rendered::route(making.mesh, changed.now, name)))
        .collect();
    asked.extend(made.iter().map(|ware| (TypeUrl::Route, ware.resource.name.clone())));
    if !asked.is_empty() {
        remade.push(Remade::Some { made, asked });
    }
    remade
}
