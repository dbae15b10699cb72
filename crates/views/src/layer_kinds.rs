//! The three layer kinds: outbound, outbound HTTP listeners (which name the workload in traces), and inbound. After a
//! change each rebuilds what `dependencies` says.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::host::Host;
use model::{Mesh, Placement, Service};
use translate::{ClusterName, ClusterPatches, EncodedTracing, OutboundListeners, Translated};
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType},
};
use wire::envoy::config::listener::v3::Listener;
use xds::{Kinds, TypeUrl};

use crate::cluster_patches::apply_cluster_patches;
use crate::isolation;
use crate::layer::{BuildContext, EncodedResource, Layer, LayerKind, PlacementChange, ResourceUpdate};
use crate::render::{self, RenderedResource};
use crate::scope_change::ScopeChange;
use crate::{dependencies, gateway, routes};

/// Clusters, load assignments, routes, the name table, and the outbound listeners that do not name the workload.
pub(crate) struct Outbound;

/// Outbound HTTP listeners.
pub(crate) struct Listeners;

/// Clusters, listeners and extensions of the workload's own ports.
pub(crate) struct Inbound;

/// All outbound resources, from scratch.
pub(crate) fn render_outbound(mesh: &Mesh, placement: &Placement) -> Vec<RenderedResource> {
    let mut out: Vec<_> = translate::built_in_clusters(mesh, placement).into_iter().map(render_cluster).collect();
    let patches = ClusterPatches::outbound(&placement.patches.outbound);
    for service in &placement.scope.services {
        let (clusters, endpoints) = translate_service(mesh, placement, service);
        out.extend(clusters.into_iter().filter_map(|made| patches.patch(made)).map(render_cluster));
        out.extend(endpoints);
    }
    let OutboundListeners { http, rest } = translate::outbound_listeners(mesh, placement);
    out.extend(rest.into_iter().chain(http.listeners(mesh, placement)).map(render_listener));
    out.extend(http.routes.iter().map(|name| render::render_route(mesh, placement, name)));
    out.extend(name_table(mesh, placement));
    out
}

/// All inbound resources, from scratch.
pub(crate) fn render_inbound(mesh: &Mesh, placement: &Placement) -> Vec<RenderedResource> {
    let mut out: Vec<_> = translate::inbound_clusters(mesh, placement).into_iter().map(render_cluster).collect();
    out.extend(translate::inbound_listeners(mesh, placement).into_iter().map(render_listener));
    out.extend(render_extensions(placement));
    out
}

/// The clusters, with their load assignments, of the service that a cluster name names; else all that belong to no service.
pub(crate) fn render_cluster_candidates(mesh: &Mesh, placement: &Placement, name: &str) -> Vec<RenderedResource> {
    let named = match name.parse() {
        Ok(ClusterName::Outbound { host, .. } | ClusterName::Sni { host, .. }) => placement.scope.service(&host),
        _ => None,
    };
    let mut out = Vec::new();
    if let Some(service) = named {
        let patches = ClusterPatches::outbound(&placement.patches.outbound);
        let (clusters, endpoints) = translate_service(mesh, placement, service);
        out.extend(clusters.into_iter().filter_map(|made| patches.patch(made)).map(render_cluster));
        out.extend(endpoints);
    }
    out.extend(translate::built_in_clusters(mesh, placement).into_iter().map(render_cluster));
    out.extend(translate::inbound_clusters(mesh, placement).into_iter().map(render_cluster));
    out
}

pub(crate) fn render_listeners(mesh: &Mesh, placement: &Placement) -> Vec<RenderedResource> {
    let OutboundListeners { http, rest } = translate::outbound_listeners(mesh, placement);
    let outbound = rest.into_iter().chain(http.listeners(mesh, placement));
    outbound.chain(translate::inbound_listeners(mesh, placement)).map(render_listener).collect()
}

/// `None`: no listener refers to it.
pub(crate) fn render_listed_route(mesh: &Mesh, placement: &Placement, name: &str) -> Option<RenderedResource> {
    let listed = translate::outbound_listeners(mesh, placement).http.routes.contains(name);
    listed.then(|| render::render_route(mesh, placement, name))
}

impl LayerKind for Outbound {
    const KINDS: Kinds =
        Kinds::of(&[TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::NameTable]);

