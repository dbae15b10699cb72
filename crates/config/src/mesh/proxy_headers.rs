//! Headers that proxies add to requests and responses. A header that is `None` keeps the proxy's default.

use serde::{Deserialize, Serialize};

use super::proxy_config::ForwardClientCertDetails;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyHeaders {
    pub forwarded_client_cert: ForwardClientCertDetails,
    pub set_current_client_cert_details: Option<SetCurrentClientCertDetails>,
    pub request_id: Option<Disabled>,
    pub server: Option<ServerHeader>,
    pub attempt_count: Option<Disabled>,
    pub envoy_debug_headers: Option<Disabled>,
    pub metadata_exchange_headers: Option<MetadataExchangeHeaders>,
    pub preserve_http1_header_case: Option<bool>,
    pub x_forwarded_host: Option<Enabled>,
    pub x_forwarded_port: Option<Enabled>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disabled {
    pub disabled: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Enabled {
    pub enabled: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerHeader {
    pub disabled: Option<bool>,
    /// Empty: `istio-envoy`.
    pub value: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataExchangeHeaders {
    pub mode: MetadataExchangeMode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MetadataExchangeMode {
    #[default]
    Undefined,
    InMesh,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetCurrentClientCertDetails {
    pub subject: Option<bool>,
    pub cert: Option<bool>,
    pub chain: Option<bool>,
    pub dns: Option<bool>,
    pub uri: Option<bool>,
}
