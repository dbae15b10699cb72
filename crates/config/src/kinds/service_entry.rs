//! ServiceEntry: a service that Kubernetes does not know.

use serde::{Deserialize, Serialize};

use super::port::Port;
use super::workload_entry::WorkloadEntry;
use super::workload_selector::WorkloadSelector;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntry {
    pub hosts: Vec<String>,
    pub addresses: Vec<String>,
    pub ports: Vec<Port>,
    pub location: Location,
    pub resolution: Resolution,
    pub endpoints: Vec<WorkloadEntry>,
    /// `None`: the endpoints are those written here.
    pub workload_selector: Option<WorkloadSelector>,
    pub export_to: Vec<String>,
    pub subject_alt_names: Vec<String>,
    /// Not the user's: what a controller gave.
    pub status: Status,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub addresses: Vec<AllocatedAddress>,
}

/// An address that was allocated for a host that has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedAddress {
    pub host: String,
    pub value: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Location {
    #[default]
    MeshExternal,
    MeshInternal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Resolution {
    #[default]
    None,
    Static,
    Dns,
    DnsRoundRobin,
    DynamicDns,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{check_enum, example};

    #[test]
    fn an_entry_with_every_field() {
        let entry: ServiceEntry = example(
            "
hosts: [api.example.com]
addresses: [240.240.1.1, 10.9.0.0/16]
ports: [{number: 443, name: tls, protocol: TLS, targetPort: 8443}]
location: MESH_INTERNAL
resolution: STATIC
exportTo: [.]
subjectAltNames: [spiffe://a]
status: {addresses: [{host: api.example.com, value: 240.240.0.1}]}
workloadSelector: {labels: {app: vm}}
endpoints:
- address: 2.2.2.2
  ports: {tls: 8443}
  labels: {version: v1}
  network: vm-net
  locality: r1/z1
  weight: 20
  serviceAccount: vm
",
        );
        let endpoint = WorkloadEntry {
            address: "2.2.2.2".into(),
            ports: [("tls".to_owned(), 8443)].into(),
            labels: [("version", "v1")].into_iter().collect(),
            network: "vm-net".into(),
            locality: "r1/z1".into(),
            weight: 20,
            service_account: "vm".into(),
            ..WorkloadEntry::default()
        };
        let expected = ServiceEntry {
            hosts: vec!["api.example.com".into()],
            addresses: vec!["240.240.1.1".into(), "10.9.0.0/16".into()],
            ports: vec![Port { number: 443, protocol: "TLS".into(), name: "tls".into(), target_port: 8443 }],
            location: Location::MeshInternal,
            resolution: Resolution::Static,
            endpoints: vec![endpoint],
            workload_selector: Some(WorkloadSelector { labels: [("app", "vm")].into_iter().collect() }),
            export_to: vec![".".into()],
            subject_alt_names: vec!["spiffe://a".into()],
            status: Status {
                addresses: vec![AllocatedAddress { host: "api.example.com".into(), value: "240.240.0.1".into() }],
            },
        };
        assert_eq!(entry, expected);
    }

    #[test]
    fn enums() {
        check_enum(&[("MESH_EXTERNAL", Location::MeshExternal), ("MESH_INTERNAL", Location::MeshInternal)]);
        check_enum(&[
            ("NONE", Resolution::None),
            ("STATIC", Resolution::Static),
            ("DNS", Resolution::Dns),
            ("DNS_ROUND_ROBIN", Resolution::DnsRoundRobin),
            ("DYNAMIC_DNS", Resolution::DynamicDns),
        ]);
    }
}
