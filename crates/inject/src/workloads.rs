//! Injection into objects that hold a pod: Deployments, Jobs and the like, and Lists of them. For the command line; an API server sends pods.

use config::labels::Labels;
use config::store::Snapshot;
use serde_json::Value as Json;

use crate::fault::Fault;
use crate::injection::{ControlPlane, InjectionOutcome, Injector, Request};
use crate::owner::OwnerWorkload;

/// The pod of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTemplate {
    pub pod: Json,
    pub namespace: String,
    /// `None`: the object is the pod itself.
    pub workload: Option<OwnerWorkload>,
}

impl PodTemplate {
    /// `None`: objects of that kind have no pod. `Err`: this one should have.
    pub fn of(object: &Json) -> Result<Option<PodTemplate>, String> {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let Some(pointer) = pod_pointer(&kind) else { return Ok(None) };
        let Some(pod) = object.pointer(pointer).filter(|pod| pod.is_object()) else {
            return Err(format!("{kind} {name}: it has no pod template"));
        };
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let api_version = text(&object["apiVersion"]);
        let workload = (kind != "Pod").then_some(OwnerWorkload { name, kind, api_version });
        Ok(Some(PodTemplate { pod: pod.clone(), namespace, workload }))
    }

    pub fn labels(&self) -> Labels {
        let labels = self.pod["metadata"]["labels"].as_object().into_iter().flatten();
        labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
    }

    /// As the webhook is asked for it.
    pub fn request(&self) -> Request<'_> {
        let workload = self.workload.clone();
        Request { pod: self.pod.clone(), namespace: &self.namespace, path: "/inject", workload }
    }
}

/// What became of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct InjectedObject {
    pub object: Json,
    /// Pods that were injected, of a List all.
    pub injected: usize,
    /// Why pods were not: `Deployment cart: reason`.
    pub skipped: Vec<String>,
    /// Settings that were passed over, and faults of the result, in the same form.
    pub warnings: Vec<String>,
}

impl Injector {
    /// The object with its pods injected; an object without a pod is passed through. `Err`: the object and why its pod is refused.
    pub fn inject_object(
        &self,
        mut object: Json,
        plane: &ControlPlane,
        objects: &Snapshot,
    ) -> Result<InjectedObject, String> {
        if object["kind"] == "List" {
            return self.inject_list(object, plane, objects);
        }
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let described = format!("{kind} {name}");
        let Some(template) = PodTemplate::of(&object)? else {
            return Ok(InjectedObject { object, injected: 0, skipped: Vec::new(), warnings: Vec::new() });
        };
        let injection = self.inject(template.request(), plane, objects);
        let faults = injection.faults.iter().map(Fault::to_string);
        let warnings = injection.warnings.into_iter().chain(faults).map(|it| format!("{described}: {it}")).collect();
        match injection.outcome.map_err(|error| format!("{described}: {error}"))? {
            InjectionOutcome::Skipped(reason) => {
                Ok(InjectedObject { object, injected: 0, skipped: vec![format!("{described}: {reason}")], warnings })
            }
            InjectionOutcome::Injected { mut pod, .. } => {
                let had_namespace = template.pod["metadata"]["namespace"].is_string();
                if let Some(metadata) = pod["metadata"].as_object_mut().filter(|_| !had_namespace) {
                    metadata.remove("namespace");
                }
                if let Some(place) = pod_pointer(&kind).and_then(|pointer| object.pointer_mut(pointer)) {
                    *place = pod;
                }
                Ok(InjectedObject { object, injected: 1, skipped: Vec::new(), warnings })
            }
        }
    }

    fn inject_list(&self, mut list: Json, plane: &ControlPlane, objects: &Snapshot) -> Result<InjectedObject, String> {
        let (mut injected, mut skipped, mut warnings) = (0, Vec::new(), Vec::new());
        for item in list["items"].as_array_mut().into_iter().flatten() {
            let result = self.inject_object(item.take(), plane, objects)?;
            *item = result.object;
            injected += result.injected;
            skipped.extend(result.skipped);
            warnings.extend(result.warnings);
        }
        Ok(InjectedObject { object: list, injected, skipped, warnings })
    }
}

/// Where the pod is in an object of that kind.
fn pod_pointer(kind: &str) -> Option<&'static str> {
    match kind {
        "Pod" => Some(""),
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "ReplicationController"
        | "Job"
        | "DeploymentConfig" => Some("/spec/template"),
        "CronJob" => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::native::NativeSidecars;

    fn injected(object: Json) -> Result<InjectedObject, String> {
        let template = "{metadata: {labels: {owner: \"{{ .TypeMeta.Kind }}-{{ .DeploymentMeta.Name }}\"}}}";
        let config = json!({ "policy": "enabled", "templates": { "sidecar": template } }).to_string();
        let data = [("config".to_owned(), config), ("values".to_owned(), "{}".to_owned())].into();
        let plane = ControlPlane {
            revision: "default".into(),
            native_sidecars: NativeSidecars::Off,
            openshift: false,
            compliance_policy: String::new(),
            cluster_id: "Kubernetes".into(),
        };
        Injector::parse(&data).unwrap().inject_object(object, &plane, &Snapshot::empty())
    }

    #[test]
    fn pods_of_every_kind_of_workload_are_injected_and_other_objects_pass_through() {
        let template = json!({ "metadata": {}, "spec": { "containers": [{ "name": "a" }] } });
        let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "cart" }, "spec": { "template": template } });
        let cron = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "n" }, "spec": { "jobTemplate": { "spec": { "template": template } } } });
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" }, "spec": {} });
        let result = injected(json!({ "kind": "List", "items": [deployment, cron, service] })).unwrap();
        let items = &result.object["items"];
        assert_eq!(items[0]["spec"]["template"]["metadata"]["labels"]["owner"], "Deployment-cart");
        assert_eq!(items[0]["spec"]["template"]["metadata"].get("namespace"), None);
        assert_eq!(items[1]["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]["owner"], "CronJob-n");
        assert_eq!((&items[2], result.injected), (&service, 2));
    }

    #[test]
    fn a_skipped_pod_says_why_and_a_refused_one_which_object_it_is_in() {
        let pod = json!({ "kind": "Pod", "metadata": { "name": "p", "labels": { "sidecar.istio.io/inject": "false" } }, "spec": { "containers": [] } });
        let result = injected(pod.clone()).unwrap();
        assert_eq!((result.object, result.skipped.len()), (pod, 1));
        let error = injected(json!({ "kind": "Job", "metadata": { "name": "j" }, "spec": {} })).unwrap_err();
        assert_eq!(error, "Job j: it has no pod template");
    }
}
