//! Telemetry: tracing, metrics and access logs of workloads. `model` merges several objects.
//! A field that is `None` was not set and is inherited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::one_of::{Conflict, one_of, oneof_message};
use super::target_ref::TargetRef;
use crate::duration::Duration;
use crate::labels::Selector;
use crate::ser::is_default;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Telemetry {
    pub selector: Option<Selector>,
    /// Deprecated spelling of a single entry in `target_refs`.
    pub target_ref: Option<TargetRef>,
    pub target_refs: Vec<TargetRef>,
    pub tracing: Vec<Tracing>,
    pub metrics: Vec<TelemetryMetrics>,
    pub access_logging: Vec<AccessLogging>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tracing {
    #[serde(rename = "match")]
    pub selector: Option<ModeSelector>,
    pub providers: Vec<ProviderRef>,
    pub random_sampling_percentage: Option<f64>,
    pub disable_span_reporting: Option<bool>,
    /// `None`: inherited; an empty map removes the inherited ones.
    pub custom_tags: Option<BTreeMap<String, CustomTag>>,
    pub use_request_id_for_trace_sampling: Option<bool>,
    pub enable_istio_tags: Option<bool>,
    pub disable_context_propagation: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModeSelector {
    pub mode: WorkloadMode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WorkloadMode {
    #[default]
    ClientAndServer,
    Client,
    Server,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderRef {
    pub name: String,
}

oneof_message! {
    /// The source of a span tag's value.
    #[derive(Hash)]
    pub enum CustomTag {
        /// Written as `{}`.
        Unset,
        Literal(Literal) = "literal",
        Environment(NamedValue) = "environment",
        Header(NamedValue) = "header",
        Formatter(Literal) = "formatter",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Literal {
    pub value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedValue {
    pub name: String,
    pub default_value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TelemetryMetrics {
    pub providers: Vec<ProviderRef>,
    pub overrides: Vec<MetricsOverrides>,
    pub reporting_interval: Option<Duration>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsOverrides {
    #[serde(rename = "match")]
    pub selector: Option<MetricSelector>,
    pub disabled: Option<bool>,
    pub tag_overrides: BTreeMap<String, TagOverride>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "RawMetricSelector", rename_all = "camelCase")]
pub struct MetricSelector {
    /// `None`: all of Istio's metrics.
    #[serde(flatten)]
    pub metric: Option<MetricMatch>,
    #[serde(skip_serializing_if = "is_default")]
    pub mode: WorkloadMode,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum MetricMatch {
    #[serde(rename = "metric")]
    Istio(IstioMetric),
    #[serde(rename = "customMetric")]
    Custom(String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum IstioMetric {
    #[default]
    AllMetrics,
    RequestCount,
    RequestDuration,
    RequestSize,
    ResponseSize,
    TcpOpenedConnections,
    TcpClosedConnections,
    TcpSentBytes,
    TcpReceivedBytes,
    GrpcRequestMessages,
    GrpcResponseMessages,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMetricSelector {
    metric: Option<IstioMetric>,
    custom_metric: Option<String>,
    mode: WorkloadMode,
}

impl TryFrom<RawMetricSelector> for MetricSelector {
    type Error = Conflict;

    fn try_from(raw: RawMetricSelector) -> Result<Self, Conflict> {
        let metric = one_of([
            ("metric", raw.metric.map(MetricMatch::Istio)),
            ("customMetric", raw.custom_metric.map(MetricMatch::Custom)),
        ])?;
        Ok(MetricSelector { metric, mode: raw.mode })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TagOverride {
    pub operation: TagOperation,
    /// A CEL expression.
    pub value: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TagOperation {
    #[default]
    Upsert,
    Remove,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessLogging {
    #[serde(rename = "match")]
    pub selector: Option<ModeSelector>,
    pub providers: Vec<ProviderRef>,
    pub disabled: Option<bool>,
    pub filter: Option<AccessLogFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessLogFilter {
    /// A CEL expression.
    pub expression: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{check_enum, example, parse_error};

    #[test]
    fn tracing() {
        let telemetry: Telemetry = example(
            "
selector: {matchLabels: {app: web}}
targetRef: {kind: Gateway, name: gw}
targetRefs: [{kind: Service, name: cart}]
tracing:
- match: {mode: CLIENT}
  providers: [{name: zip}]
  randomSamplingPercentage: 12.5
  disableSpanReporting: false
  useRequestIdForTraceSampling: true
  enableIstioTags: false
  disableContextPropagation: true
  customTags:
    a: {literal: {value: x}}
    b: {environment: {name: B, defaultValue: y}}
    c: {header: {name: x-c, defaultValue: z}}
    d: {formatter: {value: '%X%'}}
    e: {}
",
        );
        assert_eq!(telemetry.selector.unwrap().match_labels.get("app"), Some("web"));
        assert_eq!((&telemetry.target_ref.unwrap().name[..], &telemetry.target_refs[0].name[..]), ("gw", "cart"));
        let named = |name: &str, default: &str| NamedValue { name: name.into(), default_value: default.into() };
        let tags = [
            ("a", CustomTag::Literal(Literal { value: "x".into() })),
            ("b", CustomTag::Environment(named("B", "y"))),
            ("c", CustomTag::Header(named("x-c", "z"))),
            ("d", CustomTag::Formatter(Literal { value: "%X%".into() })),
            ("e", CustomTag::Unset),
        ];
        let expected = Tracing {
            selector: Some(ModeSelector { mode: WorkloadMode::Client }),
            providers: vec![ProviderRef { name: "zip".into() }],
            random_sampling_percentage: Some(12.5),
            disable_span_reporting: Some(false),
            custom_tags: Some(tags.map(|(name, tag)| (name.to_owned(), tag)).into()),
            use_request_id_for_trace_sampling: Some(true),
            enable_istio_tags: Some(false),
            disable_context_propagation: Some(true),
        };
        assert_eq!(telemetry.tracing, [expected]);
    }

    #[test]
    fn metrics_and_logs() {
        let telemetry: Telemetry = example(
            "
metrics:
- providers: [{name: prometheus}]
  reportingInterval: 5s
  overrides:
  - match: {metric: REQUEST_COUNT, mode: SERVER}
    disabled: false
    tagOverrides: {method: {operation: UPSERT, value: request.method}, old: {operation: REMOVE}}
  - match: {customMetric: mine}
accessLogging:
- match: {mode: SERVER}
  providers: [{name: envoy}]
  disabled: true
  filter: {expression: response.code >= 500}
",
        );
        let metrics = &telemetry.metrics[0];
        assert_eq!(metrics.providers, [ProviderRef { name: "prometheus".into() }]);
        assert_eq!(metrics.reporting_interval, Some(Duration::from_secs(5)));
        let [first, second] = &metrics.overrides[..] else { panic!("{metrics:?}") };
        let count = MetricMatch::Istio(IstioMetric::RequestCount);
        assert_eq!(first.selector, Some(MetricSelector { metric: Some(count), mode: WorkloadMode::Server }));
        assert_eq!(first.disabled, Some(false));
        assert_eq!(first.tag_overrides["method"].value, "request.method");
        assert_eq!(first.tag_overrides["old"].operation, TagOperation::Remove);
        assert_eq!(second.selector.as_ref().unwrap().metric, Some(MetricMatch::Custom("mine".into())));
        let logging = AccessLogging {
            selector: Some(ModeSelector { mode: WorkloadMode::Server }),
            providers: vec![ProviderRef { name: "envoy".into() }],
            disabled: Some(true),
            filter: Some(AccessLogFilter { expression: "response.code >= 500".into() }),
        };
        assert_eq!(telemetry.access_logging, [logging]);
    }

    #[test]
    fn enums() {
        check_enum(&[
            ("CLIENT_AND_SERVER", WorkloadMode::ClientAndServer),
            ("CLIENT", WorkloadMode::Client),
            ("SERVER", WorkloadMode::Server),
        ]);
        check_enum(&[("UPSERT", TagOperation::Upsert), ("REMOVE", TagOperation::Remove)]);
        check_enum(&[
            ("ALL_METRICS", IstioMetric::AllMetrics),
            ("REQUEST_COUNT", IstioMetric::RequestCount),
            ("REQUEST_DURATION", IstioMetric::RequestDuration),
            ("REQUEST_SIZE", IstioMetric::RequestSize),
            ("RESPONSE_SIZE", IstioMetric::ResponseSize),
            ("TCP_OPENED_CONNECTIONS", IstioMetric::TcpOpenedConnections),
            ("TCP_CLOSED_CONNECTIONS", IstioMetric::TcpClosedConnections),
            ("TCP_SENT_BYTES", IstioMetric::TcpSentBytes),
            ("TCP_RECEIVED_BYTES", IstioMetric::TcpReceivedBytes),
            ("GRPC_REQUEST_MESSAGES", IstioMetric::GrpcRequestMessages),
            ("GRPC_RESPONSE_MESSAGES", IstioMetric::GrpcResponseMessages),
        ]);
    }

    #[test]
    fn members_of_a_oneof_exclude_each_other() {
        assert_eq!(
            parse_error::<MetricSelector>("{metric: ALL_METRICS, customMetric: mine}"),
            "spec: metric and customMetric exclude each other; keep one of them"
        );
        assert_eq!(
            parse_error::<CustomTag>("{literal: {}, header: {}}"),
            "spec: literal and header exclude each other; keep one of them"
        );
    }
}