    fn build(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
        let mesh = context.mesh;
        // A build from scratch reuses nothing: the fields that all listeners share may have changed.
        context.http = Arc::default();
        let mut out = service_resources(context, placement);
        out.extend(build_outbound_listeners(context, placement, &Layer::default()));
        for name in &context.http.clone().routes {
            out.push(routes::isolated_route(
                context,
                placement,
                name,
                || isolation::route_suspects(placement),
                |_| EncodedResource::new(render::render_route(mesh, placement, name)),
            ));
        }
        out.extend(build_name_table(context, placement));
        out
    }

    fn rebuild(context: &mut BuildContext<'_>, change: &PlacementChange<'_>, previous: &Layer) -> Vec<ResourceUpdate> {
        context.http = previous.http.clone();
        let placement = change.now;
        if dependencies::touches_whole_layer(change) {
            return vec![ResourceUpdate::Full { made: Self::build(context, placement), kinds: Self::KINDS }];
        }
        let scope = ScopeChange::new(change.delta, change.before, placement);
        let mut updates = rebuild_services(context, &scope);
        if placement.is_gateway() {
            updates.extend(gateway::rebuild_gateway(context, &scope, previous));
            return updates;
        }
        if scope.outbound_listeners() {
            let made = build_outbound_listeners(context, placement, previous);
            updates.push(ResourceUpdate::Full { made, kinds: Kinds::of(&[TypeUrl::Listener]) });
        }
        if scope.name_table() {
            let made = build_name_table(context, placement);
            updates.push(ResourceUpdate::Full { made, kinds: Kinds::of(&[TypeUrl::NameTable]) });
        }
        updates.extend(routes::rebuild_routes(context, &scope, previous));
        updates
    }
}

impl LayerKind for Listeners {
    const KINDS: Kinds = Kinds::of(&[TypeUrl::Listener]);

    fn build(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
        let what = || "outbound HTTP listeners".to_owned();
        let suspects = || isolation::workload_suspects(placement);
        let made = context.isolated(placement, what, suspects, |context| build_http_listeners(context, placement));
        made.unwrap_or_else(|| context.previous_resources(Self::KINDS))
    }

    fn rebuild(context: &mut BuildContext<'_>, change: &PlacementChange<'_>, previous: &Layer) -> Vec<ResourceUpdate> {
        if !dependencies::touches_http_listeners(change) && Arc::ptr_eq(&context.http, &previous.http) {
            return Vec::new();
        }
        vec![ResourceUpdate::Full { made: Self::build(context, change.now), kinds: Self::KINDS }]
    }
}

impl LayerKind for Inbound {
    const KINDS: Kinds = Kinds::of(&[TypeUrl::Cluster, TypeUrl::Listener, TypeUrl::Extension]);

    fn build(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
        isolated_inbound(context, placement, Self::KINDS)
    }

    fn rebuild(context: &mut BuildContext<'_>, change: &PlacementChange<'_>, previous: &Layer) -> Vec<ResourceUpdate> {
        context.http = previous.http.clone();
        let read = [
            (TypeUrl::Cluster, dependencies::touches_inbound_clusters(change)),
            (TypeUrl::Listener, dependencies::touches_inbound_listeners(change)),
            (TypeUrl::Extension, dependencies::touches_extensions(change)),
        ];
        let kinds: Kinds = read.into_iter().filter(|(_, touched)| *touched).map(|(kind, _)| kind).collect();
        if kinds.is_empty() {
            return Vec::new();
        }
        vec![ResourceUpdate::Full { made: isolated_inbound(context, change.now, kinds), kinds }]
    }
}

/// Listeners that do not name the workload. Drafts of the others are kept if they are equivalent.
pub(crate) fn build_outbound_listeners(
    context: &mut BuildContext<'_>,
    placement: &Placement,
    previous: &Layer,
) -> Vec<EncodedResource> {
    let what = || "outbound listeners".to_owned();
    let suspects = || isolation::listener_suspects(placement);
    let made = context.isolated(placement, what, suspects, |context| {
        let OutboundListeners { http, rest } = translate::outbound_listeners(context.mesh, placement);
        let encode = |made| EncodedResource::reuse_or_encode(render_listener(made), previous);
        (http, rest.into_iter().map(encode).collect::<Vec<_>>())
    });
    let Some((http, rest)) = made else {
        context.http = context.previous.http.clone();
        return context.previous_resources(Kinds::of(&[TypeUrl::Listener]));
    };
    if !http.is_equivalent(&context.http) {
        context.http = Arc::new(http);
    }
    rest
}

