//! Mesh-wide traffic policies, and sources of configuration.

use serde::{Deserialize, Serialize};

use crate::kinds::client_tls::ClientTlsSettings;
use crate::kinds::destination_rule::{ConnectionPoolSettings, OutlierDetection};

/// `{}` is `RegistryOnly`, the protobuf default; absent it is `AllowAny`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutboundTrafficPolicy {
    pub mode: OutboundTrafficMode,
    pub tls: Option<ClientTlsSettings>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OutboundTrafficMode {
    #[default]
    RegistryOnly,
    AllowAny,
    AllowAnyDynamicDns,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InboundTrafficPolicy {
    pub mode: InboundTrafficMode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InboundTrafficMode {
    #[default]
    Passthrough,
    Localhost,
}

/// The policy of a cluster without settings in a DestinationRule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultTrafficPolicy {
    pub connection_pool: Option<ConnectionPoolSettings>,
    pub outlier_detection: Option<OutlierDetection>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathNormalization {
    pub normalization: PathNormalizationType,
}

/// `Default` means `Base`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PathNormalizationType {
    #[default]
    Default,
    None,
    Base,
    MergeSlashes,
    DecodeAndMergeSlashes,
}

/// Names of extension providers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultProviders {
    pub tracing: Vec<String>,
    pub metrics: Vec<String>,
    pub access_logging: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigSource {
    /// `k8s://`, `fs://path` or `xds://address`.
    pub address: String,
    pub tls_settings: Option<ClientTlsSettings>,
    pub subscribed_resources: Vec<ConfigSourceResource>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConfigSourceResource {
    #[default]
    ServiceRegistry,
}
