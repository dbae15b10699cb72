//! Which workloads a networking object is for: `workloadSelector: {labels: ..}`. Policies write `labels::Selector`.

use serde::{Deserialize, Serialize};

use crate::labels::Labels;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSelector {
    pub labels: Labels,
}
