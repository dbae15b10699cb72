//! Extension providers of the mesh config: external authorization, tracing, metrics and access logs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tracing::{TraceContext, int64};
use crate::duration::Duration;
use crate::kinds::json_object::JsonObject;
use crate::kinds::one_of::{Conflict, one_of, oneof_message};

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "RawExtensionProvider", rename_all = "camelCase")]
pub struct ExtensionProvider {
    pub name: String,
    /// `None`: not set; the provider cannot be used.
    #[serde(flatten)]
    pub provider: Option<ProviderKind>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProviderKind {
    EnvoyExtAuthzHttp(Box<ExtAuthzHttpProvider>),
    EnvoyExtAuthzGrpc(ExtAuthzGrpcProvider),
    Zipkin(ZipkinProvider),
    Lightstep(LightstepProvider),
    Datadog(DatadogProvider),
    Stackdriver(StackdriverProvider),
    #[serde(rename = "opencensus")]
    OpenCensus(OpenCensusProvider),
    #[serde(rename = "skywalking")]
    SkyWalking(SkyWalkingProvider),
    #[serde(rename = "opentelemetry")]
    OpenTelemetry(Box<OpenTelemetryProvider>),
    Prometheus(PrometheusProvider),
    EnvoyFileAccessLog(FileAccessLogProvider),
    EnvoyHttpAls(HttpAlsProvider),
    EnvoyTcpAls(TcpAlsProvider),
    EnvoyOtelAls(OtelAlsProvider),
    Sds(SdsProvider),
}

impl ExtensionProvider {
    /// `[namespace/]host` of its service; `None`: it has none, or is no longer supported.
    pub fn service(&self) -> Option<&str> {
        Some(match self.provider.as_ref()? {
            ProviderKind::EnvoyExtAuthzHttp(to) => &to.service,
            ProviderKind::EnvoyExtAuthzGrpc(to) => &to.service,
            ProviderKind::Zipkin(to) => &to.service,
            ProviderKind::Datadog(to) => &to.service,
            ProviderKind::SkyWalking(to) => &to.service,
            ProviderKind::OpenTelemetry(to) => &to.service,
            ProviderKind::EnvoyHttpAls(to) => &to.service,
            ProviderKind::EnvoyTcpAls(to) => &to.service,
            ProviderKind::EnvoyOtelAls(to) => &to.service,
            ProviderKind::Sds(to) => &to.service,
            ProviderKind::Lightstep(_)
            | ProviderKind::OpenCensus(_)
            | ProviderKind::Stackdriver(_)
            | ProviderKind::Prometheus(_)
            | ProviderKind::EnvoyFileAccessLog(_) => return None,
        })
    }

    /// The built-in providers.
    pub(super) fn built_in() -> Vec<ExtensionProvider> {
        let file = FileAccessLogProvider { path: "/dev/stdout".into(), ..Default::default() };
        [
            ("prometheus", ProviderKind::Prometheus(PrometheusProvider {})),
            ("stackdriver", ProviderKind::Stackdriver(StackdriverProvider::default())),
            ("envoy", ProviderKind::EnvoyFileAccessLog(file)),
        ]
        .map(|(name, provider)| ExtensionProvider { name: name.into(), provider: Some(provider) })
        .into()
    }

