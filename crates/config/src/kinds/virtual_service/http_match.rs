//! Match conditions of an HTTP route. All fields of one entry must match.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::kinds::string_match::StringMatch;
use crate::labels::Labels;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMatchRequest {
    pub name: String,
    pub uri: Option<StringMatch>,
    pub scheme: Option<StringMatch>,
    pub method: Option<StringMatch>,
    pub authority: Option<StringMatch>,
    pub headers: BTreeMap<String, StringMatch>,
    /// 0: every port.
    pub port: u32,
    pub source_labels: Labels,
    /// Empty: the gateways of the VirtualService.
    pub gateways: Vec<String>,
    pub query_params: BTreeMap<String, StringMatch>,
    pub ignore_uri_case: bool,
    pub without_headers: BTreeMap<String, StringMatch>,
    pub source_namespace: String,
    pub stat_prefix: String,
}
