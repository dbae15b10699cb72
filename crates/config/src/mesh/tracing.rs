//! Tracing in the proxy settings, the predecessor of the Telemetry API and its extension providers.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::kinds::client_tls::ClientTlsSettings;
use crate::kinds::one_of::{Conflict, one_of, oneof_message};
use crate::kinds::telemetry::{Literal, NamedValue};
use crate::ser::is_default;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "RawTracing", rename_all = "camelCase")]
pub struct ProxyTracing {
    #[serde(flatten)]
    pub tracer: Option<Tracer>,
    #[serde(skip_serializing_if = "is_default")]
    pub custom_tags: BTreeMap<String, TracingCustomTag>,
    /// 0: 256.
    #[serde(skip_serializing_if = "is_default")]
    pub max_path_tag_length: u32,
    /// Percent. 0: the control plane's default.
    #[serde(skip_serializing_if = "is_default")]
    pub sampling: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_settings: Option<ClientTlsSettings>,
    /// `None`: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_istio_tags: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Tracer {
    Zipkin(TracerAddress),
    Lightstep(TracerWithToken),
    Datadog(TracerAddress),
    Stackdriver(StackdriverTracer),
    OpenCensusAgent(OpenCensusTracer),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawTracing {
    zipkin: Option<TracerAddress>,
    lightstep: Option<TracerWithToken>,
    datadog: Option<TracerAddress>,
    stackdriver: Option<StackdriverTracer>,
    open_census_agent: Option<OpenCensusTracer>,
    custom_tags: BTreeMap<String, TracingCustomTag>,
    max_path_tag_length: u32,
    sampling: f64,
    tls_settings: Option<ClientTlsSettings>,
    enable_istio_tags: Option<bool>,
}

impl TryFrom<RawTracing> for ProxyTracing {
    type Error = Conflict;

    fn try_from(raw: RawTracing) -> Result<Self, Conflict> {
        let tracer = one_of([
            ("zipkin", raw.zipkin.map(Tracer::Zipkin)),
            ("lightstep", raw.lightstep.map(Tracer::Lightstep)),
            ("datadog", raw.datadog.map(Tracer::Datadog)),
            ("stackdriver", raw.stackdriver.map(Tracer::Stackdriver)),
            ("openCensusAgent", raw.open_census_agent.map(Tracer::OpenCensusAgent)),
        ])?;
        Ok(ProxyTracing {
            tracer,
            custom_tags: raw.custom_tags,
            max_path_tag_length: raw.max_path_tag_length,
            sampling: raw.sampling,
            tls_settings: raw.tls_settings,
            enable_istio_tags: raw.enable_istio_tags,
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TracerAddress {
    pub address: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TracerWithToken {
    pub address: String,
    pub access_token: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackdriverTracer {
    pub debug: bool,
    #[serde(deserialize_with = "int64")]
    pub max_number_of_attributes: Option<i64>,
    #[serde(deserialize_with = "int64")]
    pub max_number_of_annotations: Option<i64>,
    #[serde(deserialize_with = "int64")]
    pub max_number_of_message_events: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenCensusTracer {
    pub address: String,
    pub context: Vec<TraceContext>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TraceContext {
    #[default]
    Unspecified,
    W3cTraceContext,
    GrpcBin,
    CloudTraceContext,
    B3,
}

oneof_message! {
    /// The source of a span tag's value. Telemetry objects have one more form.
    #[derive(Hash)]
    pub enum TracingCustomTag {
        /// Written as `{}`.
        Unset,
        Literal(Literal) = "literal",
        Environment(NamedValue) = "environment",
        Header(NamedValue) = "header",
    }
}

/// Protobuf's JSON encodes 64-bit numbers as strings; agents do so in their node metadata.
pub(super) fn int64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    struct Int64;

    impl de::Visitor<'_> for Int64 {
        type Value = Option<i64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number")
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
            Ok(Some(number))
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
            i64::try_from(number).map(Some).map_err(E::custom)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            text.parse().map(Some).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Int64)
}
