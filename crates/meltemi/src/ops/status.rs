//! How far each proxy has come: the page behind `meltemi proxies`, and what both sides of it agree on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One stream of one proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProxyStatus {
    /// `pod.namespace`.
    pub(crate) proxy: String,
    pub(crate) namespace: String,
    #[serde(rename = "type")]
    pub(crate) proxy_type: String,
    pub(crate) version: String,
    pub(crate) connection_id: String,
    pub(crate) address: String,
    /// RFC 3339.
    pub(crate) connected_at: String,
    /// By short name: `CDS`, `LDS`, ... Types that the proxy did not ask for are not here.
    pub(crate) types: BTreeMap<String, TypeStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TypeStatus {
    pub(crate) state: State,
    /// Why the proxy rejected it; empty unless the state is ERROR.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    pub(crate) sent: String,
    pub(crate) acked: String,
    /// RFC 3339; empty: nothing was sent.
    pub(crate) sent_at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    #[serde(rename = "SYNCED")]
    Synced,
    /// Sent, and not answered yet.
    #[serde(rename = "STALE")]
    Stale,
    #[serde(rename = "NOT SENT")]
    NotSent,
    /// The last answer was a rejection.
    #[serde(rename = "ERROR")]
    Error,
}

impl From<xds::Status> for State {
    fn from(status: xds::Status) -> State {
        match status {
            xds::Status::NotSent => State::NotSent,
            xds::Status::Stale => State::Stale,
            xds::Status::Synced => State::Synced,
            xds::Status::Error => State::Error,
        }
    }
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Synced => "SYNCED",
            State::Stale => "STALE",
            State::NotSent => "NOT SENT",
            State::Error => "ERROR",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_as_it_is_named() {
        for state in [State::Synced, State::Stale, State::NotSent, State::Error] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