fn build_http_listeners(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
    let BuildContext { mesh, http, .. } = context;
    let tracing = EncodedTracing::outbound(mesh, placement);
    let made = match http.instantiate(mesh, placement, &tracing) {
        Some(instances) => instances.iter().map(|(name, made)| EncodedResource::from_template(name, made)).collect(),
        None => http.listeners(mesh, placement).into_iter().map(render_listener).map(EncodedResource::new).collect(),
    };
    context.tracing = Some(tracing);
    made
}

/// Inbound resources of these types; if they cannot be translated, those before.
fn isolated_inbound(context: &mut BuildContext<'_>, placement: &Placement, kinds: Kinds) -> Vec<EncodedResource> {
    let what = || format!("inbound resources of {}", placement.proxy.id);
    let suspects = || isolation::workload_suspects(placement);
    let made = context.isolated(placement, what, suspects, |context| build_inbound(context, placement, kinds));
    made.unwrap_or_else(|| context.previous_resources(kinds))
}

fn build_inbound(context: &mut BuildContext<'_>, placement: &Placement, kinds: Kinds) -> Vec<EncodedResource> {
    let (mesh, tracing) = (context.mesh, context.tracing.take());
    let templates = context.inbound_templates.as_mut();
    let shared = templates.and_then(|(templates, key)| templates.shared(mesh, placement, key));
    let mut out = Vec::new();
    if kinds.contains(TypeUrl::Cluster) {
        out.extend(translate::own_clusters(mesh, placement).into_iter().map(render_cluster).map(EncodedResource::new));
        let passthrough = || translate::inbound_passthrough(mesh, placement).map(render_cluster);
        out.extend(match &shared {
            Some((shared, _)) => shared.passthrough.clone(),
            None => passthrough().map(EncodedResource::new),
        });
    }
    if kinds.contains(TypeUrl::Extension) {
        out.extend(render_extensions(placement).map(EncodedResource::new));
    }
    if kinds.contains(TypeUrl::Listener) {
        match shared {
            Some((shared, ports)) => out.extend(shared.listener(mesh, placement, ports, tracing)),
            None => {
                let whole = translate::inbound_listeners(mesh, placement).into_iter().map(render_listener);
                out.extend(whole.map(EncodedResource::new));
            }
        }
    }
    out
}

fn build_name_table(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
    let mesh = context.mesh;
    let what = || "the name table".to_owned();
    let made = context.isolated(
        placement,
        what,
        || isolation::listener_suspects(placement),
        |_| name_table(mesh, placement).map(EncodedResource::new).into_iter().collect(),
    );
    made.unwrap_or_else(|| context.previous_resources(Kinds::of(&[TypeUrl::NameTable])))
}

/// Clusters and load assignments that the change touches.
fn rebuild_services(context: &mut BuildContext<'_>, scope: &ScopeChange<'_>) -> Vec<ResourceUpdate> {
    let clusters = scope.clusters();
    let mut updates: Vec<_> = clusters.iter().map(|host| rebuild_service(context, scope, host)).collect();
    for host in scope.load_assignments(&clusters) {
        // A service that stays keeps its cluster names.
        let service = scope.now.scope.service(&host);
        let made = service.map(|service| load_assignments_of_service(context, scope.now, service)).unwrap_or_default();
        updates.push(ResourceUpdate::Partial { made, covered: BTreeSet::new() });
    }
    if scope.patched_clusters(&clusters) {
        let mut made = service_resources(context, scope.now);
        made.retain(|encoded| encoded.kind == TypeUrl::Cluster);
        updates.push(ResourceUpdate::Full { made, kinds: Kinds::of(&[TypeUrl::Cluster]) });
    }
    updates
}

/// The clusters and load assignments of a host.
fn rebuild_service(context: &mut BuildContext<'_>, scope: &ScopeChange<'_>, host: &Host) -> ResourceUpdate {
    let [service, before] = [scope.now, scope.before].map(|placement| placement.scope.service(host));
    let made = service.map(|service| resources_of_service(context, scope.now, service)).unwrap_or_default();
    let mut covered = BTreeSet::new();
    for (placement, service) in [(scope.now, service), (scope.before, before)] {
        for name in service.into_iter().flat_map(|service| cluster_names(service, placement)) {
            covered.insert((TypeUrl::Endpoints, name.clone()));
            covered.insert((TypeUrl::Cluster, name));
        }
    }
    ResourceUpdate::Partial { made, covered }
}

