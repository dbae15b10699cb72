//! Service: ports, addresses and selector, with the API server's defaults filled in.

use std::collections::HashSet;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, de};

use super::transport::{Transport, port};
use crate::address::IpText;
use crate::labels::Labels;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Service {
    pub kind: ServiceType,
    /// Empty for headless services, ExternalName, and a service that nobody gave an address.
    pub cluster_ips: Vec<IpAddr>,
    /// `clusterIP: None`.
    pub headless: bool,
    pub external_name: String,
    /// Empty: the endpoints are made by hand.
    pub selector: Labels,
    pub ports: Vec<ServicePort>,
    pub session_affinity_client_ip: bool,
    pub internal_traffic_local: bool,
    /// `None`: no preference.
    pub traffic_distribution: Option<String>,
    pub publish_not_ready: bool,
    pub external_ips: Vec<IpAddr>,
    /// Where the load balancer is reached, from the status.
    pub load_balancer: Vec<LoadBalancerAddress>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum ServiceType {
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty only if it is the service's sole port.
    pub name: String,
    pub port: u16,
    pub protocol: Transport,
    /// `None`: the protocol is told by the name, or detected.
    pub app_protocol: Option<String>,
    pub target: TargetPort,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPort {
    Number(u16),
    /// The name of a container's port.
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadBalancerAddress {
    Ip(IpAddr),
    Hostname(String),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw {
    spec: RawSpec,
    status: RawStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    r#type: ServiceType,
    #[serde(rename = "clusterIP")]
    cluster_ip: ClusterIp,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<ClusterIp>,
    external_name: String,
    selector: Labels,
    #[serde(deserialize_with = "ports")]
    ports: Vec<RawPort>,
    session_affinity: String,
    internal_traffic_policy: String,
    traffic_distribution: Option<String>,
    publish_not_ready_addresses: bool,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<IpText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPort {
    #[serde(default)]
    name: String,
    #[serde(deserialize_with = "port")]
    port: u16,
    #[serde(default)]
    protocol: Transport,
    app_protocol: Option<String>,
    target_port: Option<RawTarget>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    load_balancer: RawLoadBalancer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawLoadBalancer {
    ingress: Vec<RawIngress>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawIngress {
    ip: Option<IpText>,
    hostname: Option<String>,
}

impl From<Raw> for Service {
    fn from(Raw { spec, status }: Raw) -> Service {
        let listed = if spec.cluster_ips.is_empty() { vec![spec.cluster_ip] } else { spec.cluster_ips };
        let external = spec.r#type == ServiceType::ExternalName;
        let addresses = listed.iter().filter_map(|ip| if let ClusterIp::Ip(ip) = ip { Some(*ip) } else { None });
        Service {
            kind: spec.r#type,
            cluster_ips: if external { Vec::new() } else { addresses.collect() },
            headless: !external && listed.contains(&ClusterIp::None),
            external_name: spec.external_name,
            selector: spec.selector,
            ports: spec.ports.into_iter().map(ServicePort::from).collect(),
            session_affinity_client_ip: spec.session_affinity == "ClientIP",
            internal_traffic_local: spec.internal_traffic_policy == "Local",
            traffic_distribution: spec.traffic_distribution,
            publish_not_ready: spec.publish_not_ready_addresses,
            external_ips: spec.external_ips.into_iter().map(|IpText(ip)| ip).collect(),
            load_balancer: status.load_balancer.ingress.into_iter().filter_map(load_balancer_address).collect(),
        }
    }
}

impl From<RawPort> for ServicePort {
    fn from(raw: RawPort) -> ServicePort {
        let RawPort { name, port, protocol, app_protocol, target_port } = raw;
        let target = match target_port {
            None | Some(RawTarget::Unset) => TargetPort::Number(port),
            Some(RawTarget::Number(number)) => TargetPort::Number(number),
            Some(RawTarget::Name(name)) => TargetPort::Name(name),
        };
        ServicePort { name, port, protocol, app_protocol, target }
    }
}

fn load_balancer_address(raw: RawIngress) -> Option<LoadBalancerAddress> {
    let ip = raw.ip.map(|IpText(ip)| LoadBalancerAddress::Ip(ip));
    ip.or(raw.hostname.map(LoadBalancerAddress::Hostname))
}

/// The list of ports, refused where the API server would: the names tell the endpoints apart.
fn ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RawPort>, D::Error> {
    let ports = Vec::<RawPort>::deserialize(deserializer)?;
    let mut names = HashSet::new();
    for port in &ports {
        if port.name.is_empty() && ports.len() > 1 {
            return Err(de::Error::custom(format!("port {} has no name; name each of several ports", port.port)));
        }
        if !names.insert(port.name.as_str()) {
            return Err(de::Error::custom(format!("two ports are named {:?}; give each its own name", port.name)));
        }
    }
    Ok(ports)
}

#[derive(Default, PartialEq, Eq)]
enum ClusterIp {
    #[default]
    Unset,
    None,
    Ip(IpAddr),
}

impl<'de> Deserialize<'de> for ClusterIp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClusterIp, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "" => Ok(ClusterIp::Unset),
            "None" => Ok(ClusterIp::None),
            text => text.parse().map(|IpText(ip)| ClusterIp::Ip(ip)).map_err(de::Error::custom),
        }
    }
}

enum RawTarget {
    /// 0 and the empty name mean the same as no target.
    Unset,
    Number(u16),
    Name(String),
}

impl<'de> Deserialize<'de> for RawTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawTarget, D::Error> {
        deserializer.deserialize_any(TargetVisitor)
    }
}

struct TargetVisitor;

impl de::Visitor<'_> for TargetVisitor {
    type Value = RawTarget;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a port number or the name of a container's port")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<RawTarget, E> {
        match u16::try_from(number) {
            Ok(0) => Ok(RawTarget::Unset),
            Ok(port) => Ok(RawTarget::Number(port)),
            Err(_) => Err(E::custom(format!("{number} is out of range; write a number from 1 to 65535"))),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<RawTarget, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<RawTarget, E> {
        Ok(if name.is_empty() { RawTarget::Unset } else { RawTarget::Name(name.to_owned()) })
    }
}
