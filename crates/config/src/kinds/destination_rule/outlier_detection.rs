//! Outlier detection: ejection of failing endpoints.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutlierDetection {
    /// Deprecated and without effect.
    pub consecutive_errors: i32,
    pub split_external_local_origin_errors: bool,
    pub consecutive_local_origin_failures: Option<u32>,
    pub consecutive_gateway_errors: Option<u32>,
    pub consecutive_5xx_errors: Option<u32>,
    pub interval: Option<Duration>,
    pub base_ejection_time: Option<Duration>,
    pub max_ejection_percent: i32,
    pub min_health_percent: i32,
    pub outlier_detection_http_error_codes: Vec<u32>,
}