/// The clusters of the service and of its subsets, on every port.
fn cluster_names(service: &Service, placement: &Placement) -> Vec<Arc<str>> {
    let rule = placement.destination_rule(&service.host);
    let subsets = rule.map(|rule| rule.subsets.as_slice()).unwrap_or_default();
    let named = |port: u16| {
        let names = std::iter::once("").chain(subsets.iter().map(|subset| subset.name.as_str()));
        names.flat_map(move |subset| {
            let (subset, host) = (subset.to_owned(), service.host.clone());
            [
                ClusterName::Outbound { port, subset: subset.clone(), host: host.clone() },
                ClusterName::Sni { port, subset, host },
            ]
        })
    };
    service.ports.iter().flat_map(|port| named(port.number)).map(|name| Arc::from(name.to_string())).collect()
}

/// Built-in clusters, and the clusters and load assignments of every imported service.
fn service_resources(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
    let built_in = translate::built_in_clusters(context.mesh, placement).into_iter().map(render_cluster);
    let mut out: Vec<_> = built_in.map(EncodedResource::new).collect();
    for service in &placement.scope.services {
        out.extend(resources_of_service(context, placement, service));
    }
    out
}

fn resources_of_service(
    context: &mut BuildContext<'_>,
    placement: &Placement,
    service: &Arc<Service>,
) -> Vec<EncodedResource> {
    isolated_service(context, placement, service, &[TypeUrl::Cluster, TypeUrl::Endpoints], |context| {
        let translated = context.resources.service_resources(context.mesh, context.client, placement, service);
        apply_cluster_patches(placement, translated)
    })
}

fn load_assignments_of_service(
    context: &mut BuildContext<'_>,
    placement: &Placement,
    service: &Arc<Service>,
) -> Vec<EncodedResource> {
    isolated_service(context, placement, service, &[TypeUrl::Endpoints], |context| {
        context.resources.load_assignments(context.mesh, context.client, placement, service)
    })
}

/// Resources of these types of a service; if they cannot be translated, those before.
fn isolated_service(
    context: &mut BuildContext<'_>,
    placement: &Placement,
    service: &Arc<Service>,
    types: &[TypeUrl],
    translate: impl FnOnce(&mut BuildContext<'_>) -> Vec<EncodedResource>,
) -> Vec<EncodedResource> {
    let what = || format!("clusters and load assignments of {}", service.host);
    let suspects = || isolation::service_suspects(placement, service);
    let made = context.isolated(placement, what, suspects, translate);
    made.unwrap_or_else(|| {
        let names = cluster_names(service, placement);
        let known = names.iter().flat_map(|name| types.iter().map(move |kind| (*kind, name)));
        known.filter_map(|(kind, name)| context.previous_resource(kind, name)).collect()
    })
}

/// A service's clusters before patches, and the load assignments of its EDS clusters.
pub(crate) fn translate_service(
    mesh: &Mesh,
    placement: &Placement,
    service: &Service,
) -> (Vec<Translated<Cluster>>, Vec<RenderedResource>) {
    let mut clusters = if placement.needs_clusters_of(service) {
        translate::service_clusters(mesh, placement, service)
    } else {
        Vec::new()
    };
    clusters.extend(translate::sni_clusters(mesh, placement, service));
    let endpoints: Vec<_> = clusters.iter().filter_map(|made| eds_name(&made.value)).collect();
    let assignments = endpoints.iter().map(|name| render::render_endpoints(mesh, placement, name));
    let assignments = assignments.collect();
    (clusters, assignments)
}

/// For proxies that capture DNS.
pub(crate) fn name_table(mesh: &Mesh, placement: &Placement) -> Option<RenderedResource> {
    let answers = placement.proxy.metadata.dns_capture;
    answers.then(|| RenderedResource::new(TypeUrl::NameTable, "", translate::name_table(mesh, placement)))
}

pub(crate) fn render_cluster(made: Translated<Cluster>) -> RenderedResource {
    RenderedResource::new(TypeUrl::Cluster, &made.value.name.clone(), made)
}

fn render_listener(made: Translated<Listener>) -> RenderedResource {
    RenderedResource::new(TypeUrl::Listener, &made.value.name.clone(), made)
}

/// Extension configurations, which filters request by name (ECDS).
pub(crate) fn render_extensions(placement: &Placement) -> impl Iterator<Item = RenderedResource> {
    let made = translate::extension_configs(placement).into_iter();
    made.map(|made| RenderedResource::new(TypeUrl::Extension, &made.value.name.clone(), made))
}

fn eds_name(cluster: &Cluster) -> Option<String> {
    let by_eds = cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    by_eds.then(|| cluster.eds_cluster_config.as_ref().map(|eds| eds.service_name.clone())).flatten()
}
