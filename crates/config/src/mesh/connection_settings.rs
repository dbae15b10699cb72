//! Limits and timeouts of a proxy's connections. `None` keeps the profile's value.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionSettings {
    pub profile: ConnectionProfile,
    pub listener_per_connection_buffer_limit_bytes: Option<i32>,
    pub cluster_per_connection_buffer_limit_bytes: Option<i32>,
    pub http_idle_timeout: Option<Duration>,
    pub http_max_connection_duration: Option<Duration>,
    pub http_drain_timeout: Option<Duration>,
    pub http_request_timeout: Option<Duration>,
    pub http_request_headers_timeout: Option<Duration>,
    pub http_stream_idle_timeout: Option<Duration>,
    pub http_max_stream_duration: Option<Duration>,
    pub http_max_concurrent_streams: Option<i32>,
    pub http2_initial_stream_window_size: Option<i32>,
    pub http2_initial_connection_window_size: Option<i32>,
    pub http_headers_with_underscores_action: HeadersWithUnderscoresAction,
    pub http_merge_slashes: Option<bool>,
    pub http_path_with_escaped_slashes_action: PathWithEscapedSlashesAction,
    pub listener_connection_limit: Option<i32>,
    pub global_downstream_connection_limit: Option<i32>,
}

/// `Edge` changes defaults on gateways only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConnectionProfile {
    #[default]
    Sidecar,
    Edge,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum HeadersWithUnderscoresAction {
    #[default]
    #[serde(rename = "HEADERS_WITH_UNDERSCORES_UNSPECIFIED")]
    Unspecified,
    #[serde(rename = "HEADERS_WITH_UNDERSCORES_ALLOW")]
    Allow,
    #[serde(rename = "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST")]
    RejectRequest,
    #[serde(rename = "HEADERS_WITH_UNDERSCORES_DROP_HEADER")]
    DropHeader,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PathWithEscapedSlashesAction {
    #[default]
    #[serde(rename = "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED")]
    Unspecified,
    KeepUnchanged,
    RejectRequest,
    UnescapeAndRedirect,
    UnescapeAndForward,
}
