//! The three parts of a proxy's answers: towards others, the HTTP listeners that name the workload, and towards its own application.
//! Each knows what it reads, so that a change makes anew only what it touches.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::host::Host;
use config::kinds::envoy_filter::ApplyTo;
use model::{Destination, Mesh, Placement, Service};
use translate::{ClusterName, ClusterPatches, Made, OF_LISTENERS, OutboundListeners, Spans};
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType},
};
use wire::envoy::config::listener::v3::Listener;
use xds::TypeUrl;

use crate::compared::Compared;
use crate::ground::sidecar;
use crate::layer::{Changed, Layer, Making, Part, Remade, Ware};
use crate::patched::patched;
use crate::rendered::{self, Rendered};
use crate::{router, routes};

/// Clusters, load assignments, routes, and listeners that do not name the workload.
pub(crate) struct Outbound;

/// Outbound HTTP listeners.
pub(crate) struct Listeners;

/// Clusters and listeners of the workload's own ports.
pub(crate) struct Inbound;

/// All that goes towards others, from scratch.
pub(crate) fn outbound(mesh: &Mesh, placement: &Placement) -> Vec<Rendered> {
    let mut out: Vec<_> = translate::built_in_clusters(mesh, placement).into_iter().map(cluster).collect();
    let patches = ClusterPatches::outbound(&placement.patches.outbound);
    for service in &placement.scope.services {
        let (clusters, endpoints) = of_service(mesh, placement, service);
        out.extend(clusters.into_iter().filter_map(|made| patches.patched(made)).map(cluster));
        out.extend(endpoints);
    }
    let OutboundListeners { http, rest } = translate::outbound_listeners(mesh, placement);
    out.extend(rest.into_iter().chain(http.listeners(mesh, placement)).map(listener));
    out.extend(http.routes.iter().map(|name| rendered::route(mesh, placement, name)));
    out.extend(name_table(mesh, placement));
    out
}

/// All that arrives, from scratch.
pub(crate) fn inbound(mesh: &Mesh, placement: &Placement) -> Vec<Rendered> {
    let mut out: Vec<_> = translate::inbound_clusters(mesh, placement).into_iter().map(cluster).collect();
    out.extend(translate::inbound_listeners(mesh, placement).into_iter().map(listener));
    out.extend(extensions(placement));
    out
}

impl Part for Outbound {
    const TYPES: &'static [TypeUrl] =
        &[TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::NameTable];

    fn make(making: &mut Making<'_>, placement: &Placement) -> Vec<Ware> {
        let mesh = making.mesh;
        // Made from scratch nothing is kept: what all listeners have alike may be different.
        making.http = Arc::default();
        let mut out = towards_services(making, placement);
        out.extend(listen(making, placement, &Layer::default()));
        out.extend(making.http.routes.iter().map(|name| Ware::new(rendered::route(mesh, placement, name))));
        out.extend(name_table(mesh, placement).map(Ware::new));
        out
    }

    fn remake(making: &mut Making<'_>, changed: &Changed<'_>, held: &Layer) -> Vec<Remade> {
        making.http = held.http.clone();
        let (delta, placement) = (changed.delta, changed.now);
        let found = if delta.everything { None } else { Compared::new(placement, changed.before) };
        let Some(found) = found else {
            return vec![Remade::All { made: Self::make(making, placement), types: Self::TYPES }];
        };
        let hosts = found.hosts(delta);
        let mut remade: Vec<_> = hosts.iter().map(|(host, deep)| service_remade(making, &found, host, *deep)).collect();
        let (set, before) = (&placement.patches.outbound, &changed.before.patches.outbound);
        let patched = set.has(&[ApplyTo::Cluster]) && hosts.iter().any(|(_, deep)| *deep);
        // A patch may rename clusters, and add some whose name is free.
        if patched || !set.agrees(before, &[ApplyTo::Cluster]) {
            let mut made = towards_services(making, placement);
            made.retain(|ware| ware.kind == TypeUrl::Cluster);
            remade.push(Remade::All { made, types: &[TypeUrl::Cluster] });
        }
        if placement.is_router() {
            remade.extend(router::remade(making, changed, &found, held));
            return remade;
        }
        let names = !found.services.is_empty() || found.touches_headless(delta);
        if names || found.touches_bytes() || !set.agrees(before, OF_LISTENERS) {
            remade.push(Remade::All { made: listen(making, placement, held), types: &[TypeUrl::Listener] });
        }
        if names {
            let made = name_table(making.mesh, placement).map(Ware::new).into_iter().collect();
            remade.push(Remade::All { made, types: &[TypeUrl::NameTable] });
        }
        remade.extend(routes::remade(making, &found, held));
        remade
    }
}

