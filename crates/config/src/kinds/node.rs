//! Node: its labels, for the locality of its pods, and the version of its kubelet, for native sidecars.

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RawNode")]
pub struct Node {
    /// As `v1.34.1`. Empty: unknown.
    pub kubelet_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNode {
    status: RawStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    node_info: RawNodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawNodeInfo {
    kubelet_version: String,
}

impl From<RawNode> for Node {
    fn from(raw: RawNode) -> Node {
        Node { kubelet_version: raw.status.node_info.kubelet_version }
    }
}
