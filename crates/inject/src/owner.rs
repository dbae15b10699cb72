//! The workload that a pod belongs to, guessed from its controller as istiod does.

use serde_json::Value as Json;

use crate::pod::Pod;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerWorkload {
    /// Empty: neither the pod nor its controller has a name.
    pub name: String,
    pub kind: String,
    pub api_version: String,
}

impl OwnerWorkload {
    pub(crate) fn of(pod: &Pod) -> OwnerWorkload {
        let controller = pod.metadata()["ownerReferences"].as_array().into_iter().flatten();
        let mut controller = controller.filter(|owner| owner["controller"] == true);
        let owner = controller.next().filter(|_| !pod.meta("generateName").is_empty());
        let found = owner.map(|owner| OwnerWorkload::behind(owner, pod));
        let found = found.unwrap_or_else(|| OwnerWorkload::new(pod.meta("name"), "Pod", "v1"));
        if found.name.is_empty() { OwnerWorkload { name: pod.meta("name").to_owned(), ..found } } else { found }
    }

    fn new(name: &str, kind: &str, api_version: &str) -> OwnerWorkload {
        OwnerWorkload { name: name.to_owned(), kind: kind.to_owned(), api_version: api_version.to_owned() }
    }

    fn behind(owner: &Json, pod: &Pod) -> OwnerWorkload {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (name, kind, api_version) = (text("name"), text("kind"), text("apiVersion"));
        let hashed = |label: &str| {
            let hash = pod.label(label).filter(|hash| !hash.is_empty() && name.ends_with(hash))?;
            Some(name.strip_suffix(&format!("-{hash}")).unwrap_or(name))
        };
        match kind {
            "ReplicaSet" => match (hashed("pod-template-hash"), hashed("rollouts-pod-template-hash")) {
                (Some(name), _) => OwnerWorkload::new(name, "Deployment", api_version),
                (None, Some(name)) => OwnerWorkload::new(name, "Rollout", "v1alpha1"),
                (None, None) => OwnerWorkload::new(name, kind, api_version),
            },
            "ReplicationController" => match pod.label("deploymentconfig").filter(|name| !name.is_empty()) {
                Some(name) => OwnerWorkload::new(name, "DeploymentConfig", api_version),
                None => OwnerWorkload::new(name, kind, api_version),
            },
            "Job" => match cron_job(name) {
                Some(name) => OwnerWorkload::new(name, "CronJob", "batch/v1"),
                None => OwnerWorkload::new(name, kind, api_version),
            },
            _ => OwnerWorkload::new(name, kind, api_version),
        }
    }
}

/// A name that ends in the minute of its start: 8 to 10 digits.
fn cron_job(job: &str) -> Option<&str> {
    let (name, digits) = job.rsplit_once('-')?;
    let timed = (8..=10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    (timed && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(labels: &Json, owner: (&str, &str, &str), expected: (&str, &str, &str)) {
        let (api_version, kind, name) = owner;
        let owner = json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": true });
        let pod = json!({ "metadata": { "generateName": "x-", "labels": labels, "ownerReferences": [owner] } });
        let (name, kind, api_version) = expected;
        assert_eq!(OwnerWorkload::of(&Pod::typed(pod).unwrap()), OwnerWorkload::new(name, kind, api_version));
    }

    #[test]
    fn workloads_behind_controllers() {
        let none = json!({});
        check(
            &json!({ "pod-template-hash": "6d5f" }),
            ("apps/v1", "ReplicaSet", "cart-6d5f"),
            ("cart", "Deployment", "apps/v1"),
        );
        check(&none, ("apps/v1", "ReplicaSet", "cart-6d5f"), ("cart-6d5f", "ReplicaSet", "apps/v1"));
        check(
            &json!({ "deploymentconfig": "old" }),
            ("v1", "ReplicationController", "old-1"),
            ("old", "DeploymentConfig", "v1"),
        );
        check(&none, ("batch/v1", "Job", "a-1234567"), ("a-1234567", "Job", "batch/v1"));
        check(&none, ("batch/v1beta1", "Job", "a-12345678"), ("a", "CronJob", "batch/v1"));
        check(&none, ("apps/v1", "DaemonSet", "d"), ("d", "DaemonSet", "apps/v1"));
    }
}