impl Part for Listeners {
    const TYPES: &'static [TypeUrl] = &[TypeUrl::Listener];

    fn make(making: &mut Making<'_>, placement: &Placement) -> Vec<Ware> {
        let Making { mesh, http, .. } = making;
        let spans = Spans::towards_others(mesh, placement);
        let made = match http.cast(mesh, placement, &spans) {
            Some(cast) => cast.iter().map(|(name, made)| Ware::cast(name, made)).collect(),
            None => http.listeners(mesh, placement).into_iter().map(listener).map(Ware::new).collect(),
        };
        making.spans = Some(spans);
        made
    }

    fn remake(making: &mut Making<'_>, changed: &Changed<'_>, held: &Layer) -> Vec<Remade> {
        // A router's listeners hold its policies; a sidecar's are not for those who come in.
        let guarded = changed.now.is_router() && changed.now.policies != changed.before.policies;
        let patched = !changed.now.patches.outbound.agrees(&changed.before.patches.outbound, OF_LISTENERS);
        if !changed.delta.everything && !guarded && !patched && Arc::ptr_eq(&making.http, &held.http) {
            return Vec::new();
        }
        vec![Remade::All { made: Self::make(making, changed.now), types: Self::TYPES }]
    }
}

impl Part for Inbound {
    const TYPES: &'static [TypeUrl] = &[TypeUrl::Cluster, TypeUrl::Listener, TypeUrl::Extension];

    fn make(making: &mut Making<'_>, placement: &Placement) -> Vec<Ware> {
        let mesh = making.mesh;
        let spans = making.spans.take();
        let moulded = making.moulds.as_mut().and_then(|(moulds, key)| moulds.inbound(mesh, placement, key, spans));
        moulded.unwrap_or_else(|| inbound(mesh, placement).into_iter().map(Ware::new).collect())
    }

    fn remake(making: &mut Making<'_>, changed: &Changed<'_>, held: &Layer) -> Vec<Remade> {
        making.http = held.http.clone();
        let Changed { delta, before, now } = changed;
        // Targets hold the services that send to this workload; equal ones with equal rules make equal chains.
        // Only what plugins run, else their listeners would be under another key.
        let mut remade = Vec::new();
        if !now.plugins.is_same(&before.plugins) {
            let made = extensions(now).map(Ware::new).collect();
            remade.push(Remade::All { made, types: &[TypeUrl::Extension] });
        }
        let same = now.targets == before.targets
            && now.policies == before.policies
            && now.patches.is_same_inbound(&before.patches)
            && now.patches.extensions == before.patches.extensions
            && (in_memory(now).eq(in_memory(before)) || rules(now).eq(rules(before)))
            && sidecar(&now.scope) == sidecar(&before.scope);
        if !delta.everything && same {
            return remade;
        }
        vec![Remade::All { made: Self::make(making, now), types: Self::TYPES }]
    }
}

/// Rules for the clients of the workload's own services hold on its side too.
fn rules(placement: &Placement) -> impl Iterator<Item = Option<&Arc<Destination>>> {
    placement.targets.iter().map(|target| placement.inbound_destination(&target.service.host))
}

/// Rules are long to compare.
fn in_memory(placement: &Placement) -> impl Iterator<Item = Option<*const Destination>> {
    rules(placement).map(|rule| rule.map(Arc::as_ptr))
}

