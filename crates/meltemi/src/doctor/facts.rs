//! What a server tells of its mesh: the page `/debug/facts`, and what both sides of it agree on. How it is found out is in `gather`.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Facts {
    pub(crate) settings: Chosen,
    pub(crate) services: usize,
    pub(crate) proxies: usize,
    /// Live pods with a sidecar.
    pub(crate) expected: usize,
    /// Proxies that are sent everything at every push.
    pub(crate) state_of_the_world: Vec<String>,
    /// Proxies for which no object stands.
    pub(crate) zombies: Vec<String>,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) unscoped: Vec<Unscoped>,
    pub(crate) broad_filters: Vec<String>,
    pub(crate) wildcard_entries: Vec<String>,
    pub(crate) long_entries: Vec<Long>,
    pub(crate) doubled_entries: Vec<Doubled>,
    pub(crate) repeated_policies: Vec<Repeated>,
    pub(crate) idle_namespaces: Vec<Idle>,
}

/// Settings of the server that matter here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Chosen {
    pub(crate) debounce_after_ms: u64,
    pub(crate) debounce_max_ms: u64,
    pub(crate) push_throttle: usize,
    /// Of the authority; empty: there is none.
    pub(crate) key: String,
    /// How long the certificate of a workload lasts.
    pub(crate) lifetime_seconds: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Refusal {
    /// `CDS`, ...
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) proxies: Vec<String>,
}

/// A namespace without a Sidecar, and what one would do for a proxy of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Unscoped {
    pub(crate) namespace: String,
    pub(crate) proxies: usize,
    /// The proxy that was measured.
    pub(crate) sample: String,
    pub(crate) before: Burden,
    pub(crate) after: Burden,
    /// Ready to be applied.
    pub(crate) sidecar: String,
}

/// What one proxy carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Burden {
    pub(crate) clusters: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Long {
    pub(crate) entry: String,
    pub(crate) addresses: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Doubled {
    pub(crate) entry: String,
    pub(crate) service: String,
}

/// Policies of one namespace that say the same of one workload each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Repeated {
    /// In the plural.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) policies: Vec<String>,
}

/// A namespace with services, and no workload of the mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Idle {
    pub(crate) namespace: String,
    pub(crate) services: usize,
}
