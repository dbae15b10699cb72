//! Pod: node, service account, addresses and readiness.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use super::transport::{Transport, port};
use crate::address::IpText;
use crate::intern::{self, intern_str};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Pod {
    /// Empty: not scheduled yet.
    pub node_name: Arc<str>,
    pub service_account: Arc<str>,
    /// `None`: it has no DNS name below a service's.
    pub subdomain: Option<Box<Subdomain>>,
    pub ips: Arc<[IpAddr]>,
    /// `None`: it runs, or will.
    pub outcome: Option<Outcome>,
    /// The Ready condition; a pod without one is ready if its phase is Running or unset.
    pub ready: bool,
    /// Of all long-running containers.
    pub ports: Box<[ContainerPort]>,
}

/// The final phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subdomain {
    pub name: String,
    /// Empty: the name of the pod.
    pub hostname: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort {
    #[serde(default, deserialize_with = "intern::text")]
    pub name: Arc<str>,
    #[serde(rename = "containerPort", deserialize_with = "port")]
    pub port: u16,
    #[serde(default)]
    pub protocol: Transport,
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
    #[serde(deserialize_with = "intern::text")]
    node_name: Arc<str>,
    #[serde(deserialize_with = "intern::text")]
    service_account_name: Arc<str>,
    /// The deprecated spelling of `serviceAccountName`.
    #[serde(deserialize_with = "intern::text")]
    service_account: Arc<str>,
    hostname: String,
    subdomain: String,
    containers: Vec<RawContainer>,
    init_containers: Vec<RawContainer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer {
    ports: Vec<ContainerPort>,
    restart_policy: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: Option<IpText>,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<RawIp>,
    conditions: Vec<RawCondition>,
}

#[derive(Deserialize)]
struct RawIp {
    ip: IpText,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCondition {
    r#type: String,
    status: String,
}

impl From<Raw> for Pod {
    fn from(Raw { spec, status }: Raw) -> Pod {
        let ready = status.conditions.iter().find(|c| c.r#type == "Ready").map(|c| c.status == "True");
        let ready = ready.unwrap_or(matches!(status.phase.as_str(), "" | "Running"));
        let ips = status.pod_ips.iter().map(|raw| raw.ip.0).collect::<Arc<[_]>>();
        let named = [spec.service_account_name, spec.service_account].into_iter().find(|name| !name.is_empty());
        let lasting = spec.init_containers.into_iter().filter(|c| c.restart_policy == "Always");
        Pod {
            node_name: spec.node_name,
            service_account: named.unwrap_or_else(|| intern_str("default")),
            subdomain: (!spec.subdomain.is_empty())
                .then(|| Box::new(Subdomain { name: spec.subdomain, hostname: spec.hostname })),
            ips: if ips.is_empty() { status.pod_ip.into_iter().map(|IpText(ip)| ip).collect() } else { ips },
            outcome: match status.phase.as_str() {
                "Succeeded" => Some(Outcome::Succeeded),
                "Failed" => Some(Outcome::Failed),
                _ => None,
            },
            ready,
            ports: spec.containers.into_iter().chain(lasting).flat_map(|container| container.ports).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kubernetes_example::kubernetes;

    #[test]
    fn the_service_account_has_two_spellings_and_a_default() {
        let account = |spec: &str| kubernetes::<Pod>(&format!("spec: {spec}")).service_account;
        assert_eq!(&*account("{serviceAccountName: a, serviceAccount: b}"), "a");
        assert_eq!(&*account("{serviceAccount: b}"), "b");
        assert_eq!(&*account("{}"), "default");
    }

    #[test]
    fn readiness_is_the_condition_or_else_the_phase() {
        let ready = |status: &str| kubernetes::<Pod>(&format!("status: {status}")).ready;
        assert!(ready("{conditions: [{type: Initialized, status: 'False'}, {type: Ready, status: 'True'}]}"));
        assert!(!ready("{phase: Running, conditions: [{type: Ready, status: 'False'}]}"));
        assert!(ready("{phase: Running}"));
        assert!(ready("{}"));
        assert!(!ready("{phase: Pending}"));
    }

    #[test]
    fn one_address_stands_for_the_list() {
        let ips = |status: &str| kubernetes::<Pod>(&format!("status: {status}")).ips;
        assert_eq!(*ips("{podIP: 10.0.0.1}"), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(ips("{podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}]}").len(), 2);
        assert!(ips("{}").is_empty());
    }

    #[test]
    fn ports_of_lasting_init_containers_count() {
        let pod: Pod = kubernetes(
            "spec: {containers: [{ports: [{containerPort: 1}]}], initContainers: [{ports: [{containerPort: 2}]}, \
             {restartPolicy: Always, ports: [{containerPort: 3, name: c, protocol: UDP}]}]}",
        );
        let port = |name: &str, port, protocol| ContainerPort { name: name.into(), port, protocol };
        assert_eq!(*pod.ports, [port("", 1, Transport::Tcp), port("c", 3, Transport::Udp)]);
    }
}
