//! Which services stay in their cluster, and who sees ServiceEntries.

use serde::{Deserialize, Serialize};

use super::label_selector::LabelSelector;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSettings {
    pub settings: Option<ServiceSettingsSettings>,
    /// A wildcard may stand in front.
    pub hosts: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSettingsSettings {
    pub cluster_local: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceScopeConfigs {
    pub namespace_selector: Option<LabelSelector>,
    pub services_selector: Option<LabelSelector>,
    pub scope: ServiceScope,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ServiceScope {
    #[default]
    Local,
    Global,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryVisibility {
    pub default_visibility: Visibility,
    pub apply_to_sidecars: bool,
    /// The first that matches holds.
    pub policies: Vec<VisibilityPolicy>,
}

/// `VisibilityUnspecified` means `Public`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Visibility {
    #[default]
    VisibilityUnspecified,
    None,
    Namespace,
    Public,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VisibilityPolicy {
    pub visibility: Visibility,
    /// All must match; empty matches everything.
    pub matching_rules: Vec<VisibilityMatchRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VisibilityMatchRule {
    /// Of the ServiceEntry's namespace. `None` never matches.
    pub namespace_selector: Option<LabelSelector>,
}
