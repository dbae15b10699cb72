//! Networks: the network of an endpoint, and the gateways into each network. Translation decides how a client uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use config::kinds::service::{LoadBalancerAddress, ServiceSpec, ServiceType};
use config::labels::Labels;
use config::locality::Locality;
use config::mesh::{MeshNetworks, NetworkEndpoints, NetworkGatewayAddress};
use config::meta::Object;
use config::store::{Name, Snapshot};
use ipnet::IpNet;

use crate::environment::Environment;
use crate::service::kubernetes_host;
use crate::workload::{self, NETWORK};

/// The default port of a network gateway Service.
const GATEWAY_PORT: u16 = 15443;
const GATEWAY_PORT_LABEL: &str = "networking.istio.io/gatewayPort";
/// HBONE: a gateway Service with this port alone serves ambient clients, not sidecars.
const TUNNEL_PORT: u16 = 15008;

/// A gateway into a network, for mutual TLS with the destination in the SNI.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NetworkGateway {
    pub network: Arc<str>,
    /// Empty: from MeshNetworks, which does not tell the cluster.
    pub cluster: Arc<str>,
    pub address: GatewayAddress,
    /// `None`: only for HBONE, which nobody uses here; it still counts when weights are split.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GatewayAddress {
    Ip(IpAddr),
    /// A host name, which needs DNS resolution.
    Name(Arc<str>),
}

impl GatewayAddress {
    fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(Arc::from(text)), Self::Ip)
    }

    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Name(_) => None,
        }
    }
}

impl fmt::Display for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl NetworkGateway {
    /// Labels of its network and cluster.
    pub fn topology_labels(&self) -> Labels {
        workload::topology_labels(&Labels::default(), &Locality::default(), &self.cluster, "", &self.network)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Networks {
    /// The network of pods without a label: the label of the control plane's namespace.
    own: Arc<str>,
    /// The network of all endpoints of this registry (`fromRegistry`).
    registry: Option<Arc<str>>,
    /// Wide ranges first.
    ranges: Vec<(IpNet, Arc<str>)>,
    /// Gateways with an IP address.
    pub gateways: NetworkGateways,
    /// Also those with a host name, for DNS clusters.
    pub gateways_with_hostnames: NetworkGateways,
}

/// The gateways of all networks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkGateways {
    /// In the order of the load assignment.
    by_network: BTreeMap<Arc<str>, Vec<NetworkGateway>>,
    /// A common multiple: weights times this can be split evenly among the gateways of any network.
    scale: u32,
}

impl Networks {
    pub(crate) fn new(snapshot: &Snapshot, env: &Environment) -> Self {
        let namespace = snapshot.namespaces.get(&Name::new("", &env.pod_namespace));
        let mut networks = Self {
            own: namespace.and_then(|object| object.meta.labels.get(NETWORK)).unwrap_or_default().into(),
            ..Self::default()
        };
        let mut named: BTreeMap<&str, Vec<(Arc<str>, u16)>> = BTreeMap::new();
        let mut gateways = Vec::new();
        for (name, network) in &snapshot.networks.networks {
            let name: Arc<str> = Arc::from(name.as_str());
            let mut whole = false;
            for endpoints in &network.endpoints {
                match endpoints {
                    NetworkEndpoints::FromCidr(text) => {
                        networks.ranges.extend(text.parse().ok().map(|range| (range, name.clone())));
                    }
                    NetworkEndpoints::FromRegistry(cluster) => whole |= *cluster == env.cluster_id,
                    NetworkEndpoints::Unset => {}
                }
            }
            if whole {
                networks.registry.get_or_insert_with(|| name.clone());
            }
            for gateway in &network.gateways {
                let port = u16::try_from(gateway.port).ok();
                match &gateway.address {
                    Some(NetworkGatewayAddress::Address(text)) => {
                        let address = GatewayAddress::parse(text);
                        gateways.push(NetworkGateway { network: name.clone(), cluster: Arc::from(""), address, port });
                    }
                    Some(NetworkGatewayAddress::RegistryServiceName(host)) if whole => {
                        named.entry(host).or_default().extend(port.map(|port| (name.clone(), port)));
                    }
                    _ => {}
                }
            }
        }
        networks.ranges.sort_by_key(|(range, _)| range.prefix_len());
        for object in snapshot.services.values() {
            gateways.extend(gateways_of(object, &named, env));
        }
        let placed = gateways.iter().filter(|gateway| gateway.address.ip().is_some());
        networks.gateways = NetworkGateways::new(placed.cloned().collect());
        networks.gateways_with_hostnames = NetworkGateways::new(gateways);
        networks
    }

