//! Actions of an HTTP route besides its destinations: redirects, rewrites, retries, faults, CORS, direct responses.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Percent;
use crate::duration::Duration;
use crate::kinds::one_of::{Conflict, one_of, oneof_message};
use crate::kinds::string_match::StringMatch;
use crate::ser::is_default;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Delegate {
    pub name: String,
    /// Empty: the namespace of the VirtualService that delegates.
    pub namespace: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "RawRedirect", rename_all = "camelCase")]
pub struct HttpRedirect {
    #[serde(skip_serializing_if = "is_default")]
    pub uri: String,
    #[serde(skip_serializing_if = "is_default")]
    pub authority: String,
    /// `None`: the port of the scheme.
    #[serde(flatten)]
    pub port: Option<RedirectPort>,
    #[serde(skip_serializing_if = "is_default")]
    pub scheme: String,
    /// 0 means 301.
    #[serde(skip_serializing_if = "is_default")]
    pub redirect_code: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub prefix_rewrite: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum RedirectPort {
    #[serde(rename = "port")]
    Number(u32),
    #[serde(rename = "derivePort")]
    Derived(RedirectPortSelection),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RedirectPortSelection {
    #[default]
    FromProtocolDefault,
    FromRequestPort,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawRedirect {
    uri: String,
    authority: String,
    port: Option<u32>,
    derive_port: Option<RedirectPortSelection>,
    scheme: String,
    redirect_code: u32,
    prefix_rewrite: String,
}

impl TryFrom<RawRedirect> for HttpRedirect {
    type Error = Conflict;

    fn try_from(raw: RawRedirect) -> Result<Self, Conflict> {
        let RawRedirect { uri, authority, port, derive_port, scheme, redirect_code, prefix_rewrite } = raw;
        let port =
            one_of([("port", port.map(RedirectPort::Number)), ("derivePort", derive_port.map(RedirectPort::Derived))])?;
        Ok(HttpRedirect { uri, authority, port, scheme, redirect_code, prefix_rewrite })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpDirectResponse {
    pub status: u32,
    pub body: Option<HttpBody>,
}

oneof_message! {
    pub enum HttpBody {
        /// Written as `{}`.
        Empty,
        String(String) = "string",
        Bytes(BodyBytes) = "bytes",
    }
}

/// Written in base64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BodyBytes(pub Vec<u8>);

impl Serialize for BodyBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for BodyBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BodyBytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64.decode(text.as_bytes()).map(BodyBytes).map_err(|e| {
            de::Error::custom(format!("not base64 ({e}); encode the bytes, or write the text under string"))
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRewrite {
    pub uri: String,
    pub authority: String,
    pub uri_regex_rewrite: Option<RegexRewrite>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegexRewrite {
    #[serde(rename = "match")]
    pub pattern: String,
    pub rewrite: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRetry {
    pub attempts: i32,
    pub per_try_timeout: Option<Duration>,
    pub retry_on: String,
    pub retry_remote_localities: Option<bool>,
    pub retry_ignore_previous_hosts: Option<bool>,
    pub backoff: Option<Duration>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CorsPolicy {
    /// Deprecated spelling of exact `allow_origins`.
    pub allow_origin: Vec<String>,
    pub allow_origins: Vec<StringMatch>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    pub expose_headers: Vec<String>,
    pub max_age: Option<Duration>,
    pub allow_credentials: Option<bool>,
    pub unmatched_preflights: UnmatchedPreflights,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UnmatchedPreflights {
    #[default]
    Unspecified,
    Forward,
    Ignore,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpFaultInjection {
    pub delay: Option<HttpFaultDelay>,
    pub abort: Option<HttpFaultAbort>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "RawDelay", rename_all = "camelCase")]
pub struct HttpFaultDelay {
    /// Deprecated spelling of `percentage`, in whole percent.
    #[serde(skip_serializing_if = "is_default")]
    pub percent: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<Percent>,
    #[serde(flatten)]
    pub time: Option<DelayTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum DelayTime {
    #[serde(rename = "fixedDelay")]
    Fixed(Duration),
    #[serde(rename = "exponentialDelay")]
    Exponential(Duration),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawDelay {
    percent: i32,
    percentage: Option<Percent>,
    fixed_delay: Option<Duration>,
    exponential_delay: Option<Duration>,
}

impl TryFrom<RawDelay> for HttpFaultDelay {
    type Error = Conflict;

    fn try_from(raw: RawDelay) -> Result<Self, Conflict> {
        let RawDelay { percent, percentage, fixed_delay, exponential_delay } = raw;
        let time = one_of([
            ("fixedDelay", fixed_delay.map(DelayTime::Fixed)),
            ("exponentialDelay", exponential_delay.map(DelayTime::Exponential)),
        ])?;
        Ok(HttpFaultDelay { percent, percentage, time })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "RawAbort", rename_all = "camelCase")]
pub struct HttpFaultAbort {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<Percent>,
    #[serde(flatten)]
    pub error: Option<AbortError>,
}

/// The names of gRPC status codes, by number.
pub const GRPC_STATUS: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum AbortError {
    HttpStatus(i32),
    GrpcStatus(String),
    Http2Error(String),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawAbort {
    percentage: Option<Percent>,
    http_status: Option<i32>,
    grpc_status: Option<String>,
    http2_error: Option<String>,
}

impl TryFrom<RawAbort> for HttpFaultAbort {
    type Error = Conflict;

    fn try_from(raw: RawAbort) -> Result<Self, Conflict> {
        let RawAbort { percentage, http_status, grpc_status, http2_error } = raw;
        let error = one_of([
            ("httpStatus", http_status.map(AbortError::HttpStatus)),
            ("grpcStatus", grpc_status.map(AbortError::GrpcStatus)),
            ("http2Error", http2_error.map(AbortError::Http2Error)),
        ])?;
        Ok(HttpFaultAbort { percentage, error })
    }
}
