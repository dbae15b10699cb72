//! ServiceEntry: a service outside of Kubernetes.

use serde::{Deserialize, Serialize};

use super::port::IstioPort;
use super::workload_entry::WorkloadEntry;
use super::workload_selector::WorkloadSelector;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntry {
    pub hosts: Vec<String>,
    pub addresses: Vec<String>,
    pub ports: Vec<IstioPort>,
    pub location: ServiceEntryLocation,
    pub resolution: ServiceEntryResolution,
    pub endpoints: Vec<WorkloadEntry>,
    /// `None`: the inline endpoints.
    pub workload_selector: Option<WorkloadSelector>,
    pub export_to: Vec<String>,
    pub subject_alt_names: Vec<String>,
    /// Written by a controller.
    pub status: ServiceEntryStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryStatus {
    pub addresses: Vec<AllocatedAddress>,
}

/// An address that was allocated for a host without one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedAddress {
    pub host: String,
    pub value: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ServiceEntryLocation {
    #[default]
    MeshExternal,
    MeshInternal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ServiceEntryResolution {
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
            ports: vec![IstioPort { number: 443, protocol: "TLS".into(), name: "tls".into(), target_port: 8443 }],
            location: ServiceEntryLocation::MeshInternal,
            resolution: ServiceEntryResolution::Static,
            endpoints: vec![endpoint],
            workload_selector: Some(WorkloadSelector { labels: [("app", "vm")].into_iter().collect() }),
            export_to: vec![".".into()],
            subject_alt_names: vec!["spiffe://a".into()],
            status: ServiceEntryStatus {
                addresses: vec![AllocatedAddress { host: "api.example.com".into(), value: "240.240.0.1".into() }],
            },
        };
        assert_eq!(entry, expected);
    }

    #[test]
    fn enums() {
        check_enum(&[
            ("MESH_EXTERNAL", ServiceEntryLocation::MeshExternal),
            ("MESH_INTERNAL", ServiceEntryLocation::MeshInternal),
        ]);
        check_enum(&[
            ("NONE", ServiceEntryResolution::None),
            ("STATIC", ServiceEntryResolution::Static),
            ("DNS", ServiceEntryResolution::Dns),
            ("DNS_ROUND_ROBIN", ServiceEntryResolution::DnsRoundRobin),
            ("DYNAMIC_DNS", ServiceEntryResolution::DynamicDns),
        ]);
    }
}
