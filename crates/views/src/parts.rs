//! The three parts of a proxy's answers: towards others, the HTTP listeners that name the workload, and towards its own application.
//! Each knows what it reads, so that a change makes anew only what it touches.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::store::Name;
use model::{Delta, Destination, Mesh, Placement, Service};
use translate::{ClusterName, Made};
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType},
};
use wire::envoy::config::listener::v3::Listener;
use xds::TypeUrl;

use crate::layer::{Part, Remade};
use crate::rendered::{self, Rendered};

/// Clusters, load assignments, routes, and listeners that do not name the workload.
pub(crate) struct Outbound;

/// Outbound HTTP listeners.
pub(crate) struct Listeners;

/// Clusters and listeners of the workload's own ports.
pub(crate) struct Inbound;

impl Part for Outbound {
    const TYPES: &'static [TypeUrl] =
        &[TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::NameTable];

    fn make(mesh: &Mesh, placement: &Placement) -> Vec<Rendered> {
        let mut out: Vec<_> = translate::built_in_clusters(mesh, placement).into_iter().map(cluster).collect();
        for service in &placement.scope.services {
            out.extend(of_service(mesh, placement, service));
        }
        let listeners = translate::outbound_listeners(mesh, placement);
        out.extend(listeners.rest.into_iter().map(listener));
        out.extend(listeners.routes.iter().map(|name| rendered::route(mesh, placement, name)));
        out.extend(name_table(mesh, placement));
        out
    }

    fn remake(mesh: &Mesh, placement: &Placement, delta: &Delta, old: &Placement) -> Vec<Remade> {
        if delta.everything {
            return vec![Remade::All { made: Self::make(mesh, placement), types: Self::TYPES }];
        }
        let mut remade = Vec::new();
        for name in delta.endpoints.keys().chain(delta.services.keys()).collect::<BTreeSet<_>>() {
            remade.push(service_remade(mesh, placement, delta, old, name));
        }
        if services_changed(placement, old) || touches_headless(placement, old, delta) {
            remade.push(listeners_remade(mesh, placement));
            let made = name_table(mesh, placement).into_iter().collect();
            remade.push(Remade::All { made, types: &[TypeUrl::NameTable] });
        }
        if services_changed(placement, old) {
            remade.push(routes_remade(mesh, placement, delta, old));
        }
        remade
    }
}

impl Part for Listeners {
    const TYPES: &'static [TypeUrl] = &[TypeUrl::Listener];

    fn make(mesh: &Mesh, placement: &Placement) -> Vec<Rendered> {
        translate::outbound_listeners(mesh, placement).http.into_iter().map(listener).collect()
    }

    fn remake(mesh: &Mesh, placement: &Placement, delta: &Delta, old: &Placement) -> Vec<Remade> {
        let reads = delta.everything || services_changed(placement, old) || touches_headless(placement, old, delta);
        if !reads {
            return vec![Remade::Nothing];
        }
        vec![Remade::All { made: Self::make(mesh, placement), types: Self::TYPES }]
    }
}

impl Part for Inbound {
    const TYPES: &'static [TypeUrl] = &[TypeUrl::Cluster, TypeUrl::Listener];

    fn make(mesh: &Mesh, placement: &Placement) -> Vec<Rendered> {
        let mut out: Vec<_> = translate::inbound_clusters(mesh, placement).into_iter().map(cluster).collect();
        out.extend(translate::inbound_listeners(mesh, placement).into_iter().map(listener));
        out
    }

    fn remake(mesh: &Mesh, placement: &Placement, delta: &Delta, old: &Placement) -> Vec<Remade> {
        // Targets hold the services that send to this workload; equal ones with equal rules make equal chains.
        if !delta.everything && placement.targets == old.targets && rules(placement).eq(rules(old)) {
            return vec![Remade::Nothing];
        }
        vec![Remade::All { made: Self::make(mesh, placement), types: Self::TYPES }]
    }
}

/// Rules for the clients of the workload's own services hold on its side too.
fn rules(placement: &Placement) -> impl Iterator<Item = Option<&Arc<Destination>>> {
    placement.targets.iter().map(|target| placement.inbound_destination(&target.service.host))
}

/// The set of imported services is kept as it is when none of them changed.
fn services_changed(placement: &Placement, old: &Placement) -> bool {
    !Arc::ptr_eq(&placement.scope, &old.scope)
}

/// Bytes for a headless service have a listener for each of its endpoints.
fn touches_headless(placement: &Placement, old: &Placement, delta: &Delta) -> bool {
    let headless = |place: &Placement, name: &Name| imported(place, name).is_some_and(|service| service.is_headless());
    delta.endpoints.keys().any(|name| headless(placement, name) || headless(old, name))
}

