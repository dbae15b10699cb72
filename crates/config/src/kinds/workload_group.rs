//! WorkloadGroup: a template for WorkloadEntries, with a readiness probe.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::one_of::{Conflict, one_of};
use super::workload_entry::WorkloadEntry;
use crate::labels::Labels;
use crate::ser::is_default;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadGroup {
    /// Metadata of entries made from this group.
    pub metadata: Option<WorkloadMetadata>,
    pub template: Option<WorkloadEntry>,
    pub probe: Option<ReadinessProbe>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadMetadata {
    pub labels: Labels,
    pub annotations: BTreeMap<String, String>,
}

/// Zero is the agent's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "RawProbe", rename_all = "camelCase")]
pub struct ReadinessProbe {
    #[serde(skip_serializing_if = "is_default")]
    pub initial_delay_seconds: i32,
    #[serde(skip_serializing_if = "is_default")]
    pub timeout_seconds: i32,
    #[serde(skip_serializing_if = "is_default")]
    pub period_seconds: i32,
    #[serde(skip_serializing_if = "is_default")]
    pub success_threshold: i32,
    #[serde(skip_serializing_if = "is_default")]
    pub failure_threshold: i32,
    #[serde(flatten)]
    pub method: Option<HealthCheck>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HealthCheck {
    HttpGet(HttpHealthCheck),
    TcpSocket(TcpHealthCheck),
    Exec(ExecHealthCheck),
    Grpc(GrpcHealthCheck),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawProbe {
    initial_delay_seconds: i32,
    timeout_seconds: i32,
    period_seconds: i32,
    success_threshold: i32,
    failure_threshold: i32,
    http_get: Option<HttpHealthCheck>,
    tcp_socket: Option<TcpHealthCheck>,
    exec: Option<ExecHealthCheck>,
    grpc: Option<GrpcHealthCheck>,
}

impl TryFrom<RawProbe> for ReadinessProbe {
    type Error = Conflict;

    fn try_from(raw: RawProbe) -> Result<Self, Conflict> {
        let method = one_of([
            ("httpGet", raw.http_get.map(HealthCheck::HttpGet)),
            ("tcpSocket", raw.tcp_socket.map(HealthCheck::TcpSocket)),
            ("exec", raw.exec.map(HealthCheck::Exec)),
            ("grpc", raw.grpc.map(HealthCheck::Grpc)),
        ])?;
        Ok(ReadinessProbe {
            initial_delay_seconds: raw.initial_delay_seconds,
            timeout_seconds: raw.timeout_seconds,
            period_seconds: raw.period_seconds,
            success_threshold: raw.success_threshold,
            failure_threshold: raw.failure_threshold,
            method,
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpHealthCheck {
    pub path: String,
    pub port: u32,
    pub host: String,
    pub scheme: String,
    pub http_headers: Vec<HttpHeader>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpHeader {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpHealthCheck {
    pub host: String,
    pub port: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecHealthCheck {
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcHealthCheck {
    /// 0: the port of the application.
    pub port: u32,
    pub service: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{example, parse_error};

    #[test]
    fn a_group_with_every_field() {
        let group: WorkloadGroup = example(
            "
metadata: {labels: {app: vm}, annotations: {a: b}}
template: {serviceAccount: vm, ports: {http: 8080}}
probe:
  initialDelaySeconds: 1
  timeoutSeconds: 2
  periodSeconds: 3
  successThreshold: 4
  failureThreshold: 5
  httpGet: {path: /ready, port: 8080, host: h, scheme: HTTP, httpHeaders: [{name: a, value: b}]}
",
        );
        let labels = [("app", "vm")].into_iter().collect();
        let metadata = WorkloadMetadata { labels, annotations: [("a".to_owned(), "b".to_owned())].into() };
        assert_eq!(group.metadata, Some(metadata));
        assert_eq!(group.template.unwrap().service_account, "vm");
        let probe = ReadinessProbe {
            initial_delay_seconds: 1,
            timeout_seconds: 2,
            period_seconds: 3,
            success_threshold: 4,
            failure_threshold: 5,
            method: Some(HealthCheck::HttpGet(HttpHealthCheck {
                path: "/ready".into(),
                port: 8080,
                host: "h".into(),
                scheme: "HTTP".into(),
                http_headers: vec![HttpHeader { name: "a".into(), value: "b".into() }],
            })),
        };
        assert_eq!(group.probe, Some(probe));
    }

    #[test]
    fn each_way_to_probe() {
        let method = |yaml: &str| example::<ReadinessProbe>(yaml).method;
        let tcp = TcpHealthCheck { host: "h".into(), port: 1 };
        assert_eq!(method("tcpSocket: {host: h, port: 1}"), Some(HealthCheck::TcpSocket(tcp)));
        let exec = ExecHealthCheck { command: vec!["true".into()] };
        assert_eq!(method("exec: {command: ['true']}"), Some(HealthCheck::Exec(exec)));
        let grpc = GrpcHealthCheck { port: 2, service: "s".into() };
        assert_eq!(method("grpc: {port: 2, service: s}"), Some(HealthCheck::Grpc(grpc)));
        assert_eq!(method("{}"), None);
        assert_eq!(
            parse_error::<ReadinessProbe>("{exec: {}, grpc: {}}"),
            "spec: exec and grpc exclude each other; keep one of them"
        );
    }
}
