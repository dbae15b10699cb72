//! Load assignments: the ready endpoints of a service port, by locality.

use std::collections::BTreeMap;

use config::locality::Locality;
use model::{Endpoint, Health, Mesh, MtlsMode, Placement, Service, Workload};
use wire::envoy::config::core::v3::{self as core, HealthStatus, Metadata};
use wire::envoy::config::endpoint::v3::{
    self as envoy, ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};

use crate::address;
use crate::made::Made;
use crate::names::ClusterName;
use crate::proto::{structure, text, uint32};

/// `None`: the proxy imports no such service port; answer with an empty assignment so that the cluster does not wait.
pub fn assignment(mesh: &Mesh, placement: &Placement, name: &ClusterName) -> Option<Made<ClusterLoadAssignment>> {
    let ClusterName::Outbound { port, host, .. } = name else { return None };
    let service = placement.scope.service(host)?;
    let port = service.port(*port)?;
    let usable =
        mesh.endpoints(service).port(&port.name).iter().filter(|endpoint| usable(endpoint, service, placement));
    let mut by_locality: BTreeMap<&Locality, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in usable {
        by_locality.entry(&endpoint.workload.locality).or_default().push(endpoint);
    }
    let endpoints = by_locality.into_iter().map(|(place, endpoints)| group(mesh, service, place, &endpoints)).collect();
    let assignment =
        ClusterLoadAssignment { cluster_name: name.to_string(), endpoints, ..ClusterLoadAssignment::default() };
    Some(Made::new(assignment, [service.made_from.clone()]))
}

pub fn empty_assignment(name: &str) -> ClusterLoadAssignment {
    ClusterLoadAssignment { cluster_name: name.to_owned(), ..ClusterLoadAssignment::default() }
}

fn usable(endpoint: &Endpoint, service: &Service, placement: &Placement) -> bool {
    endpoint.health == Health::Ready
        && (!service.node_local || endpoint.workload.node == placement.proxy.metadata.node_name)
        && reachable(endpoint, placement)
}

/// A proxy of one address family cannot dial the other.
fn reachable(endpoint: &Endpoint, placement: &Placement) -> bool {
    if endpoint.address.is_ipv4() { placement.has_ipv4() } else { placement.has_ipv6() }
}

fn group(mesh: &Mesh, service: &Service, place: &Locality, endpoints: &[&Endpoint]) -> LocalityLbEndpoints {
    let members: Vec<_> = endpoints.iter().map(|endpoint| lb_endpoint(mesh, service, endpoint)).collect();
    LocalityLbEndpoints {
        locality: Some(core::Locality {
            region: place.region.to_string(),
            zone: place.zone.to_string(),
            sub_zone: place.subzone.to_string(),
        }),
        load_balancing_weight: Some(uint32(u32::try_from(members.len()).unwrap_or(u32::MAX))),
        lb_endpoints: members,
        ..LocalityLbEndpoints::default()
    }
}

fn lb_endpoint(mesh: &Mesh, service: &Service, endpoint: &Endpoint) -> LbEndpoint {
    let host = envoy::Endpoint {
        address: Some(address::socket(&endpoint.address.to_string(), endpoint.port)),
        ..envoy::Endpoint::default()
    };
    LbEndpoint {
        host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(host)),
        health_status: HealthStatus::Healthy.into(),
        load_balancing_weight: Some(uint32(1)),
        metadata: Some(endpoint_metadata(mesh, service, endpoint)),
    }
}

fn endpoint_metadata(mesh: &Mesh, service: &Service, endpoint: &Endpoint) -> Metadata {
    let workload = &endpoint.workload;
    let mut sections = BTreeMap::from([(
        "istio".to_owned(),
        structure([("workload", text(&workload_text(workload, &mesh.env.cluster_id)))]),
    )]);
    if workload.mtls && accepts_mtls(mesh, service, endpoint) {
        sections.insert("envoy.transport_socket_match".into(), structure([("tlsMode", text("istio"))]));
    }
    Metadata { filter_metadata: sections, ..Metadata::default() }
}

/// A workload or port that declines mutual TLS is dialled in plain text.
fn accepts_mtls(mesh: &Mesh, service: &Service, endpoint: &Endpoint) -> bool {
    mesh.port_modes(&service.namespace, &endpoint.workload.labels).of(endpoint.port) != MtlsMode::Disable
}

/// `workload;namespace;canonical name;canonical revision;cluster`, the revision empty when it is the default.
fn workload_text(workload: &Workload, cluster: &str) -> String {
    let revision = if workload.canonical_revision == "latest" { "" } else { &workload.canonical_revision };
    format!("{};{};{};{revision};{cluster}", workload.name, workload.namespace, workload.canonical_name)
}