fn imported<'a>(placement: &'a Placement, name: &Name) -> Option<&'a Arc<Service>> {
    let host = config::host::Host::new(&name.name);
    placement.scope.service(&host).filter(|service| service.namespace == name.namespace)
}

fn service_remade(mesh: &Mesh, placement: &Placement, delta: &Delta, old: &Placement, name: &Name) -> Remade {
    let (now, before) = (imported(placement, name), imported(old, name));
    let deep = delta.services.contains_key(name) || delta.endpoints.get(name).is_some_and(|deep| *deep);
    // A cluster that holds its endpoints changes with them.
    let deep = deep || [now, before].into_iter().flatten().any(|service| service.is_resolved_by_name());
    let mut asked = BTreeSet::new();
    for cluster in
        [(now, placement), (before, old)].into_iter().flat_map(|(service, place)| cluster_names(service, place))
    {
        asked.insert((TypeUrl::Endpoints, cluster.clone()));
        if deep {
            asked.insert((TypeUrl::Cluster, cluster));
        }
    }
    let mut made = now.map(|service| of_service(mesh, placement, service)).unwrap_or_default();
    made.retain(|resource| deep || resource.kind == TypeUrl::Endpoints);
    if asked.is_empty() { Remade::Nothing } else { Remade::Some { made, asked } }
}

/// Of the whole service and of its subsets, on every port.
fn cluster_names(service: Option<&Arc<Service>>, placement: &Placement) -> Vec<Arc<str>> {
    let Some(service) = service else { return Vec::new() };
    let rule = placement.destination(&service.host);
    let subsets = rule.map(|rule| rule.subsets.as_slice()).unwrap_or_default();
    let named = |port: u16| {
        let names = std::iter::once("").chain(subsets.iter().map(|subset| subset.name.as_str()));
        names.map(move |subset| ClusterName::Outbound { port, subset: subset.to_owned(), host: service.host.clone() })
    };
    service.ports.iter().flat_map(|port| named(port.number)).map(|name| Arc::from(name.to_string())).collect()
}

fn listeners_remade(mesh: &Mesh, placement: &Placement) -> Remade {
    let made = translate::outbound_listeners(mesh, placement).rest.into_iter().map(listener).collect();
    Remade::All { made, types: &[TypeUrl::Listener] }
}

/// Routes of the ports that a changed service has or had; names that no listener asks for any more go.
fn routes_remade(mesh: &Mesh, placement: &Placement, delta: &Delta, old: &Placement) -> Remade {
    let wanted = translate::outbound_listeners(mesh, placement).routes;
    let mut asked: BTreeSet<_> = translate::outbound_listeners(mesh, old)
        .routes
        .difference(&wanted)
        .map(|name| (TypeUrl::Route, Arc::from(name.as_str())))
        .collect();
    let sides = delta.services.values().flat_map(|change| [&change.old, &change.new]).flatten();
    let touched: BTreeSet<String> = sides
        .flat_map(|service| {
            service.ports.iter().flat_map(|port| [port.number.to_string(), format!("{}:{}", service.host, port.number)])
        })
        .collect();
    let reads = |name: &&String| touched.contains(*name) || translate::serves_all_ports(placement, name);
    let made: Vec<_> = wanted.iter().filter(reads).map(|name| rendered::route(mesh, placement, name)).collect();
    asked.extend(made.iter().map(|route| (TypeUrl::Route, route.name.clone())));
    if asked.is_empty() { Remade::Nothing } else { Remade::Some { made, asked } }
}

/// A service's clusters and the load assignments of those that have one.
fn of_service(mesh: &Mesh, placement: &Placement, service: &Service) -> Vec<Rendered> {
    let clusters = translate::service_clusters(mesh, placement, service);
    let endpoints: Vec<_> = clusters.iter().filter_map(|made| eds_name(&made.value)).collect();
    let assignments = endpoints.iter().map(|name| rendered::endpoint(mesh, placement, name));
    let assignments: Vec<_> = assignments.collect();
    clusters.into_iter().map(cluster).chain(assignments).collect()
}

/// For proxies that answer DNS.
fn name_table(mesh: &Mesh, placement: &Placement) -> Option<Rendered> {
    let answers = placement.proxy.metadata.dns_capture;
    answers.then(|| Rendered::new(TypeUrl::NameTable, "", translate::name_table(mesh, placement)))
}

fn cluster(made: Made<Cluster>) -> Rendered {
    Rendered::new(TypeUrl::Cluster, &made.value.name.clone(), made)
}

fn listener(made: Made<Listener>) -> Rendered {
    Rendered::new(TypeUrl::Listener, &made.value.name.clone(), made)
}

fn eds_name(cluster: &Cluster) -> Option<String> {
    let by_eds = cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    by_eds.then(|| cluster.eds_cluster_config.as_ref().map(|eds| eds.service_name.clone())).flatten()
}
