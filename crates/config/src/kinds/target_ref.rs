//! The object a policy is attached to: a Gateway, GatewayClass, Service or ServiceEntry.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    /// Empty for core Kubernetes kinds.
    pub group: String,
    pub kind: String,
    pub name: String,
    /// Empty: the namespace of the policy.
    pub namespace: String,
}
