//! Sidecar injection through the API server, by the webhooks, ConfigMaps and rights of the chart: whom it asks for which pod, what happens
//! while nobody answers, and that no pod is lost when the root changes.

mod agreement;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use http::Method;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sources::kube::JSON;
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::environment;
use testkit::wait::eventually;

use super::chart::{self, of_kinds, rendered};
use super::instance::{ExternalCaFiles, Instance, external_ca};
use super::root::forced;
use super::{namespace, read, with_cluster};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const STATUS: &str = "sidecar.istio.io/status";

/// A control plane of the chart with these values. `None`: there is no helm.
async fn install(
    cluster: &TestCluster,
    api: &ApiWriter,
    values: &Value,
    flags: &[&str],
    settings: &[(&str, &str)],
) -> Result<Option<Instance>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("values.yaml");
    fs::write(&file, values.to_string())?;
    let Some(objects) = rendered(Some(&file))? else { return Ok(None) };
    api.apply(&namespace("istio-system", &json!({}))).await?;
    api.apply_all(&of_kinds(&objects, &["ConfigMap"])).await?;
    let kubeconfig = chart::account(cluster, api, &objects).await?;
    let revision = values["revision"].as_str().unwrap_or("default");
    let settings = [&[("POD_NAME", revision), ("REVISION", revision)], settings].concat();
    let instance = Instance::start(&kubeconfig, flags, &settings).await?.ready().await?;
    api.apply(&service(revision)).await?;
    for mut webhooks in of_kinds(&objects, &["MutatingWebhookConfiguration"]) {
        lead_to(&mut webhooks, &instance)?;
        api.apply(&webhooks).await?;
    }
    let root = settings
        .iter()
        .find(|(name, _)| *name == "CA_ROOT_CA")
        .map_or(instance.authority("ca-cert.pem"), |(_, file)| file.into());
    trusted(api, revision, &instance, &root).await?;
    Ok(Some(instance))
}

/// There is no pod network here, so that the Service is a name for this host.
fn service(revision: &str) -> Value {
    let name = if revision == "default" { "istiod".to_owned() } else { format!("istiod-{revision}") };
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "istio-system" },
        "spec": { "type": "ExternalName", "externalName": "localhost" },
    })
}

/// The port of the Service is that of the instance.
fn lead_to(webhooks: &mut Value, instance: &Instance) -> Result<()> {
    for webhook in webhooks["webhooks"].as_array_mut().context("webhooks")? {
        webhook["clientConfig"]["service"]["port"] = instance.webhook.port().into();
    }
    Ok(())
}

/// Until every webhook of the revision trusts this root.
async fn trusted(api: &ApiWriter, revision: &str, instance: &Instance, root: &Path) -> Result<()> {
    let root = fs::read_to_string(root)?;
    let done = eventually("the webhooks are trusted", async || {
        let found = bundles(api, revision).await?;
        Ok(!found.is_empty() && found.iter().all(|bundle| bundle.contains(root.trim())))
    });
    done.await.with_context(|| instance.log())
}

/// The `caBundle` of each webhook of a revision.
async fn bundles(api: &ApiWriter, revision: &str) -> Result<Vec<String>> {
    let list = read(api, &format!("{WEBHOOKS}?labelSelector=istio.io%2Frev%3D{revision}")).await;
    let webhooks = list["items"].as_array().into_iter().flatten().flat_map(|it| it["webhooks"].as_array()).flatten();
    let texts = webhooks.map(|webhook| webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default());
    texts.map(|text| Ok(String::from_utf8(BASE64_STANDARD.decode(text)?)?)).collect()
}

fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
        // Here no admission plugin sets it, and the volume of the token needs one.
        "spec": { "serviceAccountName": "default", "containers": [{ "name": "app", "image": "app" }] },
    })
}

/// Creates the pod. `Err`: the answer of the API server.
async fn created(api: &ApiWriter, space: &str, pod: &Value) -> Result<Value, String> {
    let path = format!("/api/v1/namespaces/{space}/pods");
    let sent = api.client.send(Method::POST, &path, JSON, pod.to_string().into()).await;
    let (code, text) = sent.map_err(|error| error.to_string())?;
    if code.is_success() {
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    } else {
        Err(format!("{code}: {}", String::from_utf8_lossy(&text)))
    }
}