    /// Empty: in no configured network.
    pub(crate) fn of(&self, address: Option<IpAddr>, labels: &Labels) -> Arc<str> {
        if let Some(network) = labels.get(NETWORK).filter(|network| !network.is_empty()) {
            return Arc::from(network);
        }
        if !self.own.is_empty() {
            return self.own.clone();
        }
        if let Some(network) = &self.registry {
            return network.clone();
        }
        let within = |range: &IpNet| address.is_some_and(|address| range.contains(&address));
        let found = self.ranges.iter().find(|(range, _)| within(range));
        found.map(|(_, network)| network.clone()).unwrap_or_default()
    }

    /// The ranges of all networks.
    pub fn ranges(&self) -> impl Iterator<Item = &IpNet> {
        self.ranges.iter().map(|(range, _)| range)
    }
}

impl NetworkGateways {
    fn new(gateways: Vec<NetworkGateway>) -> Self {
        let mut all = Self { by_network: BTreeMap::new(), scale: 1 };
        for gateway in gateways {
            let here = all.by_network.entry(gateway.network.clone()).or_default();
            if !here.contains(&gateway) {
                here.push(gateway);
            }
        }
        for here in all.by_network.values_mut() {
            here.sort_by_cached_key(|gateway| (gateway.address.to_string(), gateway.port));
            let clusters: BTreeSet<&Arc<str>> = here.iter().map(|gateway| &gateway.cluster).collect();
            let of = |cluster: &Arc<str>| here.iter().filter(|gateway| gateway.cluster == *cluster).count();
            for count in clusters.into_iter().map(of).chain([here.len()]) {
                all.scale = common_multiple(all.scale, u32::try_from(count).unwrap_or(1));
            }
        }
        all
    }

    /// There is a gateway, so that networks are treated as separate.
    pub fn has_any(&self) -> bool {
        !self.by_network.is_empty()
    }

    pub fn scale(&self) -> u32 {
        self.scale.max(1)
    }

    /// All gateways.
    pub fn all(&self) -> impl Iterator<Item = &NetworkGateway> {
        self.by_network.values().flatten()
    }

