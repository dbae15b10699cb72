//! Limits, timeouts and keepalive of connections. Zero means unlimited in all counts.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionPoolSettings {
    pub tcp: Option<TcpSettings>,
    pub http: Option<HttpSettings>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpSettings {
    pub max_connections: i32,
    pub connect_timeout: Option<Duration>,
    pub tcp_keepalive: Option<TcpKeepalive>,
    pub max_connection_duration: Option<Duration>,
    pub idle_timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpKeepalive {
    pub probes: u32,
    pub time: Option<Duration>,
    pub interval: Option<Duration>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpSettings {
    pub http1_max_pending_requests: i32,
    pub http2_max_requests: i32,
    pub max_requests_per_connection: i32,
    pub max_retries: i32,
    pub idle_timeout: Option<Duration>,
    pub h2_upgrade_policy: H2UpgradePolicy,
    pub use_client_protocol: bool,
    pub max_concurrent_streams: i32,
    pub http2_keep_alive: Option<ConnectionKeepalive>,
}

/// `Default` is the mesh config's setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum H2UpgradePolicy {
    #[default]
    Default,
    DoNotUpgrade,
    Upgrade,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionKeepalive {
    pub interval: Option<Duration>,
    pub timeout: Option<Duration>,
}
