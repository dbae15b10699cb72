//! Cluster-local services, and visibility of ServiceEntries.

use serde::{Deserialize, Serialize};

use super::label_selector::LabelSelector;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSettings {
    pub settings: Option<ServiceSettingsSettings>,
    /// May begin with a wildcard.
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
    pub default_visibility: EntryVisibility,
    pub apply_to_sidecars: bool,
    /// The first match applies.
    pub policies: Vec<VisibilityPolicy>,
}

/// `VisibilityUnspecified` means `Public`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EntryVisibility {
    #[default]
    VisibilityUnspecified,
    None,
    Namespace,
    Public,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VisibilityPolicy {
    pub visibility: EntryVisibility,
    /// All must match; empty matches everything.
    pub matching_rules: Vec<VisibilityMatchRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VisibilityMatchRule {
    /// Of the ServiceEntry's namespace. `None` never matches.
    pub namespace_selector: Option<LabelSelector>,
}
