//! Everything that one proxy gets, from scratch: for views that are refreshed, for `render`, and as the oracle of tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::note::ObjectId;
use model::{Mesh, Placement};
use translate::{ClusterName, Made};
use wire::any;
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType},
};
use wire::envoy::config::listener::v3::{FilterChain, Listener, filter};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use wire::google::protobuf::Any;
use xds::TypeUrl;

#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    pub kind: TypeUrl,
    pub name: Arc<str>,
    pub any: Any,
    pub made_from: BTreeSet<ObjectId>,
}

impl Rendered {
    pub(crate) fn new<M: prost::Message + prost::Name>(kind: TypeUrl, name: &str, made: Made<M>) -> Self {
        Self { kind, name: Arc::from(name), any: any::pack(&made.value), made_from: made.made_from }
    }
}

/// Clusters, their load assignments, listeners, and the routes that those name; in that order.
pub fn render(mesh: &Mesh, placement: &Placement) -> Vec<Rendered> {
    let clusters = translate::clusters(mesh, placement);
    let listeners = translate::listeners(mesh, placement);
    let endpoints: Vec<_> = clusters.iter().filter_map(|made| eds_name(&made.value)).collect();
    let routes: BTreeSet<_> = listeners.iter().flat_map(|made| route_names(&made.value)).collect();

    let mut out: Vec<_> =
        clusters.into_iter().map(|made| Rendered::new(TypeUrl::Cluster, &made.value.name.clone(), made)).collect();
    out.extend(endpoints.iter().map(|name| endpoint(mesh, placement, name)));
    out.extend(listeners.into_iter().map(|made| Rendered::new(TypeUrl::Listener, &made.value.name.clone(), made)));
    out.extend(routes.iter().map(|name| route(mesh, placement, name)));
    out
}

/// Also for a name that nobody listed: a proxy that waits for it must get an answer.
pub(crate) fn endpoint(mesh: &Mesh, placement: &Placement, name: &str) -> Rendered {
    let found = name.parse::<ClusterName>().ok().and_then(|cluster| translate::assignment(mesh, placement, &cluster));
    let made = found.unwrap_or_else(|| Made::built_in(translate::empty_assignment(name)));
    Rendered::new(TypeUrl::Endpoints, name, made)
}

pub(crate) fn route(mesh: &Mesh, placement: &Placement, name: &str) -> Rendered {
    let made = translate::route(mesh, placement, name).unwrap_or_else(|| Made::built_in(translate::empty_route(name)));
    Rendered::new(TypeUrl::Route, name, made)
}

fn eds_name(cluster: &Cluster) -> Option<String> {
    let by_eds = cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    by_eds.then(|| cluster.eds_cluster_config.as_ref().map(|eds| eds.service_name.clone())).flatten()
}

fn route_names(listener: &Listener) -> Vec<String> {
    let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
    chains
        .flat_map(|chain: &FilterChain| &chain.filters)
        .filter_map(|filter| {
            let Some(filter::ConfigType::TypedConfig(config)) = &filter.config_type else { return None };
            match any::unpack::<HttpConnectionManager>(config)?.route_specifier? {
                RouteSpecifier::Rds(rds) => Some(rds.route_config_name),
                _ => None,
            }
        })
        .collect()
}