/// Listeners that do not know the workload. What the others are made from is kept where it makes the same.
pub(crate) fn listen(making: &mut Making<'_>, placement: &Placement, held: &Layer) -> Vec<Ware> {
    let OutboundListeners { http, rest } = translate::outbound_listeners(making.mesh, placement);
    if !http.makes_the_same(&making.http) {
        making.http = Arc::new(http);
    }
    rest.into_iter().map(|made| Ware::kept(listener(made), held)).collect()
}

/// `deep`: its clusters too, not only their endpoints.
fn service_remade(making: &mut Making<'_>, found: &Compared<'_>, host: &Host, deep: bool) -> Remade {
    let [service, before] = [found.now, found.before].map(|placement| placement.scope.service(host));
    let mut made = service.map(|service| towards(making, found.now, service)).unwrap_or_default();
    // A service that stays what it is has the names that it had.
    if !deep && service.is_some() && before.is_some() {
        made.retain(|ware| ware.kind == TypeUrl::Endpoints);
        return Remade::Some { made, asked: BTreeSet::new() };
    }
    let mut asked = BTreeSet::new();
    for (placement, service) in [(found.now, service), (found.before, before)] {
        for cluster in service.into_iter().flat_map(|service| cluster_names(service, placement)) {
            asked.insert((TypeUrl::Endpoints, cluster.clone()));
            asked.insert((TypeUrl::Cluster, cluster));
        }
    }
    Remade::Some { made, asked }
}

/// Of the whole service and of its subsets, on every port.
fn cluster_names(service: &Service, placement: &Placement) -> Vec<Arc<str>> {
    let rule = placement.destination(&service.host);
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

/// Clusters and load assignments, as this class has them.
fn towards_services(making: &mut Making<'_>, placement: &Placement) -> Vec<Ware> {
    let built_in = translate::built_in_clusters(making.mesh, placement).into_iter().map(cluster);
    let mut out: Vec<_> = built_in.map(Ware::new).collect();
    for service in &placement.scope.services {
        out.extend(towards(making, placement, service));
    }
    out
}

fn towards(making: &mut Making<'_>, placement: &Placement, service: &Arc<Service>) -> Vec<Ware> {
    patched(placement, making.stock.of_service(making.mesh, making.client, placement, service))
}

/// A service's clusters before they are patched, and the load assignments of those that have one.
pub(crate) fn of_service(mesh: &Mesh, placement: &Placement, service: &Service) -> (Vec<Made<Cluster>>, Vec<Rendered>) {
    let mut clusters =
        if placement.reaches(service) { translate::service_clusters(mesh, placement, service) } else { Vec::new() };
    clusters.extend(translate::sni_clusters(mesh, placement, service));
    let endpoints: Vec<_> = clusters.iter().filter_map(|made| eds_name(&made.value)).collect();
    let assignments = endpoints.iter().map(|name| rendered::endpoint(mesh, placement, name));
    let assignments = assignments.collect();
    (clusters, assignments)
}

/// For proxies that answer DNS.
fn name_table(mesh: &Mesh, placement: &Placement) -> Option<Rendered> {
    let answers = placement.proxy.metadata.dns_capture;
    answers.then(|| Rendered::new(TypeUrl::NameTable, "", translate::name_table(mesh, placement)))
}

pub(crate) fn cluster(made: Made<Cluster>) -> Rendered {
    Rendered::new(TypeUrl::Cluster, &made.value.name.clone(), made)
}

fn listener(made: Made<Listener>) -> Rendered {
    Rendered::new(TypeUrl::Listener, &made.value.name.clone(), made)
}

/// What filters ask for by name.
pub(crate) fn extensions(placement: &Placement) -> impl Iterator<Item = Rendered> {
    let made = translate::extension_configs(placement).into_iter();
    made.map(|made| Rendered::new(TypeUrl::Extension, &made.value.name.clone(), made))
}

fn eds_name(cluster: &Cluster) -> Option<String> {
    let by_eds = cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    by_eds.then(|| cluster.eds_cluster_config.as_ref().map(|eds| eds.service_name.clone())).flatten()
}
