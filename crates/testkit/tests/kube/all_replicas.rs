//! Commands that ask one replica show all of them: `proxies`, `pushes` and `doctor` reach the others over their secure ports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::ads::AdsClient;
use testkit::cluster::ApiWriter;
use testkit::parity::CaseProxy;
use testkit::server;
use testkit::wait::{DEADLINE, eventually};

use super::chart::token;
use super::instance::{ExternalCaFiles, Instance, external_ca};
use super::{namespace, service, with_cluster};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

async fn asked(instance: &Instance, words: &[&str], token: Option<&Path>) -> Result<Output> {
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    words.extend(["--server".to_owned(), instance.url()]);
    if let Some(file) = token {
        words.extend(["--token".to_owned(), file.display().to_string()]);
    }
    let run = move || anyhow::Ok(Command::new(server::program()?).args(words).output()?);
    tokio::task::spawn_blocking(run).await?
}

/// The names in the rows that a command prints as JSON.
fn texts(output: &Output, key: &str) -> Result<BTreeSet<String>> {
    let rows: Value =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let rows = rows.as_array().cloned().unwrap_or_default();
    Ok(rows.iter().filter_map(|row| row[key].as_str().map(str::to_owned)).collect())
}

fn names(expected: [&str; 2]) -> BTreeSet<String> {
    expected.map(str::to_owned).into()
}

/// A file with a token that all replicas accept, in its folder.
async fn prepared(api: &ApiWriter) -> Result<(TempDir, PathBuf)> {
    for space in ["istio-system", "shared"] {
        api.apply(&namespace(space, &json!({}))).await?;
    }
    let account = json!({ "name": "istiod", "namespace": "istio-system" });
    api.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account })).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    std::fs::write(&file, token(api, "istio-system", "istiod", Some("istio-ca")).await?)?;
    Ok((folder, file))
}

#[test]
fn one_command_shows_the_proxies_pushes_and_findings_of_all_replicas() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        let (_folder, file) = prepared(&api).await?;
        let address = [("POD_IP", "127.0.0.1")];
        let first = Instance::named(cluster, "first", &[], &address).await?;
        let second = Instance::named(cluster, "second", &[], &address).await?;
        let mut proxies = Vec::new();
        for (instance, name) in [(&first, "a"), (&second, "b")] {
            let node = json!({ "name": name, "namespace": "shared", "ip": "10.8.0.1" });
            let mut proxy = AdsClient::new(instance.plain, CaseProxy::new(&node)?.node());
            proxy.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
            proxies.push(proxy);
        }
        api.apply(&service("shared", "web")).await?;
        for (command, key, expected) in [
            ("proxies", "proxy", ["a.shared", "b.shared"]),
            ("proxies", "replica", ["first", "second"]),
            ("pushes", "replica", ["first", "second"]),
        ] {
            eventually(&format!("{command} shows both: {key}"), async || {
                let shown = asked(&first, &[command, "-o", "json"], Some(&file)).await?;
                Ok(texts(&shown, key)? == names(expected))
            })
            .await?;
        }
        let doctor = ["doctor", "--for", "100ms", "--fail-on", "never"];
        let found = asked(&first, &doctor, Some(&file)).await?;
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        ensure!(text.contains("2 proxies, ") && text.ends_with("of 2 replicas\n"), "one view over both: {text}");
        ensure!(text.matches(" convergence ").count() == 1, "one list of checks: {text}");
        // Without a token the other one is named, and the own proxies are shown.
        let alone = asked(&first, &["proxies", "-o", "json"], None).await?;
        ensure!(texts(&alone, "proxy")? == BTreeSet::from(["a.shared".to_owned()]));
        let warned = String::from_utf8_lossy(&alone.stderr).into_owned();
        ensure!(warned.contains("replica second was not asked: it takes a token"), "{warned}");
        Ok(())
    });
}

#[test]
fn with_an_external_ca_all_replicas_are_asked_too() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        let (_folder, file) = prepared(&api).await?;
        let files = ExternalCaFiles::new()?;
        let (root, [certificate, key]) = (files.root(), files.flags());
        let settings = [&[("POD_IP", "127.0.0.1")][..], &external_ca(&root)].concat();
        let first = Instance::named(cluster, "first", &[&certificate, &key], &settings).await?;
        let second = Instance::named(cluster, "second", &[&certificate, &key], &settings).await?;
        let node = json!({ "name": "b", "namespace": "shared", "ip": "10.8.0.1" });
        let mut proxy = AdsClient::new(second.plain, CaseProxy::new(&node)?.node());
        proxy.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
        eventually("the proxy of the other replica is shown", async || {
            let shown = asked(&first, &["proxies", "-o", "json"], Some(&file)).await?;
            Ok(texts(&shown, "proxy")? == BTreeSet::from(["b.shared".to_owned()]))
        })
        .await
    });
}
