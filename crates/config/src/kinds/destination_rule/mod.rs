//! DestinationRule: traffic policies of a host. Merging and inheritance are in `model`.
//! A block that is `None` was not set.

mod connection_pool;
mod load_balancer;
mod outlier_detection;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::client_tls::ClientTlsSettings;
use super::port::PortSelector;
use crate::duration::Duration;
use crate::labels::{Labels, Selector};

pub use connection_pool::{
    ConnectionKeepalive, ConnectionPoolSettings, H2UpgradePolicy, HttpSettings, TcpKeepalive, TcpSettings,
};
pub use load_balancer::{
    ConsistentHash, CookieAttribute, Distribute, Failover, HashAlgorithm, HashKey, HttpCookie, LbPolicy,
    LoadBalancerSettings, LocalityLoadBalancerSetting, MagLev, RingHash, SimpleLb, WarmupConfiguration,
    ZoneAwareLoadBalancerSetting,
};
pub use outlier_detection::OutlierDetection;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DestinationRule {
    /// As written: a short name is relative to the namespace of the rule.
    pub host: String,
    /// Shared with merged rules.
    pub traffic_policy: Option<Arc<TrafficPolicy>>,
    pub subsets: Vec<Subset>,
    pub export_to: Vec<String>,
    /// `None`: all clients. Otherwise only these, of the rule's own namespace.
    pub workload_selector: Option<Selector>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    pub name: String,
    pub labels: Labels,
    pub traffic_policy: Option<Arc<TrafficPolicy>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficPolicy {
    pub load_balancer: Option<LoadBalancerSettings>,
    pub connection_pool: Option<ConnectionPoolSettings>,
    pub outlier_detection: Option<OutlierDetection>,
    pub tls: Option<ClientTlsSettings>,
    pub port_level_settings: Vec<PortTrafficPolicy>,
    pub tunnel: Option<TunnelSettings>,
    pub proxy_protocol: Option<ProxyProtocol>,
    pub retry_budget: Option<RetryBudget>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortTrafficPolicy {
    pub port: Option<PortSelector>,
    pub load_balancer: Option<LoadBalancerSettings>,
    pub connection_pool: Option<ConnectionPoolSettings>,
    pub outlier_detection: Option<OutlierDetection>,
    pub tls: Option<ClientTlsSettings>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TunnelSettings {
    /// `CONNECT` or `POST`; empty means `CONNECT`.
    pub protocol: String,
    pub target_host: String,
    pub target_port: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyProtocol {
    pub version: ProxyProtocolVersion,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProxyProtocolVersion {
    #[default]
    V1,
    V2,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryBudget {
    /// `None`: 20.
    pub percent: Option<f64>,
    pub min_retry_concurrency: u32,
    pub budget_interval: Option<Duration>,
}
