//! The sync state of each proxy: the page behind `meltemi proxies`, and its format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One stream of one proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyStatus {
    /// `pod.namespace`.
    pub proxy: String,
    pub namespace: String,
    #[serde(rename = "type")]
    pub proxy_type: String,
    pub version: String,
    pub connection_id: String,
    pub address: String,
    /// RFC 3339.
    pub connected_at: String,
    /// By short name: `CDS`, `LDS`, ... Types without a subscription are not listed.
    pub types: BTreeMap<String, TypeStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeStatus {
    pub state: SyncState,
    /// Why the proxy rejected it; empty unless the state is ERROR.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub sent: String,
    pub acked: String,
    /// RFC 3339; empty: nothing was sent.
    pub sent_at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncState {
    #[serde(rename = "SYNCED")]
    Synced,
    /// Sent, and neither ACKed nor NACKed yet.
    #[serde(rename = "STALE")]
    Stale,
    #[serde(rename = "NOT SENT")]
    NotSent,
    /// The last response was NACKed.
    #[serde(rename = "ERROR")]
    Error,
}

impl From<xds::SyncStatus> for SyncState {
    fn from(status: xds::SyncStatus) -> SyncState {
        match status {
            xds::SyncStatus::NotSent => SyncState::NotSent,
            xds::SyncStatus::Stale => SyncState::Stale,
            xds::SyncStatus::Synced => SyncState::Synced,
            xds::SyncStatus::Error => SyncState::Error,
        }
    }
}

impl SyncState {
    pub fn name(self) -> &'static str {
        match self {
            SyncState::Synced => "SYNCED",
            SyncState::Stale => "STALE",
            SyncState::NotSent => "NOT SENT",
            SyncState::Error => "ERROR",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_serialize_to_their_names() {
        for state in [SyncState::Synced, SyncState::Stale, SyncState::NotSent, SyncState::Error] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
