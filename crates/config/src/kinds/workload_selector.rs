//! `workloadSelector: {labels: ..}` of networking objects. Policies use `labels::Selector`.

use serde::{Deserialize, Serialize};

use crate::labels::Labels;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSelector {
    pub labels: Labels,
}
