//! The three layer kinds: outbound, outbound HTTP listeners (which name the workload in traces), and inbound. Each knows what it reads, so
//! that a change rebuilds only the affected resources.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::host::Host;
use config::kinds::envoy_filter::ApplyTo;
use model::{MergedDestinationRule, Mesh, Placement, Service};
use translate::{ClusterName, ClusterPatches, EncodedTracing, LISTENER_PATCH_KINDS, OutboundListeners, Translated};
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType},
};
use wire::envoy::config::listener::v3::Listener;
use xds::TypeUrl;

use crate::cluster_patches::apply_cluster_patches;
use crate::isolation;
use crate::layer::{BuildContext, EncodedResource, Layer, LayerKind, PlacementChange, ResourceUpdate};
use crate::placement_diff::{PlacementDiff, sidecar_spec};
use crate::render::{self, RenderedResource};
use crate::{gateway, routes};

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

impl LayerKind for Outbound {
    const TYPES: &'static [TypeUrl] =
        &[TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::NameTable];

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
        let (delta, placement) = (change.delta, change.now);
        let diff = if delta.everything { None } else { PlacementDiff::new(placement, change.before) };
        let Some(diff) = diff else {
            return vec![ResourceUpdate::Full { made: Self::build(context, placement), types: Self::TYPES }];
        };
        let hosts = diff.hosts(delta);
        let mut updates: Vec<_> =
            hosts.iter().map(|(host, with_clusters)| rebuild_service(context, &diff, host, *with_clusters)).collect();
        let (set, before) = (&placement.patches.outbound, &change.before.patches.outbound);
        let patched = set.has(&[ApplyTo::Cluster]) && hosts.iter().any(|(_, with_clusters)| *with_clusters);
        // A patch may rename clusters, and adds clusters whose name is free.
        if patched || !set.agrees(before, &[ApplyTo::Cluster]) {
            let mut made = service_resources(context, placement);
            made.retain(|encoded| encoded.kind == TypeUrl::Cluster);
            updates.push(ResourceUpdate::Full { made, types: &[TypeUrl::Cluster] });
        }
        if placement.is_gateway() {
            updates.extend(gateway::rebuild_gateway(context, change, &diff, previous));
            return updates;
        }
        let names = !diff.services.is_empty() || diff.affects_headless(delta);
        if names || diff.affects_tcp() || !set.agrees(before, LISTENER_PATCH_KINDS) {
            updates.push(ResourceUpdate::Full {
                made: build_outbound_listeners(context, placement, previous),
                types: &[TypeUrl::Listener],
            });
        }
        if names {
            let made = build_name_table(context, placement);
            updates.push(ResourceUpdate::Full { made, types: &[TypeUrl::NameTable] });
        }
        updates.extend(routes::rebuild_routes(context, &diff, previous));
        updates
    }
}

impl LayerKind for Listeners {
    const TYPES: &'static [TypeUrl] = &[TypeUrl::Listener];

    fn build(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
        let what = || "outbound HTTP listeners".to_owned();
        let suspects = || isolation::workload_suspects(placement);
        let made = context.isolated(placement, what, suspects, |context| build_http_listeners(context, placement));
        made.unwrap_or_else(|| context.previous_resources(Self::TYPES))
    }

    fn rebuild(context: &mut BuildContext<'_>, change: &PlacementChange<'_>, previous: &Layer) -> Vec<ResourceUpdate> {
        // A gateway's listeners enforce its policies; a sidecar's outbound listeners do not.
        let guarded = change.now.is_gateway() && change.now.policies != change.before.policies;
        let patched = !change.now.patches.outbound.agrees(&change.before.patches.outbound, LISTENER_PATCH_KINDS);
        if !change.delta.everything && !guarded && !patched && Arc::ptr_eq(&context.http, &previous.http) {
            return Vec::new();
        }
        vec![ResourceUpdate::Full { made: Self::build(context, change.now), types: Self::TYPES }]
    }
}

impl LayerKind for Inbound {
    const TYPES: &'static [TypeUrl] = &[TypeUrl::Cluster, TypeUrl::Listener, TypeUrl::Extension];

    fn build(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
        let what = || format!("inbound resources of {}", placement.proxy.id);
        let suspects = || isolation::workload_suspects(placement);
        let made = context.isolated(placement, what, suspects, |context| build_inbound(context, placement));
        made.unwrap_or_else(|| context.previous_resources(Self::TYPES))
    }