    /// The gateways to endpoints of a network in a cluster: those of the same cluster, else all of the network.
    pub fn for_network(&self, network: &str, cluster: &str) -> Vec<&NetworkGateway> {
        let all = self.by_network.get(network).map(Vec::as_slice).unwrap_or_default();
        let near: Vec<_> = all.iter().filter(|gateway| *gateway.cluster == *cluster).collect();
        let chosen = if near.is_empty() { all.iter().collect() } else { near };
        chosen.into_iter().filter(|gateway| gateway.port.is_some()).collect()
    }
}

/// The Service is a network gateway, by its label or because MeshNetworks names it.
pub(crate) fn is_gateway(object: &Object<ServiceSpec>, networks: &MeshNetworks, env: &Environment) -> bool {
    let labelled = object.meta.labels.get(NETWORK).is_some_and(|network| !network.is_empty());
    let mut gateways = networks.networks.values().flat_map(|network| &network.gateways);
    let named = |gateway: &config::mesh::IstioNetworkGateway| match &gateway.address {
        Some(NetworkGatewayAddress::RegistryServiceName(name)) => {
            *name == *kubernetes_host(&object.meta.name, &object.meta.namespace, &env.domain).as_str()
        }
        _ => false,
    };
    labelled || gateways.any(named)
}

/// By its label, else by MeshNetworks.
fn gateways_of(
    object: &Object<ServiceSpec>,
    named: &BTreeMap<&str, Vec<(Arc<str>, u16)>>,
    env: &Environment,
) -> Vec<NetworkGateway> {
    let gateways: Vec<(Arc<str>, Option<u16>)> = match object.meta.labels.get(NETWORK) {
        Some(network) if !network.is_empty() => {
            let wanted = object.meta.labels.get(GATEWAY_PORT_LABEL).and_then(|text| text.parse().ok());
            let wanted = wanted.unwrap_or(GATEWAY_PORT);
            let has = |number: u16| object.spec.ports.iter().any(|port| port.port == number);
            if !has(wanted) && !has(TUNNEL_PORT) {
                return Vec::new();
            }
            vec![(Arc::from(network), has(wanted).then_some(wanted))]
        }
        _ => {
            let host = kubernetes_host(&object.meta.name, &object.meta.namespace, &env.domain);
            let listed = named.get(host.as_str()).map(Vec::as_slice).unwrap_or_default();
            listed.iter().map(|(network, port)| (network.clone(), Some(*port))).collect()
        }
    };
    let cluster: Arc<str> = Arc::from(env.cluster_id.as_str());
    let addresses = outside_addresses(&object.spec);
    gateways
        .into_iter()
        .flat_map(|(network, port)| {
            let cluster = cluster.clone();
            let gateway =
                move |address| NetworkGateway { network: network.clone(), cluster: cluster.clone(), address, port };
            addresses.clone().into_iter().map(gateway)
        })
        .collect()
}

/// Addresses of the Service outside of the cluster.
fn outside_addresses(service: &ServiceSpec) -> Vec<GatewayAddress> {
    let balanced = service.load_balancer.iter().map(|address| match address {
        LoadBalancerAddress::Ip(ip) => GatewayAddress::Ip(*ip),
        LoadBalancerAddress::Hostname(name) => GatewayAddress::Name(Arc::from(name.as_str())),
    });
    let balanced = balanced.filter(|_| service.kind == ServiceType::LoadBalancer);
    balanced.chain(service.external_ips.iter().copied().map(GatewayAddress::Ip)).collect()
}

fn common_multiple(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a.max(1), b.max(1));
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a.max(1) / x).saturating_mul(b.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(network: &str, cluster: &str, last: u8) -> NetworkGateway {
        let (network, cluster) = (Arc::from(network), Arc::from(cluster));
        NetworkGateway { network, cluster, address: GatewayAddress::Ip([10, 0, 0, last].into()), port: Some(15443) }
    }

    #[test]
    fn weights_can_be_shared_out_among_all_gateways() {
        let gateways = NetworkGateways::new(vec![
            gateway("a", "", 1),
            gateway("a", "", 2),
            gateway("b", "x", 1),
            gateway("b", "x", 2),
            gateway("b", "y", 3),
            gateway("b", "y", 3),
        ]);
        assert_eq!(gateways.scale(), 6);
        assert_eq!(gateways.for_network("b", "y").len(), 1, "those of the endpoint's cluster");
        assert_eq!(gateways.for_network("b", "z").len(), 3, "else all of the network");
    }

    #[test]
    fn a_gateway_for_hbone_alone_is_no_endpoint_and_counts_for_the_scale() {
        let tunnel = NetworkGateway { port: None, ..gateway("a", "x", 1) };
        let gateways = NetworkGateways::new(vec![tunnel, gateway("a", "x", 2)]);
        let addresses: Vec<_> = gateways.for_network("a", "x").iter().map(|it| it.address.to_string()).collect();
        assert_eq!((addresses, gateways.scale()), (vec!["10.0.0.2".to_owned()], 2));
    }

    #[test]
    fn the_widest_range_wins_and_labels_beat_ranges() {
        let range = |text: &str, name: &str| (text.parse().expect("a range"), Arc::from(name));
        let networks = Networks {
            ranges: vec![range("10.1.0.0/16", "wide"), range("10.1.2.0/24", "narrow"), range("10.2.3.0/24", "other")],
            ..Networks::default()
        };
        let of = |ip: [u8; 4], labels: &Labels| networks.of(Some(ip.into()), labels).to_string();
        let none = Labels::default();
        assert_eq!(of([10, 1, 2, 3], &none), "wide");
        assert_eq!(of([10, 2, 3, 3], &none), "other");
        assert_eq!(of([10, 3, 3, 3], &none), "");
        assert_eq!(of([10, 1, 2, 3], &Labels::from_iter([(NETWORK, "labelled")])), "labelled");
    }
}
