//! Faults of an injected pod: results that equal istiod's and that an API server refuses.

use std::fmt;

use serde_json::Value as Json;

use crate::pod::{ContainerList, PROXY, Pod, name_of};
use crate::probes::redirected_to_nowhere;

/// What is wrong with a pod after its injection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The status port is 0, and the probes of this container are sent there.
    StatusPortZero(String),
    /// A volume of the pod has the name of an injected one and another kind.
    VolumeKinds(String),
    /// A variable has a value and a source.
    VariableSources { container: String, variable: String },
    /// A template patches `containers`, but the sidecar is an init container.
    TwoProxies,
}

impl Fault {
    /// The label of the metric.
    pub fn id(&self) -> &'static str {
        match self {
            Fault::StatusPortZero(_) => "status-port-zero",
            Fault::VolumeKinds(_) => "volume-kinds",
            Fault::VariableSources { .. } => "variable-sources",
            Fault::TwoProxies => "two-proxies",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::StatusPortZero(container) => write!(
                f,
                "the status port is 0, and the probes of container {container:?} are sent there; set another status.sidecar.istio.io/port, \
                 or sidecar.istio.io/rewriteAppHTTPProbers to \"false\""
            ),
            Fault::VolumeKinds(volume) => write!(
                f,
                "the volume {volume:?} of the pod and the injected one of that name are of different kinds; give the pod's another name"
            ),
            Fault::VariableSources { container, variable } => write!(
                f,
                "the variable {variable:?} of container {container:?} has both a value and a source; leave one out"
            ),
            Fault::TwoProxies => f.write_str(
                "a template patches istio-proxy under containers, but it is a native sidecar: there are two now; patch initContainers, \
                 or set sidecar.istio.io/nativeSidecar to \"false\"",
            ),
        }
    }
}

pub(crate) fn faults(pod: &Pod) -> Vec<Fault> {
    let mut faults = Vec::new();
    let is_there = |list: ContainerList| pod.container(list, PROXY).is_some();
    if is_there(ContainerList::Containers) && is_there(ContainerList::InitContainers) {
        faults.push(Fault::TwoProxies);
    }
    // A name and one source.
    let volumes = pod.spec()["volumes"].as_array().into_iter().flatten();
    let doubled = volumes.filter(|volume| volume.as_object().is_some_and(|volume| volume.len() > 2));
    faults.extend(doubled.map(|volume| Fault::VolumeKinds(name_of(volume).to_owned())));
    for list in [ContainerList::InitContainers, ContainerList::Containers] {
        for container in pod.containers(list) {
            container_faults(container, &mut faults);
        }
    }
    faults
}

fn container_faults(container: &Json, faults: &mut Vec<Fault>) {
    let name = name_of(container);
    if redirected_to_nowhere(container) {
        faults.push(Fault::StatusPortZero(name.to_owned()));
    }
    let variables = container["env"].as_array().into_iter().flatten();
    let doubled = variables.filter(|variable| variable.get("value").is_some() && variable.get("valueFrom").is_some());
    faults.extend(
        doubled.map(|it| Fault::VariableSources { container: name.to_owned(), variable: name_of(it).to_owned() }),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(spec: &Json) -> Vec<&'static str> {
        faults(&Pod::typed(json!({ "spec": spec })).unwrap()).iter().map(Fault::id).collect()
    }

    #[test]
    fn what_an_api_server_refuses_is_named() {
        let proxy = json!({ "name": "istio-proxy" });
        assert_eq!(ids(&json!({ "containers": [proxy], "initContainers": [proxy] })), ["two-proxies"]);
        let volume = json!({ "name": "istio-data", "emptyDir": {}, "secret": { "secretName": "s" } });
        assert_eq!(
            ids(&json!({ "containers": [], "volumes": [volume, { "name": "a", "emptyDir": {} }] })),
            ["volume-kinds"]
        );
        let variable = json!({ "name": "A", "value": "a", "valueFrom": { "fieldRef": { "fieldPath": "f" } } });
        assert_eq!(ids(&json!({ "containers": [{ "name": "app", "env": [variable] }] })), ["variable-sources"]);
        let probe = |port: i64| json!({ "httpGet": { "path": "/app-health/app/readyz", "port": port } });
        assert_eq!(
            ids(&json!({ "containers": [{ "name": "app", "readinessProbe": probe(0) }] })),
            ["status-port-zero"]
        );
        assert!(ids(&json!({ "containers": [{ "name": "app", "readinessProbe": probe(15020) }] })).is_empty());
    }
}
