//! Ports in Gateways, Sidecars, ServiceEntries and port-level settings. Ranges are validated with each kind.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioPort {
    pub number: u32,
    /// As written, e.g. `HTTP` or `grpc`; empty means TCP.
    pub protocol: String,
    pub name: String,
    /// 0: the same as `number`. Read on ServiceEntries only.
    pub target_port: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortSelector {
    pub number: u32,
}
