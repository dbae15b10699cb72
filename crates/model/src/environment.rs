//! What the process was told at start and translation depends on. Read from flags and the environment elsewhere.

/// Data, not globals: two environments give two meshes in one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `--domain`: the DNS suffix of services.
    pub domain: String,
    /// `--clusterID`: the cluster whose objects these are.
    pub cluster_id: String,
    /// Where the control plane runs; holds its mesh config.
    pub pod_namespace: String,
    /// `--derive-endpoints`: a Service without a slice takes its endpoints from the pods that it selects.
    pub derive_endpoints: bool,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            domain: "cluster.local".into(),
            cluster_id: "Kubernetes".into(),
            pod_namespace: "istio-system".into(),
            derive_endpoints: false,
        }
    }
}
