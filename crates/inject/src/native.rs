//! Whether the proxy is a native sidecar, an init container that restarts: by setting, or by the versions of the kubelets.

use config::kinds::node::Node;
use config::meta::Object;
use config::store::{Name, Snapshot};

use crate::pod::Pod;

pub(crate) const ANNOTATION: &str = "sidecar.istio.io/nativeSidecar";
/// The minor version of Kubernetes in which native sidecars became stable.
const FIRST_MINOR: u64 = 33;

/// ENABLE_NATIVE_SIDECARS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeSidecars {
    /// If the pod's Node, or every Node, is new enough.
    Auto,
    On,
    Off,
}

impl NativeSidecars {
    /// istiod takes any other value for `false`.
    pub fn parse(text: &str) -> NativeSidecars {
        match text {
            "auto" => NativeSidecars::Auto,
            "true" => NativeSidecars::On,
            _ => NativeSidecars::Off,
        }
    }

    /// `own_cluster`: the pod is in the cluster whose Nodes are known.
    pub(crate) fn applies(self, pod: &Pod, objects: &Snapshot, own_cluster: bool) -> bool {
        match self {
            NativeSidecars::On => true,
            NativeSidecars::Off => false,
            NativeSidecars::Auto => own_cluster && nodes_support(pod, objects),
        }
    }
}

fn nodes_support(pod: &Pod, objects: &Snapshot) -> bool {
    let bound = pod.spec()["nodeName"].as_str().and_then(|node| objects.nodes.get(&Name::new("", node)));
    match bound {
        Some(node) => supports(node),
        None => objects.nodes.values().all(|node| supports(node)),
    }
}

fn supports(node: &Object<Node>) -> bool {
    let version = &node.spec.kubelet_version;
    let mut numbers = version.strip_prefix('v').unwrap_or(version).split(['.', '-', '+']);
    let minor = numbers.nth(1).and_then(|minor| minor.parse::<u64>().ok());
    minor.is_some_and(|minor| minor >= FIRST_MINOR)
}