/// The revision that injected a pod. `None`: nobody did.
fn injected_by(pod: &Value) -> Option<String> {
    let status: Value = serde_json::from_str(pod["metadata"]["annotations"][STATUS].as_str()?).ok()?;
    let containers = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().cloned());
    let sidecar = containers.into_iter().flatten().flatten().any(|it| it["name"] == "istio-proxy");
    sidecar.then(|| status["revision"].as_str().unwrap_or_default().to_owned())
}

async fn check(api: &ApiWriter, space: &str, labels: &Value, expected: Option<&str>) -> Result<()> {
    let name = format!("p-{}", labels.as_object().map_or(0, serde_json::Map::len));
    let mut answer = Ok(Value::Null);
    // The API server hears of a webhook or a label a moment after it was stored.
    let what = format!("a pod of {space} with {labels} to be injected by {expected:?}");
    let done = eventually(&what, async || {
        answer = created(api, space, &pod(&name, labels)).await;
        let made = pod_object(space, &name);
        api.delete(&made).await?;
        Ok(answer.as_ref().is_ok_and(|pod| injected_by(pod).as_deref() == expected))
    });
    done.await.with_context(|| format!("{answer:?}"))
}

fn pod_object(space: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": space } })
}

const SPACES: [(&str, &str, &str); 6] = [
    ("injected", "istio-injection", "enabled"),
    ("disabled", "istio-injection", "disabled"),
    ("revised", "istio.io/rev", "canary"),
    ("tagged", "istio.io/rev", "prod"),
    ("staged", "istio.io/rev", "stage"),
    ("plain", "team", "a"),
];

async fn make_spaces(api: &ApiWriter) -> Result<()> {
    for (space, key, value) in SPACES {
        api.apply(&namespace(space, &json!({ key: value }))).await?;
    }
    Ok(())
}

#[test]
fn labels_revisions_and_tags_choose_who_injects() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        make_spaces(&api).await?;
        let Some(_default) = install(cluster, &api, &json!({}), &[], &[]).await? else { return Ok(()) };
        let values = json!({ "revision": "canary", "revisionTags": ["prod"] });
        let Some(canary) = install(cluster, &api, &values, &[], &[]).await? else { return Ok(()) };
        check(&api, "injected", &json!({}), Some("default")).await?;
        check(&api, "revised", &json!({}), Some("canary")).await?;
        check(&api, "tagged", &json!({}), Some("canary")).await?;
        check(&api, "plain", &json!({}), None).await?;
        check(&api, "disabled", &json!({}), None).await?;
        let (inject, revision) = ("sidecar.istio.io/inject", "istio.io/rev");
        check(&api, "injected", &json!({ inject: "false" }), None).await?;
        check(&api, "plain", &json!({ inject: "true" }), Some("default")).await?;
        check(&api, "plain", &json!({ revision: "prod" }), Some("canary")).await?;
        check(&api, "disabled", &json!({ inject: "true" }), None).await?;
        let Some(istioctl) = environment::istioctl() else { return Ok(()) };
        tag_of_istioctl(cluster, &api, &istioctl, &canary).await
    });
}

/// A tag that no chart made: the leader of the revision keeps its `caBundle`, also after somebody emptied it.
async fn tag_of_istioctl(cluster: &TestCluster, api: &ApiWriter, istioctl: &Path, canary: &Instance) -> Result<()> {
    let made = Command::new(istioctl)
        .args(["tag", "set", "stage", "--revision", "canary", "-y", "--kubeconfig"])
        .arg(cluster.kubeconfig()?)
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = format!("{WEBHOOKS}/istio-revision-tag-stage");
    let mut webhooks = read(api, &path).await;
    lead_to(&mut webhooks, canary)?;
    for webhook in webhooks["webhooks"].as_array_mut().context("webhooks")? {
        webhook["clientConfig"]["caBundle"] = "".into();
    }
    let (code, text) = api.client.send(Method::PUT, &path, JSON, webhooks.to_string().into()).await?;
    ensure!(code.is_success(), "{}", String::from_utf8_lossy(&text));
    trusted(api, "canary", canary, &canary.authority("ca-cert.pem")).await?;
    check(api, "staged", &json!({}), Some("canary")).await
}

