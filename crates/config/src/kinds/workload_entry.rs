//! WorkloadEntry: one endpoint outside Kubernetes, on its own or inside a ServiceEntry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::labels::Labels;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadEntry {
    /// An IP address, a host name, or `unix://` and a path.
    pub address: String,
    /// Port name of the service to port number of this endpoint.
    pub ports: BTreeMap<String, u32>,
    pub labels: Labels,
    pub network: String,
    /// `region/zone/subzone` as written; empty if unknown.
    pub locality: String,
    /// 0 means 1.
    pub weight: u32,
    pub service_account: String,
    /// Written by a controller.
    pub status: WorkloadEntryStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadEntryStatus {
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}
