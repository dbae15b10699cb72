//! gRPC access logs: Envoy's access log service (ALS), and OpenTelemetry.

use config::mesh::{HttpAlsProvider, OtelAlsProvider, TcpAlsProvider};
use model::Mesh;
use wire::envoy::config::accesslog::v3::AccessLog;
use wire::envoy::config::core::v3::{ApiVersion, GrpcService};
use wire::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use wire::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use wire::opentelemetry::proto::common::v1::{AnyValue, KeyValue, KeyValueList, any_value};

use super::access_log::{LogScope, log};
use super::collector::Collector;
use super::log_format;

const HTTP: &str = "envoy.access_loggers.http_grpc";
const TCP: &str = "envoy.tcp_grpc_access_log";
const HTTP_LOG: &str = "http_envoy_accesslog";
const TCP_LOG: &str = "tcp_envoy_accesslog";

/// The bootstrap cluster of the mesh's access log service.
const MESH_CLUSTER: &str = "envoy_accesslog_service";

/// Filter state keys of peer metadata.
const PEERS: [&str; 2] = ["upstream_peer", "downstream_peer"];

/// Including the keys of older proxies.
const ALL_PEERS: [&str; 6] = [
    "upstream_peer",
    "downstream_peer",
    "wasm.upstream_peer",
    "wasm.upstream_peer_id",
    "wasm.downstream_peer",
    "wasm.downstream_peer_id",
];

/// The access log service of the bootstrap.
pub(super) fn of_mesh(scope: LogScope) -> AccessLog {
    let service = || Collector { host: String::new(), cluster: MESH_CLUSTER.into() }.grpc();
    let config = |name: &str| common(name, service(), to_strings(&ALL_PEERS));
    match scope {
        LogScope::Requests => {
            let common_config = Some(config(HTTP_LOG));
            log(HTTP, &HttpGrpcAccessLogConfig { common_config, ..HttpGrpcAccessLogConfig::default() })
        }
        LogScope::Connections => log(TCP, &TcpGrpcAccessLogConfig { common_config: Some(config(TCP_LOG)) }),
        LogScope::Listener => {
            log(TCP, &TcpGrpcAccessLogConfig { common_config: Some(config("listener_envoy_accesslog")) })
        }
    }
}

pub(super) fn http(mesh: &Mesh, provider: &HttpAlsProvider) -> Option<AccessLog> {
    let service = Collector::new(mesh, &provider.service, provider.port)?.grpc();
    let objects = objects(&provider.filter_state_objects_to_log);
    let config = HttpGrpcAccessLogConfig {
        common_config: Some(common(or(&provider.log_name, HTTP_LOG), service, objects)),
        additional_request_headers_to_log: provider.additional_request_headers_to_log.clone(),
        additional_response_headers_to_log: provider.additional_response_headers_to_log.clone(),
        additional_response_trailers_to_log: provider.additional_response_trailers_to_log.clone(),
    };
    Some(log(HTTP, &config))
}

pub(super) fn tcp(mesh: &Mesh, provider: &TcpAlsProvider) -> Option<AccessLog> {
    let service = Collector::new(mesh, &provider.service, provider.port)?.grpc();
    let common = common(or(&provider.log_name, TCP_LOG), service, objects(&provider.filter_state_objects_to_log));
    Some(log(TCP, &TcpGrpcAccessLogConfig { common_config: Some(common) }))
}

#[allow(deprecated)] // common_config: istiod sends it, and older proxies know nothing else.
pub(super) fn open_telemetry(mesh: &Mesh, provider: &OtelAlsProvider) -> Option<AccessLog> {
    let service = Collector::new(mesh, &provider.service, provider.port)?.grpc();
    let format = provider.log_format.as_ref();
    let body = format.map(|format| format.text.as_str()).filter(|text| !text.is_empty()).unwrap_or(log_format::TEXT);
    let labels = format.and_then(|format| format.labels.as_ref()).map(|labels| &labels.0);
    // Only strings may contain operators; istiod leaves other values empty.
    let mut labels: Vec<_> =
        labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
    labels.sort_unstable();
    let attribute = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: Some(any_text(value)),
        ..KeyValue::default()
    };
    let config = OpenTelemetryAccessLogConfig {
        common_config: Some(common(or(&provider.log_name, "otel_envoy_accesslog"), service, to_strings(&ALL_PEERS))),
        disable_builtin_labels: true,
        body: Some(any_text(body)),
        attributes: (!labels.is_empty()).then(|| KeyValueList { values: labels.iter().map(attribute).collect() }),
        formatters: log_format::formatters(labels.iter().map(|(_, value)| *value).chain([body])),
        ..OpenTelemetryAccessLogConfig::default()
    };
    Some(log("envoy.access_loggers.open_telemetry", &config))
}

fn common(name: &str, service: GrpcService, objects: Vec<String>) -> CommonGrpcAccessLogConfig {
    CommonGrpcAccessLogConfig {
        log_name: name.to_owned(),
        grpc_service: Some(service),
        transport_api_version: ApiVersion::V3.into(),
        filter_state_objects_to_log: objects,
        ..CommonGrpcAccessLogConfig::default()
    }
}

fn objects(written: &[String]) -> Vec<String> {
    if written.is_empty() { to_strings(&PEERS) } else { written.to_vec() }
}

fn to_strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn or<'a>(written: &'a str, default: &'a str) -> &'a str {
    if written.is_empty() { default } else { written }
}

fn any_text(text: &str) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(text.to_owned())) }
}
