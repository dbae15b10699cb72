//! ConfigMap: string data. Binary data is not read.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    pub data: BTreeMap<String, String>,
}
