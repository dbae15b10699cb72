//! What a change rebuilds for a gateway: its listeners, and the route configurations whose servers or VirtualServices changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{GatewayServer, ServerMode};
use translate::LISTENER_PATCH_KINDS;
use xds::TypeUrl;

use crate::isolation;
use crate::layer::{BuildContext, EncodedResource, Layer, PlacementChange, ResourceUpdate};
use crate::placement_diff::PlacementDiff;
use crate::{layer_kinds, render, routes};

pub(crate) fn rebuild_gateway(
    context: &mut BuildContext<'_>,
    change: &PlacementChange<'_>,
    diff: &PlacementDiff<'_>,
    previous: &Layer,
) -> Vec<ResourceUpdate> {
    let (now, before) = (change.now.gateway(), change.before.gateway());
    // Any route may lead to a service or rule, including services of the gateway's own namespace that it does not import.
    let all = !change.delta.services.is_empty() || !diff.services.is_empty() || !diff.rules.is_empty();
    let routed = |server: &Arc<GatewayServer>| change.delta.gateway_routes.contains(&*server.gateway);
    // HTTP filter chains refer to their routes by name (RDS) and hold none.
    let chained =
        |server: &Arc<GatewayServer>| !matches!(server.mode(), ServerMode::Http | ServerMode::Https) && routed(server);
    let mut updates = Vec::new();
    let guarded = change.now.policies != change.before.policies;
    let (set, old) = (&change.now.patches.outbound, &change.before.patches.outbound);
    let patched = !set.agrees(old, LISTENER_PATCH_KINDS);
    if all
        || guarded
        || patched
        || now.ports != before.ports
        || now.ports.iter().flat_map(|port| &port.servers).any(chained)
    {
        updates.push(ResourceUpdate::Full {
            made: layer_kinds::build_outbound_listeners(context, change.now, previous),
            types: &[TypeUrl::Listener],
        });
    }
    let gone = previous.http.routes.difference(&context.http.routes);
    let mut covered: BTreeSet<_> = gone.map(|name| (TypeUrl::Route, Arc::from(name.as_str()))).collect();
    let affected = |name: &&String| {
        let servers = now.routes.get(*name);
        all || servers != before.routes.get(*name)
            || routes::has_other_patches(diff, name)
            || !previous.http.routes.contains(*name)
            || servers.is_some_and(|servers| servers.iter().any(routed))
    };
    let (http, mesh) = (context.http.clone(), context.mesh);
    let made: Vec<_> = http
        .routes
        .iter()
        .filter(affected)
        .map(|name| {
            routes::isolated_route(
                context,
                change.now,
                name,
                || isolation::route_suspects(change.now),
                |_| EncodedResource::new(render::render_route(mesh, change.now, name)),
            )
        })
        .collect();
    covered.extend(made.iter().map(|encoded| (TypeUrl::Route, encoded.resource.name.clone())));
    if !covered.is_empty() {
        updates.push(ResourceUpdate::Partial { made, covered });
    }
    updates
}
