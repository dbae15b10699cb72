//! What the program does in a cluster besides serving: the root in every namespace and in its Secret, tokens asked of the API server,
//! one of two replicas that writes.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::cluster::TestCluster;
use testkit::process::Process;
use testkit::wait::{eventually, observe};
use testkit::{environment, port, server, skip};

use super::instance::{Instance, fetched};
use super::{chart, namespace, read, requests, virtual_service, with_cluster};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/meltemi-leader";

fn root_of(space: &str) -> String {
    format!("/api/v1/namespaces/{space}/configmaps/istio-ca-root-cert")
}

#[test]
fn one_of_two_replicas_keeps_the_root_in_every_namespace() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "led"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let transitions = async || read(&api, LEASE).await["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
        let before = transitions().await;
        let first = Instance::named(cluster, "first", &[], &[]).await?;
        eventually("the root is in the namespace", async || Ok(!read(&api, &root_of("led")).await.is_null())).await?;
        let second = Instance::named(cluster, "second", &[], &[]).await?;
        let root = |replica: &Instance| fs::read_to_string(replica.authority("ca-cert.pem"));
        ensure!(root(&first)? == root(&second)?, "two replicas with two roots");
        let published = read(&api, &root_of("led")).await["data"]["root-cert.pem"].as_str().map(str::to_owned);
        ensure!(published.as_deref() == Some(root(&first)?.as_str()), "{published:?}");
        ensure!(read(&api, &root_of("kube-public")).await.is_null(), "a namespace without workloads needs none");

        // Somebody edits it, somebody deletes it.
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio-ca-root-cert", "namespace": "led" } });
        let mut edited = map.clone();
        edited["data"] = json!({ "root-cert.pem": "evil" });
        api.apply(&edited).await?;
        let right =
            async || Ok(read(&api, &root_of("led")).await["data"]["root-cert.pem"].as_str() == published.as_deref());
        eventually("the edit is undone", &right).await?;
        api.delete(&map).await?;
        eventually("the deletion is undone", &right).await?;

        // The leader goes, once with notice and once without.
        let holder = async || Ok::<_, anyhow::Error>(read(&api, LEASE).await["spec"]["holderIdentity"].clone());
        let now = holder().await?;
        ensure!(now == "first", "{now} leads");
        first.signal(Signal::SIGTERM)?;
        eventually("the other leads", async || Ok(holder().await? == "second")).await?;
        api.delete(&map).await?;
        eventually("the new leader writes", &right).await?;
        let third = Instance::named(cluster, "third", &[], &[]).await?;
        second.signal(Signal::SIGKILL)?;
        eventually("the third leads when the lease is over", async || Ok(holder().await? == "third")).await?;
        let moves = transitions().await - before;
        ensure!(moves == 3, "{moves} times the lease changed hands");
        drop(third);
        Ok(())
    });
}

#[test]
fn the_log_names_each_lease_that_a_replica_gains_and_releases() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let mut instance = Instance::named(cluster, "logged", &[], &[]).await?;
        let leases = ["lease=\"meltemi-leader\"", "lease=\"meltemi-status\""];
        let says = |log: &str, what: &str| {
            leases.iter().all(|lease| log.lines().any(|line| line.contains(what) && line.contains(lease)))
        };
        let gained = async || Ok(says(&instance.log(), "became leader"));
        eventually("the log names both leases", gained).await.with_context(|| instance.log())?;
        instance.signal(Signal::SIGTERM)?;
        ensure!(instance.ended().await?, "{}", instance.log());
        ensure!(says(&instance.log(), "lease released"), "{}", instance.log());
        Ok(())
    });
}