    /// A configured provider replaces an earlier one of the same name, built in or not.
    pub(super) fn over_built_in(written: Vec<ExtensionProvider>) -> Vec<ExtensionProvider> {
        let mut all = ExtensionProvider::built_in();
        for provider in written {
            match all.iter_mut().find(|known| known.name == provider.name) {
                Some(known) => *known = provider,
                None => all.push(provider),
            }
        }
        all
    }
}

impl ProviderKind {
    /// Its services, as written.
    pub fn services(&self) -> Vec<&str> {
        match self {
            Self::EnvoyExtAuthzHttp(provider) => vec![&provider.service],
            Self::EnvoyExtAuthzGrpc(provider) => vec![&provider.service],
            Self::Zipkin(provider) => vec![&provider.service],
            Self::Lightstep(provider) => vec![&provider.service],
            Self::Datadog(provider) => vec![&provider.service],
            Self::OpenCensus(provider) => vec![&provider.service],
            Self::SkyWalking(provider) => vec![&provider.service],
            Self::OpenTelemetry(provider) => {
                let sampler = provider.dynatrace_sampler.as_ref().and_then(|sampler| sampler.http_service.as_ref());
                std::iter::once(&provider.service).chain(sampler.map(|api| &api.service)).map(String::as_str).collect()
            }
            Self::EnvoyHttpAls(provider) => vec![&provider.service],
            Self::EnvoyTcpAls(provider) => vec![&provider.service],
            Self::EnvoyOtelAls(provider) => vec![&provider.service],
            Self::Sds(provider) => vec![&provider.service],
            Self::Stackdriver(_) | Self::Prometheus(_) | Self::EnvoyFileAccessLog(_) => Vec::new(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawExtensionProvider {
    name: String,
    envoy_ext_authz_http: Option<Box<ExtAuthzHttpProvider>>,
    envoy_ext_authz_grpc: Option<ExtAuthzGrpcProvider>,
    zipkin: Option<ZipkinProvider>,
    lightstep: Option<LightstepProvider>,
    datadog: Option<DatadogProvider>,
    stackdriver: Option<StackdriverProvider>,
    opencensus: Option<OpenCensusProvider>,
    skywalking: Option<SkyWalkingProvider>,
    opentelemetry: Option<Box<OpenTelemetryProvider>>,
    prometheus: Option<PrometheusProvider>,
    envoy_file_access_log: Option<FileAccessLogProvider>,
    envoy_http_als: Option<HttpAlsProvider>,
    envoy_tcp_als: Option<TcpAlsProvider>,
    envoy_otel_als: Option<OtelAlsProvider>,
    sds: Option<SdsProvider>,
}

impl TryFrom<RawExtensionProvider> for ExtensionProvider {
    type Error = Conflict;

    fn try_from(raw: RawExtensionProvider) -> Result<Self, Conflict> {
        let provider = one_of([
            ("envoyExtAuthzHttp", raw.envoy_ext_authz_http.map(ProviderKind::EnvoyExtAuthzHttp)),
            ("envoyExtAuthzGrpc", raw.envoy_ext_authz_grpc.map(ProviderKind::EnvoyExtAuthzGrpc)),
            ("zipkin", raw.zipkin.map(ProviderKind::Zipkin)),
            ("lightstep", raw.lightstep.map(ProviderKind::Lightstep)),
            ("datadog", raw.datadog.map(ProviderKind::Datadog)),
            ("stackdriver", raw.stackdriver.map(ProviderKind::Stackdriver)),
            ("opencensus", raw.opencensus.map(ProviderKind::OpenCensus)),
            ("skywalking", raw.skywalking.map(ProviderKind::SkyWalking)),
            ("opentelemetry", raw.opentelemetry.map(ProviderKind::OpenTelemetry)),
            ("prometheus", raw.prometheus.map(ProviderKind::Prometheus)),
            ("envoyFileAccessLog", raw.envoy_file_access_log.map(ProviderKind::EnvoyFileAccessLog)),
            ("envoyHttpAls", raw.envoy_http_als.map(ProviderKind::EnvoyHttpAls)),
            ("envoyTcpAls", raw.envoy_tcp_als.map(ProviderKind::EnvoyTcpAls)),
            ("envoyOtelAls", raw.envoy_otel_als.map(ProviderKind::EnvoyOtelAls)),
            ("sds", raw.sds.map(ProviderKind::Sds)),
        ])?;
        Ok(ExtensionProvider { name: raw.name, provider })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtAuthzRequestBody {
    pub max_request_bytes: u32,
    pub allow_partial_message: bool,
    pub pack_as_bytes: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtAuthzHttpProvider {
    /// `[namespace/]host`, as in every provider.
    pub service: String,
    pub port: u32,
    /// `None`: 600 s.
    pub timeout: Option<Duration>,
    pub path_prefix: String,
    pub fail_open: bool,
    pub clear_route_cache: bool,
    pub status_on_error: String,
    /// Deprecated spelling of `include_request_headers_in_check`.
    pub include_headers_in_check: Vec<String>,
    pub include_request_headers_in_check: Vec<String>,
    pub include_additional_headers_in_check: BTreeMap<String, String>,
    /// `None`: the body is not sent along.
    pub include_request_body_in_check: Option<ExtAuthzRequestBody>,
    pub headers_to_upstream_on_allow: Vec<String>,
    pub headers_to_downstream_on_deny: Vec<String>,
    pub headers_to_downstream_on_allow: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtAuthzGrpcProvider {
    pub service: String,
    pub port: u32,
    /// `None`: 600 s.
    pub timeout: Option<Duration>,
    pub fail_open: bool,
    pub clear_route_cache: bool,
    pub status_on_error: String,
    /// `None`: the body is not sent along.
    pub include_request_body_in_check: Option<ExtAuthzRequestBody>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZipkinProvider {
    pub service: String,
    pub port: u32,
    pub max_tag_length: u32,
    pub enable_64bit_trace_id: bool,
    /// Empty: `/api/v2/spans`.
    pub path: String,
    pub trace_context_option: ZipkinTraceContext,
    pub timeout: Option<Duration>,
    pub headers: Vec<ProviderHeader>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ZipkinTraceContext {
    #[default]
    UseB3,
    UseB3WithW3cPropagation,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LightstepProvider {
    pub service: String,
    pub port: u32,
    pub access_token: String,
    pub max_tag_length: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DatadogProvider {
    pub service: String,
    pub port: u32,
    pub max_tag_length: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkyWalkingProvider {
    pub service: String,
    pub port: u32,
    pub access_token: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackdriverProvider {
    pub debug: bool,
    #[serde(deserialize_with = "int64")]
    pub max_number_of_attributes: Option<i64>,
    #[serde(deserialize_with = "int64")]
    pub max_number_of_annotations: Option<i64>,
    #[serde(deserialize_with = "int64")]
    pub max_number_of_message_events: Option<i64>,
    pub max_tag_length: u32,
    pub logging: Option<StackdriverLogging>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackdriverLogging {
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenCensusProvider {
    pub service: String,
    pub port: u32,
    pub context: Vec<TraceContext>,
    pub max_tag_length: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrometheusProvider {}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileAccessLogProvider {
    pub path: String,
    /// `None`: the format of the mesh config.
    pub log_format: Option<LogFormat>,
    pub omit_empty_values: bool,
}

oneof_message! {
    pub enum LogFormat {
        /// Written as `{}`.
        Unset,
        Text(String) = "text",
        Labels(JsonObject) = "labels",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpAlsProvider {
    pub service: String,
    pub port: u32,
    pub log_name: String,
    pub filter_state_objects_to_log: Vec<String>,
    pub additional_request_headers_to_log: Vec<String>,
    pub additional_response_headers_to_log: Vec<String>,
    pub additional_response_trailers_to_log: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpAlsProvider {
    pub service: String,
    pub port: u32,
    pub log_name: String,
    pub filter_state_objects_to_log: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtelAlsProvider {
    pub service: String,
    pub port: u32,
    pub log_name: String,
    pub log_format: Option<OtelLogFormat>,
}

/// Unlike a file's format this may have both parts: a body and attributes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtelLogFormat {
    pub text: String,
    pub labels: Option<JsonObject>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenTelemetryProvider {
    pub service: String,
    pub port: u32,
    pub max_tag_length: u32,
    /// `None`: gRPC.
    pub http: Option<HttpService>,
    pub grpc: Option<GrpcService>,
    pub resource_detectors: Option<ResourceDetectors>,
    pub service_attribute_enrichment: ServiceAttributeEnrichment,
    pub dynatrace_sampler: Option<DynatraceSampler>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ServiceAttributeEnrichment {
    #[default]
    IstioCanonical,
    OtelSemanticConventions,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpService {
    pub path: String,
    pub timeout: Option<Duration>,
    pub headers: Vec<ProviderHeader>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcService {
    pub timeout: Option<Duration>,
    pub initial_metadata: Vec<ProviderHeader>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceDetectors {
    pub environment: Option<ResourceDetector>,
    pub dynatrace: Option<ResourceDetector>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceDetector {}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceSampler {
    pub tenant: String,
    pub cluster_id: i32,
    pub root_spans_per_minute: u32,
    pub http_service: Option<DynatraceApi>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceApi {
    pub service: String,
    pub port: u32,
    pub http: Option<HttpService>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SdsProvider {
    pub name: String,
    pub service: String,
    pub port: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "RawProviderHeader", rename_all = "camelCase")]
pub struct ProviderHeader {
    pub name: String,
    #[serde(flatten)]
    pub value: Option<HeaderValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum HeaderValue {
    #[serde(rename = "value")]
    Literal(String),
    /// From this environment variable of the control plane.
    #[serde(rename = "envName")]
    EnvName(String),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawProviderHeader {
    name: String,
    value: Option<String>,
    env_name: Option<String>,
}

impl TryFrom<RawProviderHeader> for ProviderHeader {
    type Error = Conflict;

    fn try_from(raw: RawProviderHeader) -> Result<Self, Conflict> {
        let value = one_of([
            ("value", raw.value.map(HeaderValue::Literal)),
            ("envName", raw.env_name.map(HeaderValue::EnvName)),
        ])?;
        Ok(ProviderHeader { name: raw.name, value })
    }
}
