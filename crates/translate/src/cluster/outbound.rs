//! The cluster of one imported service port.

use model::{Mesh, MtlsMode, Placement, Port, Protocol, Service};
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy, TransportSocketMatch},
};
use wire::google::protobuf::Struct;

use super::{protocol, settings};
use crate::listener::source;
use crate::made::Made;
use crate::names::{ClusterName, stat_name};
use crate::proto::{structure, text};
use crate::stat_pattern::{self, Named};
use crate::tls;

pub(super) fn cluster(mesh: &Mesh, placement: &Placement, service: &Service, port: &Port) -> Made<Cluster> {
    let name = ClusterName::outbound(port.number, &service.host);
    let mut cluster = Cluster {
        common_lb_config: Some(CommonLbConfig::default()),
        filters: settings::peer_filters(placement),
        metadata: Some(settings::service_metadata(std::iter::once(service))),
        typed_extension_protocol_options: protocol::options(placement, port.protocol),
        ..settings::base(mesh, name.to_string())
    };
    if let Some(stat) =
        stat_pattern::filled(&mesh.config.outbound_cluster_stat_name, &Named::port(service, port, Some(0)))
    {
        cluster.alt_stat_name = stat_name(&stat);
    }
    // A headless service's endpoint is the address that the application chose; a router chooses itself.
    let original = service.is_headless() && !placement.is_router();
    if original {
        cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
        cluster.lb_policy = LbPolicy::ClusterProvided.into();
    } else {
        cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
        cluster.lb_policy = LbPolicy::LeastRequest.into();
        cluster.eds_cluster_config =
            Some(EdsClusterConfig { eds_config: Some(source::ads()), service_name: name.to_string() });
    }
    if takes_mtls(mesh, service, port) {
        let socket = tls::upstream(name.sni(), &mesh.identities(service), alpn(port.protocol));
        if original {
            cluster.transport_socket = Some(socket);
        } else {
            cluster.transport_socket_matches = vec![
                TransportSocketMatch {
                    name: "tlsMode-istio".into(),
                    r#match: Some(structure([("tlsMode", text("istio"))])),
                    transport_socket: Some(socket),
                },
                TransportSocketMatch {
                    name: "tlsMode-disabled".into(),
                    r#match: Some(Struct::default()),
                    transport_socket: Some(tls::plaintext()),
                },
            ];
        }
    }
    Made::new(cluster, [service.made_from.clone()])
}

/// Automatic mutual TLS. Where endpoints cannot be told apart (headless), all of them must be able to.
fn takes_mtls(mesh: &Mesh, service: &Service, port: &Port) -> bool {
    if !mesh.config.enable_auto_mtls || mesh.namespace_mtls(&service.namespace) == MtlsMode::Disable {
        return false;
    }
    let endpoints = mesh.endpoints(service).port(&port.name);
    !service.is_headless() || (!endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.workload.mtls))
}

fn alpn(protocol: Protocol) -> &'static [&'static str] {
    if protocol.is_http2() { &["istio-peer-exchange", "istio", "h2"] } else { &["istio-peer-exchange", "istio"] }
}
