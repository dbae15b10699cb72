//! Facts about a mesh: the format of the page `/debug/facts`. They are collected in `collect`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    pub settings: EffectiveSettings,
    /// The type of the key that signs workload certificates, as of its certificate in force. Empty: this server signs none.
    pub signing_key: String,
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

impl Facts {
    /// Of a mesh whose proxies are connected to several replicas. Objects are those of the first.
    pub fn merged(replicas: &[Facts]) -> Facts {
        let mut all = replicas.first().cloned().unwrap_or_default();
        for other in replicas.iter().skip(1) {
            all.proxies += other.proxies;
            all.state_of_the_world.extend(other.state_of_the_world.iter().cloned());
            all.zombies.extend(other.zombies.iter().cloned());
            for rejection in &other.rejections {
                match all.rejections.iter_mut().find(|it| it.kind == rejection.kind && it.reason == rejection.reason) {
                    Some(known) => known.proxies.extend(rejection.proxies.iter().cloned()),
                    None => all.rejections.push(rejection.clone()),
                }
            }
            for unscoped in &other.unscoped {
                match all.unscoped.iter_mut().find(|it| it.namespace == unscoped.namespace) {
                    Some(known) => known.proxies += unscoped.proxies,
                    None => all.unscoped.push(unscoped.clone()),
                }
            }
            // A namespace whose proxies are all connected elsewhere is not idle.
            all.idle_namespaces.retain(|idle| other.idle_namespaces.contains(idle));
        }
        all
    }
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
    /// The lifetime of workload certificates.
    pub lifetime_seconds: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rejection {
    /// `CDS`, ...
    pub kind: String,
    pub reason: String,
    /// What the rejected resources were made from. Empty: the reason names no resource.
    pub objects: Vec<String>,
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
    /// What it imports from other namespaces, beside that of the control plane.
    pub hosts: Vec<ImportedHost>,
    /// Called, and no service of the mesh.
    pub unknown: Vec<String>,
    /// Services that a proxy knows now and not then.
    pub left_out: usize,
}

/// A host that a Sidecar imports, and why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImportedHost {
    pub host: String,
    pub namespace: String,
    /// Objects of the importing namespace name it.
    pub declared: bool,
    /// It was called in the time that was asked for.
    pub observed: bool,
    pub calls: f64,
    /// That call it.
    pub workloads: BTreeSet<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_of_several_replicas_are_one_mesh() {
        let replica = |proxy: &str, idle: &[&str]| Facts {
            proxies: 1,
            expected: 2,
            rejections: vec![Rejection { kind: "CDS".into(), proxies: vec![proxy.into()], ..Rejection::default() }],
            unscoped: vec![UnscopedNamespace { namespace: "shop".into(), proxies: 1, ..UnscopedNamespace::default() }],
            idle_namespaces: idle
                .iter()
                .map(|namespace| IdleNamespace { namespace: (*namespace).into(), services: 1 })
                .collect(),
            ..Facts::default()
        };
        let all = Facts::merged(&[replica("a.shop", &["bank", "old"]), replica("b.shop", &["old"])]);
        assert_eq!((all.proxies, all.expected, all.unscoped[0].proxies), (2, 2, 2));
        assert_eq!(all.rejections[0].proxies, ["a.shop", "b.shop"]);
        assert_eq!(all.idle_namespaces.iter().map(|it| it.namespace.as_str()).collect::<Vec<_>>(), ["old"]);
    }
}
