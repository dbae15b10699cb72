//! Service: ports, addresses and selector, with the API server's defaults.

use std::collections::HashSet;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, de};

use super::transport::{Transport, port};
use crate::address::IpText;
use crate::labels::Labels;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct ServiceSpec {
    pub kind: ServiceType,
    /// Empty for headless services, ExternalName, and a service without an allocated address.
    pub cluster_ips: Vec<IpAddr>,
    /// `clusterIP: None`.
    pub headless: bool,
    pub external_name: String,
    /// Empty: endpoints are managed manually.
    pub selector: Labels,
    pub ports: Vec<ServicePort>,
    pub session_affinity_client_ip: bool,
    pub internal_traffic_local: bool,
    /// `None`: no preference.
    pub traffic_distribution: Option<String>,
    pub publish_not_ready: bool,
    pub external_ips: Vec<IpAddr>,
    /// Load balancer addresses from the status.
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
    /// `None`: the protocol comes from the name, or is detected.
    pub app_protocol: Option<String>,
    pub target: ServiceTargetPort,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceTargetPort {
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

impl From<Raw> for ServiceSpec {
    fn from(Raw { spec, status }: Raw) -> ServiceSpec {
        let listed = if spec.cluster_ips.is_empty() { vec![spec.cluster_ip] } else { spec.cluster_ips };
        let external = spec.r#type == ServiceType::ExternalName;
        let addresses = listed.iter().filter_map(|ip| if let ClusterIp::Ip(ip) = ip { Some(*ip) } else { None });
        ServiceSpec {
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
            None | Some(RawTarget::Unset) => ServiceTargetPort::Number(port),
            Some(RawTarget::Number(number)) => ServiceTargetPort::Number(number),
            Some(RawTarget::Name(name)) => ServiceTargetPort::Name(name),
        };
        ServicePort { name, port, protocol, app_protocol, target }
    }
}

fn load_balancer_address(raw: RawIngress) -> Option<LoadBalancerAddress> {
    let ip = raw.ip.map(|IpText(ip)| LoadBalancerAddress::Ip(ip));
    ip.or(raw.hostname.map(LoadBalancerAddress::Hostname))
}

/// The list of ports, rejected where the API server would: endpoints are matched by port name.
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
    /// 0 and the empty name mean no target.
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
        f.write_str("a port number from 1 to 65535 or the name of a container's port")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<RawTarget, E> {
        match u16::try_from(number) {
            Ok(0) => Ok(RawTarget::Unset),
            Ok(port) => Ok(RawTarget::Number(port)),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<RawTarget, E> {
        Ok(if name.is_empty() { RawTarget::Unset } else { RawTarget::Name(name.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kubernetes_example::kubernetes;

    fn service(spec: &str) -> ServiceSpec {
        kubernetes(&format!("spec: {spec}"))
    }

    #[test]
    fn the_defaults_of_the_api_server() {
        let service = service("{ports: [{port: 80}]}");
        let port = ServicePort {
            name: String::new(),
            port: 80,
            protocol: Transport::Tcp,
            app_protocol: None,
            target: ServiceTargetPort::Number(80),
        };
        assert_eq!(service, ServiceSpec { ports: vec![port], ..ServiceSpec::default() });
    }

    #[test]
    fn one_address_stands_for_the_list() {
        let ips = |spec| service(spec).cluster_ips.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(ips("{clusterIP: 10.0.0.1}"), ["10.0.0.1"]);
        assert_eq!(ips("{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1']}"), ["10.0.0.1", "fd00::1"]);
        assert!(ips("{clusterIP: ''}").is_empty());
        assert!(ips("{type: ExternalName, externalName: a.b, clusterIP: 10.0.0.1}").is_empty());
    }

    #[test]
    fn only_none_is_headless() {
        assert!(service("{clusterIP: None}").headless);
        assert!(service("{clusterIPs: [None]}").headless);
        assert!(!service("{clusterIP: ''}").headless);
        assert!(!service("{}").headless);
    }

    #[test]
    fn a_target_is_a_number_or_a_name() {
        let target =
            |target: &str| service(&format!("{{ports: [{{port: 80, targetPort: {target}}}]}}")).ports[0].target.clone();
        assert_eq!(target("8080"), ServiceTargetPort::Number(8080));
        assert_eq!(target("web"), ServiceTargetPort::Name("web".into()));
        assert_eq!(target("0"), ServiceTargetPort::Number(80));
        assert_eq!(target("''"), ServiceTargetPort::Number(80));
    }

    #[test]
    fn the_status_tells_where_the_load_balancer_is() {
        let service: ServiceSpec = kubernetes(
            "{spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}, {hostname: a.b}]}}}",
        );
        let ip = LoadBalancerAddress::Ip("1.2.3.4".parse().unwrap());
        assert_eq!(service.load_balancer, [ip, LoadBalancerAddress::Hostname("a.b".into())]);
    }
}
