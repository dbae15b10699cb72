//! Clusters towards the proxy's own application: one per workload port.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use config::mesh::InboundTrafficMode;
use model::{InboundTarget, IngressListener, Mesh, Placement, Protocol};
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, CommonLbConfig, DiscoveryType, LbPolicy},
};
use wire::envoy::config::core::v3::Address;
use wire::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use wire::google::protobuf::Duration;

use super::{protocol, settings};
use crate::address;
use crate::made::Made;
use crate::names::{ClusterName, stat_name};
use crate::stat_pattern::{self, Named};

/// Longest time that Envoy takes: hosts of an original-destination cluster are never swept.
const NEVER: Duration = Duration { seconds: 9_223_372_035, nanos: 0 };

pub(super) fn clusters(mesh: &Mesh, placement: &Placement) -> Vec<Made<Cluster>> {
    if !placement.scope.ingress.is_empty() {
        return placement.scope.ingress.iter().map(|listener| of_ingress(mesh, placement, listener)).collect();
    }
    // Without redirection nothing arrives on the services' ports.
    if placement.binds_ports() {
        return Vec::new();
    }
    let mut by_port: BTreeMap<u16, Vec<&InboundTarget>> = BTreeMap::new();
    for target in &placement.targets {
        by_port.entry(target.number).or_default().push(target);
    }
    by_port.into_values().map(|targets| of_targets(mesh, placement, &targets)).collect()
}

/// The oldest service of a port decides; those with the same service port are named beside it.
fn of_targets(mesh: &Mesh, placement: &Placement, targets: &[&InboundTarget]) -> Made<Cluster> {
    let first = targets[0];
    let alike =
        || targets.iter().filter(|target| target.port.number == first.port.number).map(|target| &*target.service);
    let mut cluster = base(mesh, placement, first.number, first.port.protocol);
    cluster.metadata = Some(settings::service_metadata(alike()));
    let named = Named::port(&first.service, &first.port, Some(first.number));
    if let Some(stat) = stat_pattern::filled(&mesh.config.inbound_cluster_stat_name, &named) {
        cluster.alt_stat_name = stat_name(&stat);
    }
    if mesh.config.inbound_traffic_policy.mode == InboundTrafficMode::Localhost {
        to_address(&mut cluster, address::socket(placement.loopback(), first.number));
    } else {
        to_original(&mut cluster, placement);
    }
    Made::new(cluster, targets.iter().map(|target| target.service.made_from.clone()))
}

fn of_ingress(mesh: &Mesh, placement: &Placement, listener: &IngressListener) -> Made<Cluster> {
    let number = listener.port.number;
    let services: Vec<_> = placement.targets.iter().filter(|target| target.number == number).collect();
    let mut cluster = base(mesh, placement, number, listener.port.protocol);
    if let Some(first) = services.first() {
        let alike = services.iter().filter(|target| target.port.number == first.port.number);
        cluster.metadata = Some(settings::service_metadata(alike.map(|target| &*target.service)));
    }
    match listener.default_endpoint.as_deref().and_then(|text| Destination::parse(text, placement)) {
        None => to_original(&mut cluster, placement),
        Some(Destination::Loopback(address)) => to_address(&mut cluster, address),
        Some(Destination::Elsewhere(address)) => {
            to_address(&mut cluster, address);
            cluster.upstream_bind_config = Some(settings::inbound_source(placement));
        }
    }
    Made::new(
        cluster,
        placement.scope.sidecar_id().into_iter().chain(services.iter().map(|target| target.service.made_from.clone())),
    )
}

fn base(mesh: &Mesh, placement: &Placement, number: u16, protocol: Protocol) -> Cluster {
    Cluster {
        common_lb_config: Some(CommonLbConfig::default()),
        typed_extension_protocol_options: protocol::options(placement, protocol),
        ..settings::base(mesh, ClusterName::Inbound { port: number }.to_string())
    }
}

/// The application sees the address that the client dialled.
fn to_original(cluster: &mut Cluster, placement: &Placement) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
    cluster.lb_policy = LbPolicy::ClusterProvided.into();
    cluster.cleanup_interval = Some(NEVER);
    cluster.upstream_bind_config = Some(settings::inbound_source(placement));
}

fn to_address(cluster: &mut Cluster, address: Address) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into()));
    let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
    let endpoint =
        LbEndpoint { host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() };
    cluster.load_assignment = Some(ClusterLoadAssignment {
        cluster_name: cluster.name.clone(),
        endpoints: vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() }],
        ..ClusterLoadAssignment::default()
    });
}

/// Where a Sidecar sends what arrives: `127.0.0.1:port`, `0.0.0.0:port` (the proxy's own address), `unix://path`.
enum Destination {
    Loopback(Address),
    Elsewhere(Address),
}

impl Destination {
    fn parse(text: &str, placement: &Placement) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Some(Self::Elsewhere(address::pipe(path)));
        }
        let socket: SocketAddr = text.parse().ok()?;
        Some(if socket.ip().is_unspecified() {
            Self::Elsewhere(address::socket(&placement.own_address().to_string(), socket.port()))
        } else if socket.ip().is_loopback() {
            Self::Loopback(address::socket(&socket.ip().to_string(), socket.port()))
        } else {
            Self::Elsewhere(address::socket(&socket.ip().to_string(), socket.port()))
        })
    }
}