#[test]
fn a_workload_shows_the_token_of_its_account() {
    let Some(envoy) = environment::envoy() else {
        return skip("a token of the API server: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    with_cluster(async |cluster| {
        let (api, folder) = (cluster.api().await?, tempfile::tempdir()?);
        for space in ["istio-system", "tokens"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "cart", "namespace": "tokens" } });
        api.apply(&account).await?;
        let replica = Instance::named(cluster, "tokens", &[], &[]).await?;
        eventually("the root is in the namespace", async || Ok(!read(&api, &root_of("tokens")).await.is_null()))
            .await?;
        let root = read(&api, &root_of("tokens")).await;
        fs::write(folder.path().join("root"), root["data"]["root-cert.pem"].as_str().unwrap_or_default())?;
        let admin = port::reserve_address()?;
        let reviews = async || requests(&api, &["resource=\"tokenreviews\""]).await;
        let before = reviews().await?;
        // For another audience it is not believed.
        for (audience, works) in [("vault", false), ("istio-ca", true)] {
            let token = chart::token(&api, "tokens", "cart", Some(audience)).await?;
            fs::write(folder.path().join("token"), token)?;
            let _agent = agent(&envoy, folder.path(), replica.secure, admin)?;
            let named =
                || fetched(admin, "/certs").is_ok_and(|page| page.contains("spiffe://cluster.local/ns/tokens/sa/cart"));
            if works {
                eventually("Envoy has its certificate", async || Ok(named())).await?;
            } else {
                let rejected = async || Ok(replica.log().contains("it is not for this audience"));
                eventually("its token was looked at", rejected).await?;
                observe(Duration::from_secs(2)).await;
                ensure!(!named(), "a token for {audience} is believed");
            }
        }
        // An agent shows its token with every attempt, for its certificate and for its stream. That of another audience is not worth one.
        let asked = reviews().await? - before;
        ensure!(asked == 1.0, "{asked} TokenReviews of one token that may be valid");
        Ok(())
    });
}

/// As the chart configures it: a Service, to which an API server speaks HTTP/1.1. There is no pod network here, so that the Service is a
/// name for this host.
#[test]
fn the_api_server_asks_a_service_before_it_stores() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "istiod", "namespace": "istio-system" },
            "spec": { "type": "ExternalName", "externalName": "localhost" },
        });
        api.apply(&service).await?;
        let config = |port: u16| json!({ "service": { "name": "istiod", "namespace": "istio-system", "path": "/validate", "port": port } });
        is_asked(cluster, "served", config).await
    });
}

/// By a URL of its own host an API server offers HTTP/2 too.
#[test]
fn the_api_server_asks_before_it_stores() {
    with_cluster(async |cluster| {
        cluster.api().await?.apply(&namespace("istio-system", &json!({}))).await?;
        is_asked(cluster, "asked", |port| json!({ "url": format!("https://localhost:{port}/validate") })).await
    });
}

/// `config`: how the API server finds a webhook with this port.
async fn is_asked(cluster: &TestCluster, space: &str, config: impl Fn(u16) -> Value) -> Result<()> {
    let api = cluster.api().await?;
    api.apply(&namespace(space, &json!({}))).await?;
    let replica = Instance::named(cluster, space, &[], &[]).await?;
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "istio-validator", "labels": { "istio.io/rev": "default" } },
        "webhooks": [{
            "name": "validation.istio.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": config(replica.webhook.port()),
            "rules": [{ "operations": ["CREATE", "UPDATE"], "apiGroups": ["*.istio.io", "networking.istio.io"], "apiVersions": ["*"], "resources": ["virtualservices"] }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": space } },
        }],
    });
    api.apply(&webhook).await?;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/istio-validator";
    let trusted = async || Ok(read(&api, path).await["webhooks"][0]["clientConfig"]["caBundle"].is_string());
    eventually("the webhook is trusted", trusted).await?;
    let (good, mut rejected) = (virtual_service(space, "a", "/"), String::new());
    let stored = eventually("a good object is stored", async || {
        rejected = api.apply(&good).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
        Ok(rejected.is_empty())
    });
    stored.await.with_context(|| rejected)?;
    let (bad, mut rejected) = (virtual_service(space, "b", "("), String::new());
    // The API server hears of a webhook a moment after it was stored.
    eventually("a bad one is rejected", async || {
        rejected = api.apply(&bad).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
        Ok(!rejected.is_empty())
    })
    .await?;
    ensure!(rejected.contains("validation.istio.io") && rejected.contains("spec.http[0].match[0].uri"), "{rejected:?}");
    Ok(())
}

fn agent(envoy: &Path, folder: &Path, server: SocketAddr, admin: SocketAddr) -> Result<Process> {
    let log = File::create(folder.join("agent.log"))?;
    let mut command = Command::new(server::program()?);
    command
        .args(["agent", "--proxy", "cart-1.tokens", "--ip", "127.0.0.1", "--service-account", "cart", "--key", "P-256"])
        .args(["--server", &server.to_string(), "--admin", &admin.to_string(), "--drain", "0s"])
        .args(["--metadata", "INTERCEPTION_MODE=NONE"])
        .arg("--root")
        .arg(folder.join("root"))
        .arg("--token")
        .arg(folder.join("token"))
        .arg("--workdir")
        .arg(folder.join("work"))
        .arg("--envoy")
        .arg(envoy)
        .args(["--", "-l", "warn"])
        .stdout(log.try_clone()?)
        .stderr(log);
    Process::spawn(&mut command)
}
