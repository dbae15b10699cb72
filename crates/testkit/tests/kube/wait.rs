//! `meltemi wait`: over two replicas, of which one is killed meanwhile.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::ads::AdsClient;
use testkit::cluster::TestCluster;
use testkit::parity::CaseProxy;
use testkit::server;
use testkit::wait::{DEADLINE, eventually};
use tokio::task::JoinHandle;

use super::chart::token;
use super::instance::Instance;
use super::{namespace, service, virtual_service, with_cluster};

const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// Two replicas, and a token that both accept.
struct Replicas {
    first: Instance,
    second: Instance,
    folder: tempfile::TempDir,
}

impl Replicas {
    async fn start(cluster: &TestCluster) -> Result<Replicas> {
        let api = cluster.api().await?;
        for space in ["istio-system", "shared"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let account = json!({ "name": "istiod", "namespace": "istio-system" });
        api.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account })).await?;
        api.apply(&service("shared", "web")).await?;
        api.apply(&virtual_service("shared", "web", "/")).await?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("token"), token(&api, "istio-system", "istiod", Some("istio-ca")).await?)?;
        let settings = [("POD_IP", "127.0.0.1")];
        let first = Instance::named(cluster, "first", &[], &settings).await?;
        let second = Instance::named(cluster, "second", &[], &settings).await?;
        let replicas = Replicas { first, second, folder };
        // Both know of each other from the first report on.
        eventually("two replicas", async || {
            Ok(replicas.first.page("/debug/replicas")?.matches("\"name\"").count() == 2)
        })
        .await?;
        Ok(replicas)
    }

    /// The command, running.
    fn wait(&self, words: &[&str]) -> JoinHandle<Result<Output>> {
        let file: PathBuf = self.folder.path().join("token");
        let mut all: Vec<String> = ["wait"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        all.extend(["--server".to_owned(), self.first.url(), "--token".to_owned(), file.display().to_string()]);
        all.extend(["-o".to_owned(), "json".to_owned()]);
        tokio::task::spawn_blocking(move || Ok(Command::new(server::program()?).args(all).output()?))
    }
}

async fn connected(instance: &Instance, name: &str, ip: &str) -> Result<AdsClient> {
    let node = CaseProxy::new(&json!({ "name": name, "namespace": "shared", "ip": ip }))?.node();
    let mut proxy = AdsClient::new(instance.plain, node);
    proxy.ask(ROUTES, &BTreeSet::from(["80".to_owned()]), DEADLINE).await?;
    Ok(proxy)
}

fn report(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn it_waits_for_the_proxies_of_all_replicas_and_says_who_has_not_answered() {
    with_cluster(async |cluster| {
        let replicas = Replicas::start(cluster).await?;
        let mut near = connected(&replicas.first, "a", "10.8.0.1").await?;
        let mut far = connected(&replicas.second, "b", "10.8.0.2").await?;
        // They acknowledge what they asked for.
        near.count_responses(Duration::from_millis(300)).await?;
        far.count_responses(Duration::from_millis(300)).await?;
        let done = replicas.wait(&["VirtualService", "shared/web", "--timeout", "30s"]).await??;
        let shown = report(&done)?;
        ensure!(done.status.code() == Some(0) && shown["objects"][0]["acknowledged"] == 2, "{shown:#}");

        // A new version, which the proxy of the other replica does not answer.
        cluster.api().await?.apply(&virtual_service("shared", "web", "/new")).await?;
        let waiting = replicas.wait(&["VirtualService", "shared/web", "--generation", "2", "--timeout", "4s"]);
        near.count_responses(Duration::from_secs(2)).await?;
        let late = waiting.await??;
        let shown = report(&late)?;
        let missing = &shown["objects"][0]["missing"];
        ensure!(late.status.code() == Some(1) && missing.as_array().is_some_and(|all| all.len() == 1), "{shown:#}");
        ensure!(
            missing[0]["proxy"] == "b.shared" && missing[0]["replica"] == "second" && missing[0]["why"] == "pending",
            "{shown:#}"
        );

        // It rejects it, which no time changes.
        far.reject(ROUTES, "no such cluster", Duration::from_secs(5)).await?;
        let rejected = replicas.wait(&["VirtualService", "shared/web", "--timeout", "30s"]).await??;
        let shown = report(&rejected)?;
        let missing = &shown["objects"][0]["missing"][0];
        ensure!(rejected.status.code() == Some(1) && missing["what"] == "rejected: no such cluster", "{shown:#}");
        Ok(())
    });
}

#[test]
fn proxies_of_a_replica_that_is_killed_meanwhile_are_waited_for() {
    with_cluster(async |cluster| {
        let replicas = Replicas::start(cluster).await?;
        let _far = connected(&replicas.second, "b", "10.8.0.2").await?;
        let file = replicas.folder.path().join("web.yaml");
        std::fs::write(&file, virtual_service("shared", "web", "/new").to_string())?;
        let file = file.display().to_string();
        let waiting = replicas.wait(&["-f", &file, "--timeout", "90s"]);
        cluster.api().await?.apply(&virtual_service("shared", "web", "/new")).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        ensure!(!waiting.is_finished(), "a proxy has not acknowledged");
        replicas.second.signal(Signal::SIGKILL)?;
        // It comes back to the one that is left, as an Envoy does.
        let mut back = connected(&replicas.first, "b", "10.8.0.2").await?;
        back.count_responses(Duration::from_millis(500)).await?;
        let done = waiting.await??;
        let (shown, progress) = (report(&done)?, String::from_utf8_lossy(&done.stderr).into_owned());
        ensure!(done.status.code() == Some(0) && shown["objects"][0]["acknowledged"] == 1, "{shown:#}\n{progress}");
        ensure!(progress.contains("replica second: does not answer"), "{progress}");
        Ok(())
    });
}
