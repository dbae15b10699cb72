//! The objects that decide on an injection: of a folder, or of an API server.

use std::path::Path;

use anyhow::{Context, Result};
use config::store::Name;
use serde_json::Value;
use sources::files::Folder;
use sources::kube::{ApiAccess, JSON, KubeClient, RequestError};

use super::super::inject::parsed;

/// There are few requests.
const RATE: u32 = 20;

pub(super) enum CheckedObjects {
    Folder(Vec<Value>),
    Cluster(KubeClient),
}

/// A kind, and where an API server has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ApiKind {
    pub(super) kind: &'static str,
    /// As `kubectl` takes it too.
    short: &'static str,
    version: &'static str,
    plural: &'static str,
}

const fn api_kind(kind: &'static str, short: &'static str, version: &'static str, plural: &'static str) -> ApiKind {
    ApiKind { kind, short, version, plural }
}

pub(super) const POD: ApiKind = api_kind("Pod", "po", "v1", "pods");
pub(super) const DEPLOYMENT: ApiKind = api_kind("Deployment", "deploy", "apps/v1", "deployments");
pub(super) const NAMESPACE: ApiKind = api_kind("Namespace", "ns", "v1", "namespaces");
pub(super) const CONFIG_MAP: ApiKind = api_kind("ConfigMap", "cm", "v1", "configmaps");
pub(super) const NODE: ApiKind = api_kind("Node", "no", "v1", "nodes");
pub(super) const PROXY_CONFIG: ApiKind = api_kind("ProxyConfig", "", "networking.istio.io/v1beta1", "proxyconfigs");
pub(super) const WEBHOOKS: ApiKind =
    api_kind("MutatingWebhookConfiguration", "", "admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations");
/// Kinds that hold a pod.
const WORKLOADS: [ApiKind; 8] = [
    POD,
    DEPLOYMENT,
    api_kind("StatefulSet", "sts", "apps/v1", "statefulsets"),
    api_kind("DaemonSet", "ds", "apps/v1", "daemonsets"),
    api_kind("ReplicaSet", "rs", "apps/v1", "replicasets"),
    api_kind("ReplicationController", "rc", "v1", "replicationcontrollers"),
    api_kind("Job", "", "batch/v1", "jobs"),
    api_kind("CronJob", "cj", "batch/v1", "cronjobs"),
];

impl ApiKind {
    /// By its name in any case, plural or short form.
    pub(super) fn workload(name: &str) -> Option<ApiKind> {
        let name = name.to_ascii_lowercase();
        let is_meant =
            |it: &&ApiKind| [it.kind.to_ascii_lowercase().as_str(), it.short, it.plural].contains(&name.as_str());
        WORKLOADS.iter().filter(|_| !name.is_empty()).find(is_meant).copied()
    }

    /// `namespace`: empty for all, or for kinds without.
    fn path(self, namespace: &str) -> String {
        let root = if self.version.contains('/') { "apis" } else { "api" };
        let within = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
        format!("/{root}/{}/{within}{}", self.version, self.plural)
    }
}

impl CheckedObjects {
    pub(super) fn of_folder(dir: &Path) -> Result<CheckedObjects> {
        std::fs::read_dir(dir).with_context(|| format!("cannot read the folder {}", dir.display()))?;
        let mut folder = Folder::open(dir);
        folder.scan();
        let mut found = Vec::new();
        for path in folder.paths() {
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
            for object in parsed(&text, &shown)? {
                match object["items"].as_array().filter(|_| object["kind"] == "List") {
                    Some(items) => found.extend(items.iter().cloned()),
                    None => found.push(object),
                }
            }
        }
        Ok(CheckedObjects::Folder(found))
    }

    pub(super) async fn of_cluster(kubeconfig: Option<&Path>) -> Result<CheckedObjects> {
        let access = ApiAccess { kubeconfig: kubeconfig.map(Path::to_owned), rate: RATE };
        Ok(CheckedObjects::Cluster(KubeClient::new(&access).await?))
    }

    /// `None`: there is none. The name of a kind without namespaces has an empty one.
    pub(super) async fn object(&self, kind: ApiKind, name: &Name) -> Result<Option<Value>> {
        match self {
            CheckedObjects::Folder(objects) => {
                let is_meant = |it: &&Value| {
                    let (namespace, own) = (&it["metadata"]["namespace"], &it["metadata"]["name"]);
                    let namespace = namespace.as_str().unwrap_or("default");
                    it["kind"] == kind.kind
                        && own.as_str() == Some(&*name.name)
                        && (name.namespace.is_empty() || *namespace == *name.namespace)
                };
                Ok(objects.iter().find(is_meant).cloned())
            }
            CheckedObjects::Cluster(client) => {
                let found = get(client, &format!("{}/{}", kind.path(&name.namespace), name.name)).await?;
                Ok(found.map(|object| named(object, kind)))
            }
        }
    }

    /// Those of a namespace; of all if it is empty.
    pub(super) async fn all(&self, kind: ApiKind, namespace: &str) -> Result<Vec<Value>> {
        match self {
            CheckedObjects::Folder(objects) => {
                let is_within = |it: &Value| namespace.is_empty() || it["metadata"]["namespace"] == namespace;
                Ok(objects.iter().filter(|it| it["kind"] == kind.kind && is_within(it)).cloned().collect())
            }
            CheckedObjects::Cluster(client) => {
                let list = get(client, &kind.path(namespace)).await?.unwrap_or_default();
                let items = list["items"].as_array().cloned().unwrap_or_default();
                Ok(items.into_iter().map(|object| named(object, kind)).collect())
            }
        }
    }
}

/// The items of a list have neither.
fn named(mut object: Value, kind: ApiKind) -> Value {
    object["kind"] = kind.kind.into();
    object["apiVersion"] = kind.version.into();
    object
}

/// `None`: there is none, or no such kind.
async fn get(client: &KubeClient, path: &str) -> Result<Option<Value>> {
    match client.get(path, JSON).await {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(RequestError::Status { code: 404, .. }) => Ok(None),
        Err(failure) => Err(failure).with_context(|| format!("cannot ask the API server for {path}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_kubectl_takes_them() {
        for name in ["deployment", "Deployment", "deployments", "deploy"] {
            assert_eq!(ApiKind::workload(name), Some(DEPLOYMENT), "{name}");
        }
        assert_eq!(
            ApiKind::workload("job").map(|it| it.path("shop")).as_deref(),
            Some("/apis/batch/v1/namespaces/shop/jobs")
        );
        for name in ["", "service", "po d"] {
            assert_eq!(ApiKind::workload(name), None, "{name}");
        }
    }
}
