//! What a change rebuilds for a gateway: its listeners, and the route configurations whose servers or VirtualServices changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds::{Kinds, TypeUrl};

use crate::isolation;
use crate::layer::{BuildContext, EncodedResource, Layer, ResourceUpdate};
use crate::scope_change::ScopeChange;
use crate::{layer_kinds, render, routes};

pub(crate) fn rebuild_gateway(
    context: &mut BuildContext<'_>,
    scope: &ScopeChange<'_>,
    previous: &Layer,
) -> Vec<ResourceUpdate> {
    let mut updates = Vec::new();
    if scope.gateway_listeners() {
        let made = layer_kinds::build_outbound_listeners(context, scope.now, previous);
        updates.push(ResourceUpdate::Full { made, kinds: Kinds::of(&[TypeUrl::Listener]) });
    }
    let gone = previous.http.routes.difference(&context.http.routes);
    let mut covered: BTreeSet<_> = gone.map(|name| (TypeUrl::Route, Arc::from(name.as_str()))).collect();
    let affected = |name: &&String| !previous.http.routes.contains(*name) || scope.gateway_route(name);
    let (http, mesh) = (context.http.clone(), context.mesh);
    let made: Vec<_> = http
        .routes
        .iter()
        .filter(affected)
        .map(|name| {
            routes::isolated_route(
                context,
                scope.now,
                name,
                || isolation::route_suspects(scope.now),
                |_| EncodedResource::new(render::render_route(mesh, scope.now, name)),
            )
        })
        .collect();
    covered.extend(made.iter().map(|encoded| (TypeUrl::Route, encoded.resource.name.clone())));
    if !covered.is_empty() {
        updates.push(ResourceUpdate::Partial { made, covered });
    }
    updates
}
