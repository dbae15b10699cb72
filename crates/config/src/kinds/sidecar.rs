//! Sidecar: listeners of a workload, and the services that it imports.

use serde::{Deserialize, Serialize};

use super::destination_rule::ConnectionPoolSettings;
use super::gateway::ServerTlsSettings;
use super::port::IstioPort;
use super::virtual_service::Destination;
use super::workload_selector::WorkloadSelector;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sidecar {
    /// `None`: every workload of the namespace.
    pub workload_selector: Option<WorkloadSelector>,
    /// Empty: inbound listeners follow from the services of the workload.
    pub ingress: Vec<IstioIngressListener>,
    /// Empty: all visible services.
    pub egress: Vec<IstioEgressListener>,
    pub inbound_connection_pool: Option<ConnectionPoolSettings>,
    /// `None`: the mesh config's policy.
    pub outbound_traffic_policy: Option<OutboundTrafficPolicy>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioIngressListener {
    /// `None`: not set, which validation rejects.
    pub port: Option<IstioPort>,
    pub bind: String,
    pub capture_mode: CaptureMode,
    pub default_endpoint: String,
    pub tls: Option<ServerTlsSettings>,
    /// `None`: `inbound_connection_pool` of the Sidecar.
    pub connection_pool: Option<ConnectionPoolSettings>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioEgressListener {
    /// `None`: every port that no other listener names.
    pub port: Option<IstioPort>,
    pub bind: String,
    pub capture_mode: CaptureMode,
    /// `namespace/host`.
    pub hosts: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CaptureMode {
    #[default]
    Default,
    Iptables,
    None,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutboundTrafficPolicy {
    pub mode: OutboundTrafficMode,
    /// `None`: unknown traffic goes straight to its destination.
    pub egress_proxy: Option<Destination>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OutboundTrafficMode {
    #[default]
    RegistryOnly,
    AllowAny,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::destination_rule::TcpSettings;
    use crate::kinds::example::{check_enum, example};
    use crate::kinds::gateway::ServerTlsMode;

    #[test]
    fn a_sidecar_with_every_field() {
        let sidecar: Sidecar = example(
            "
workloadSelector: {labels: {app: web}}
ingress:
- port: {number: 9080, protocol: HTTP, name: in}
  bind: 127.0.0.1
  captureMode: NONE
  defaultEndpoint: unix:///run/app.sock
  tls: {mode: SIMPLE}
  connectionPool: {tcp: {maxConnections: 1}}
egress:
- port: {number: 3306, protocol: MYSQL, name: db}
  bind: 127.0.0.2
  captureMode: IPTABLES
  hosts: [./*, ~bank/x.bank.svc.cluster.local]
inboundConnectionPool: {tcp: {maxConnections: 2}}
outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: egress, subset: a, port: {number: 80}}}
",
        );
        assert_eq!(sidecar.workload_selector.unwrap().labels.get("app"), Some("web"));
        let pool = |max_connections| {
            let tcp = TcpSettings { max_connections, ..TcpSettings::default() };
            Some(ConnectionPoolSettings { tcp: Some(tcp), http: None })
        };
        let port = |number, protocol: &str, name: &str| {
            Some(IstioPort { number, protocol: protocol.into(), name: name.into(), target_port: 0 })
        };
        let ingress = IstioIngressListener {
            port: port(9080, "HTTP", "in"),
            bind: "127.0.0.1".into(),
            capture_mode: CaptureMode::None,
            default_endpoint: "unix:///run/app.sock".into(),
            tls: Some(ServerTlsSettings { mode: ServerTlsMode::Simple, ..ServerTlsSettings::default() }),
            connection_pool: pool(1),
        };
        assert_eq!(sidecar.ingress, [ingress]);
        let egress = IstioEgressListener {
            port: port(3306, "MYSQL", "db"),
            bind: "127.0.0.2".into(),
            capture_mode: CaptureMode::Iptables,
            hosts: vec!["./*".into(), "~bank/x.bank.svc.cluster.local".into()],
        };
        assert_eq!(sidecar.egress, [egress]);
        assert_eq!(sidecar.inbound_connection_pool, pool(2));
        let outbound = sidecar.outbound_traffic_policy.unwrap();
        assert_eq!(outbound.mode, OutboundTrafficMode::AllowAny);
        assert_eq!(outbound.egress_proxy.unwrap().host, "egress");
    }

    #[test]
    fn enums() {
        check_enum(&[
            ("DEFAULT", CaptureMode::Default),
            ("IPTABLES", CaptureMode::Iptables),
            ("NONE", CaptureMode::None),
        ]);
        check_enum(&[
            ("REGISTRY_ONLY", OutboundTrafficMode::RegistryOnly),
            ("ALLOW_ANY", OutboundTrafficMode::AllowAny),
        ]);
    }
}