#[test]
fn with_an_external_ca_pods_are_injected_too() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        make_spaces(&api).await?;
        let files = ExternalCaFiles::new()?;
        let (root, [certificate, key]) = (files.root(), files.flags());
        let installed = install(cluster, &api, &json!({}), &[&certificate, &key], &external_ca(&root)).await?;
        let Some(_instance) = installed else { return Ok(()) };
        check(&api, "injected", &json!({}), Some("default")).await
    });
}

#[test]
fn with_the_webhook_down_the_failure_policy_holds() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        make_spaces(&api).await?;
        let Some(mut instance) = install(cluster, &api, &json!({}), &[], &[]).await? else { return Ok(()) };
        check(&api, "injected", &json!({}), Some("default")).await?;
        instance.signal(Signal::SIGKILL)?;
        instance.ended().await?;
        let refused = created(&api, "injected", &pod("lost", &json!({}))).await;
        let refused = refused.err().context("a pod without a sidecar was let through")?;
        ensure!(refused.contains("failed calling webhook \\\"namespace.sidecar-injector.istio.io\\\""), "{refused}");
        created(&api, "plain", &pod("other", &json!({}))).await.map_err(anyhow::Error::msg)?;

        // Whoever prefers pods without sidecars to none sets another policy.
        let path = format!("{WEBHOOKS}/istio-sidecar-injector");
        let mut webhooks = read(&api, &path).await;
        for webhook in webhooks["webhooks"].as_array_mut().context("webhooks")? {
            webhook["failurePolicy"] = "Ignore".into();
        }
        api.client.send(Method::PUT, &path, JSON, webhooks.to_string().into()).await?;
        check(&api, "injected", &json!({}), None).await
    });
}

#[test]
fn no_pod_is_lost_while_the_root_changes() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        make_spaces(&api).await?;
        let settings = [("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true")];
        let Some(instance) = install(cluster, &api, &json!({}), &[], &settings).await? else { return Ok(()) };
        check(&api, "injected", &json!({}), Some("default")).await?;
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "meltemi-admin", "namespace": "istio-system" } });
        api.apply(&account).await?;
        let folder = tempfile::tempdir()?;
        let token = folder.path().join("token");
        fs::write(&token, chart::token(&api, "istio-system", "meltemi-admin", Some("istio-ca")).await?)?;

        let before = fs::read_to_string(instance.authority("ca-cert.pem"))?;
        let rotated = async {
            forced(&instance, &token, "announced").await?;
            let next = fs::read_to_string(instance.authority("next-cert.pem"))?;
            eventually("the webhooks trust the next root", async || {
                let found = bundles(&api, "default").await?;
                Ok(found.iter().all(|bundle| bundle.contains(next.trim()) && bundle.contains(before.trim())))
            })
            .await?;
            forced(&instance, &token, "switched").await?;
            forced(&instance, &token, "settled").await?;
            eventually("the webhooks trust the new root alone", async || {
                let found = bundles(&api, "default").await?;
                Ok(found.iter().all(|bundle| bundle.contains(next.trim()) && !bundle.contains(before.trim())))
            })
            .await
        };
        let creating = async {
            for number in 0.. {
                let name = format!("p-{number}");
                let made = created(&api, "injected", &pod(&name, &json!({}))).await;
                let made = made.map_err(anyhow::Error::msg).with_context(|| format!("{name}\n{}", instance.log()))?;
                ensure!(injected_by(&made).as_deref() == Some("default"), "{made}");
                api.delete(&pod_object("injected", &name)).await?;
            }
            Ok(())
        };
        tokio::select! {
            lost = creating => lost?,
            rotated = rotated => rotated.with_context(|| instance.log())?,
        }
        check(&api, "injected", &json!({}), Some("default")).await
    });
}