    fn rebuild(context: &mut BuildContext<'_>, change: &PlacementChange<'_>, previous: &Layer) -> Vec<ResourceUpdate> {
        context.http = previous.http.clone();
        let PlacementChange { delta, before, now } = change;
        // Targets hold the services that send to this workload: equal targets with equal rules have equal filter chains.
        // Here only the configuration of plugins can differ: a different set of plugins is a different layer key.
        let mut updates = Vec::new();
        if !now.plugins.is_same(&before.plugins) {
            let what = || format!("extensions of {}", now.proxy.id);
            let made = context.isolated(
                now,
                what,
                || isolation::workload_suspects(now),
                |_| render_extensions(now).map(EncodedResource::new).collect(),
            );
            let made = made.unwrap_or_else(|| context.previous_resources(&[TypeUrl::Extension]));
            updates.push(ResourceUpdate::Full { made, types: &[TypeUrl::Extension] });
        }
        let same = now.targets == before.targets
            && now.policies == before.policies
            && now.patches.is_same_inbound(&before.patches)
            && now.patches.extensions == before.patches.extensions
            && (inbound_rule_addresses(now).eq(inbound_rule_addresses(before))
                || inbound_rules(now).eq(inbound_rules(before)))
            && sidecar_spec(&now.scope) == sidecar_spec(&before.scope);
        if !delta.everything && same {
            return updates;
        }
        vec![ResourceUpdate::Full { made: Self::build(context, now), types: Self::TYPES }]
    }
}

/// The DestinationRules of the workload's own services: some of their settings apply on the inbound side too.
fn inbound_rules(placement: &Placement) -> impl Iterator<Item = Option<&Arc<MergedDestinationRule>>> {
    placement.targets.iter().map(|target| placement.inbound_destination_rule(&target.service.host))
}

/// Compared first, since comparing rules by value is expensive.
fn inbound_rule_addresses(placement: &Placement) -> impl Iterator<Item = Option<*const MergedDestinationRule>> {
    inbound_rules(placement).map(|rule| rule.map(Arc::as_ptr))
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
        return context.previous_resources(&[TypeUrl::Listener]);
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

fn build_inbound(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource> {
    let mesh = context.mesh;
    let tracing = context.tracing.take();
    let from_template = context
        .inbound_templates
        .as_mut()
        .and_then(|(templates, key)| templates.inbound(mesh, placement, key, tracing));
    from_template.unwrap_or_else(|| render_inbound(mesh, placement).into_iter().map(EncodedResource::new).collect())
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
    made.unwrap_or_else(|| context.previous_resources(&[TypeUrl::NameTable]))
}

/// `with_clusters`: rebuild the clusters too, not only their load assignments.
fn rebuild_service(
    context: &mut BuildContext<'_>,
    diff: &PlacementDiff<'_>,
    host: &Host,
    with_clusters: bool,
) -> ResourceUpdate {
    let [service, before] = [diff.now, diff.before].map(|placement| placement.scope.service(host));
    let mut made = service.map(|service| resources_of_service(context, diff.now, service)).unwrap_or_default();
    // A service that stays keeps its cluster names.
    if !with_clusters && service.is_some() && before.is_some() {
        made.retain(|encoded| encoded.kind == TypeUrl::Endpoints);
        return ResourceUpdate::Partial { made, covered: BTreeSet::new() };
    }
    let mut covered = BTreeSet::new();
    for (placement, service) in [(diff.now, service), (diff.before, before)] {
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
    let what = || format!("clusters and load assignments of {}", service.host);
    let suspects = || isolation::service_suspects(placement, service);
    let made = context.isolated(placement, what, suspects, |context| {
        let translated = context.resources.service_resources(context.mesh, context.client, placement, service);
        apply_cluster_patches(placement, translated)
    });
    made.unwrap_or_else(|| {
        let names = cluster_names(service, placement);
        let kinds = names.iter().flat_map(|name| [TypeUrl::Cluster, TypeUrl::Endpoints].map(|kind| (kind, name)));
        kinds.filter_map(|(kind, name)| context.previous_resource(kind, name)).collect()
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
fn name_table(mesh: &Mesh, placement: &Placement) -> Option<RenderedResource> {
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
