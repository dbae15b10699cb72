//! Classes: proxies that receive identical answers. The key holds all that translation reads of a proxy, and nothing else.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::labels::Labels;
use config::locality::Locality;

use crate::mesh::Mesh;
use crate::metadata::{Interception, Metadata};
use crate::placement::Placement;
use crate::proxy::{Extension, ProxyKind};

/// Pod name and pod address are absent: all replicas of a Deployment in a zone share a class.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    kind: ProxyKind,
    namespace: Arc<str>,
    domain: String,
    labels: Labels,
    locality: Locality,
    canonical_name: String,
    metadata: Metadata,
    families: (bool, bool),
    lacks: BTreeSet<Extension>,
    /// Service host, service port and workload port of each inbound target.
    targets: Vec<(String, u16, u16)>,
    /// Only where an answer holds it.
    own_address: Option<IpAddr>,
    /// Only where some service keeps traffic on the node.
    node: Option<String>,
}

/// Labels that differ from replica to replica and that no selector can sensibly mention.
const PER_REPLICA: [&str; 4] = [
    "pod-template-hash",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
];

impl Class {
    pub fn of(mesh: &Mesh, placement: &Placement) -> Self {
        let proxy = &placement.proxy;
        let own = placement.own_address();
        let address_shows = proxy.metadata.interception == Interception::None
            || !placement.scope.ingress.is_empty()
            || mesh.is_own_address_of_headless(own);
        Self {
            kind: proxy.kind,
            namespace: proxy.namespace.clone(),
            domain: proxy.domain.clone(),
            labels: placement
                .labels
                .iter()
                .filter(|(key, _)| !PER_REPLICA.contains(key))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            locality: placement.locality.clone(),
            canonical_name: placement.canonical_name.clone(),
            metadata: shared_metadata(&proxy.metadata),
            families: (placement.has_ipv4(), placement.has_ipv6()),
            lacks: proxy.lacks.clone(),
            targets: placement
                .targets
                .iter()
                .map(|target| (target.service.host.to_string(), target.port.number, target.number))
                .collect(),
            own_address: address_shows.then_some(own),
            node: mesh.has_node_local_services().then(|| proxy.metadata.node_name.clone()),
        }
    }
}

fn shared_metadata(metadata: &Metadata) -> Metadata {
    Metadata {
        labels: Labels::default(),
        instance_ips: Vec::new(),
        node_name: String::new(),
        workload_name: String::new(),
        ..metadata.clone()
    }
}
