//! Facts about a mesh: the format of the page `/debug/facts`. They are collected in `collect`.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    pub settings: EffectiveSettings,
    pub services: usize,
    pub proxies: usize,
    /// Live pods with a sidecar.
    pub expected: usize,
    /// Proxies that are sent everything at every push.
    pub state_of_the_world: Vec<String>,
    /// Proxies whose workload no longer exists.
    pub zombies: Vec<String>,
    pub rejections: Vec<Rejection>,
    pub unscoped: Vec<UnscopedNamespace>,
    pub broad_filters: Vec<String>,
    pub wildcard_entries: Vec<String>,
    pub long_entries: Vec<LongEntry>,
    pub doubled_entries: Vec<DuplicateEntry>,
    pub repeated_policies: Vec<RepeatedPolicies>,
    pub idle_namespaces: Vec<IdleNamespace>,
}

/// The settings of the server that the checks look at.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EffectiveSettings {
    /// Empty: the default.
    pub revision: String,
    pub debounce_after_ms: u64,
    pub debounce_max_ms: u64,
    pub push_throttle: usize,
    /// The key type of the CA; empty: there is none.
    pub key: String,
    /// The lifetime of workload certificates.
    pub lifetime_seconds: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rejection {
    /// `CDS`, ...
    pub kind: String,
    pub reason: String,
    pub proxies: Vec<String>,
}

/// A namespace without a Sidecar, and what one would save.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnscopedNamespace {
    pub namespace: String,
    pub proxies: usize,
    /// The proxy that was measured.
    pub sample: String,
    pub before: ConfigSize,
    pub after: ConfigSize,
    /// Ready to be applied.
    pub sidecar: String,
}

/// The size of the configuration of one proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigSize {
    pub clusters: usize,
    pub bytes: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LongEntry {
    pub entry: String,
    pub addresses: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DuplicateEntry {
    pub entry: String,
    pub service: String,
}

/// Equal policies of one namespace, each for one workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepeatedPolicies {
    /// In the plural.
    pub kind: String,
    pub namespace: String,
    pub policies: Vec<String>,
}

/// A namespace with services, and no workload of the mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdleNamespace {
    pub namespace: String,
    pub services: usize,
}
