//! The control plane of a proxy, by the revision labels of its Namespace and Pod, with tags resolved, as the API server has them. The order is
//! that of Istio's injection.

use std::path::PathBuf;

use anyhow::{Context, Result};
use config::store::Name;
use serde_json::Value;
use sources::kube::{ApiAccess, JSON, KubeClient, RequestError};

use crate::folder::PodName;
use settings::args::BootstrapArgs;

const REVISION: &str = "istio.io/rev";
const TAG: &str = "istio.io/tag";
const INJECTION: &str = "istio-injection";
const DEFAULT: &str = "default";
/// There are few requests.
const RATE: u32 = 20;

/// The flags, with the server that the labels choose if --server is not set.
pub(crate) async fn with_server(args: BootstrapArgs, secure: bool) -> Result<BootstrapArgs> {
    if args.server.is_some() {
        return Ok(args);
    }
    let PodName(name) = args.proxy.parse()?;
    let hint = || format!("cannot ask the API server which control plane serves {}; name it with --server", args.proxy);
    let revision = revision(args.kubeconfig.clone(), &args.istio_namespace, &name).await.with_context(hint)?;
    let host = match revision.as_str() {
        "" | DEFAULT => format!("istiod.{}.svc", args.istio_namespace),
        revision => format!("istiod-{revision}.{}.svc", args.istio_namespace),
    };
    let port = if secure { 15012 } else { 15010 };
    Ok(BootstrapArgs { server: Some(format!("{host}:{port}")), ..args })
}

async fn revision(kubeconfig: Option<PathBuf>, istio_namespace: &str, name: &Name) -> Result<String> {
    let client = KubeClient::new(&ApiAccess { kubeconfig, rate: RATE }).await?;
    let namespace = get(&client, &format!("/api/v1/namespaces/{}", name.namespace)).await?;
    // The Pod may not exist yet.
    let pod = get(&client, &format!("/api/v1/namespaces/{}/pods/{}", name.namespace, name.name)).await?;
    let named = named(&namespace, &pod);
    let tags = [
        format!(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?labelSelector=istio.io%2Ftag%3D{named}"
        ),
        format!("/api/v1/namespaces/{istio_namespace}/services?labelSelector=istio.io%2Ftag%3D{named}"),
    ];
    for path in tags {
        if let Some(revision) = revision_of(&get(&client, &path).await?, &named) {
            return Ok(revision);
        }
    }
    Ok(named)
}

/// A revision or a tag.
fn named(namespace: &Value, pod: &Value) -> String {
    let label = |of: &Value, key: &str| of["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
    let injected = label(namespace, INJECTION) == "enabled";
    let found = [label(namespace, REVISION), label(pod, REVISION)].into_iter().find(|it| !it.is_empty() && !injected);
    found.unwrap_or_else(|| DEFAULT.to_owned())
}

/// The revision of a tag. `None`: it is no tag.
fn revision_of(list: &Value, tag: &str) -> Option<String> {
    let labels = list["items"].as_array()?.iter().map(|it| &it["metadata"]["labels"]).find(|it| it[TAG] == tag)?;
    labels[REVISION].as_str().filter(|it| !it.is_empty()).map(str::to_owned)
}

/// `Null`: the object does not exist or may not be read.
async fn get(client: &KubeClient, path: &str) -> Result<Value> {
    match client.get(path, JSON).await {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(RequestError::Status { code: 404, .. }) => Ok(Value::Null),
        Err(RequestError::Status { code: 403, message, .. }) => {
            eprintln!("meltemi: labels that may not be read do not count: {message}");
            Ok(Value::Null)
        }
        Err(failure) => Err(failure.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(namespace: &Value, pod: &Value, expected: &str) {
        let labelled = |labels: &Value| json!({ "metadata": { "labels": labels } });
        assert_eq!(named(&labelled(namespace), &labelled(pod)), expected, "{namespace} {pod}");
    }

    #[test]
    fn namespace_labels_take_precedence_over_pod_labels() {
        check(&json!({}), &json!({}), "default");
        check(&json!({}), &json!({ "istio.io/rev": "canary" }), "canary");
        check(&json!({ "istio.io/rev": "prod" }), &json!({ "istio.io/rev": "canary" }), "prod");
        check(&json!({ "istio.io/rev": "prod", "istio-injection": "enabled" }), &json!({}), "default");
        assert_eq!(named(&Value::Null, &Value::Null), "default");
    }

    #[test]
    fn a_tag_resolves_to_a_revision() {
        let list =
            json!({ "items": [{ "metadata": { "labels": { "istio.io/tag": "prod", "istio.io/rev": "1-30" } } }] });
        assert_eq!(revision_of(&list, "prod").as_deref(), Some("1-30"));
        assert_eq!(revision_of(&list, "stage"), None);
        assert_eq!(revision_of(&Value::Null, "prod"), None);
    }
}
