//! The root of the mesh with several replicas: what one of them changes, all of them follow.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::http_client::{self, HttpRequest};
use testkit::server;
use testkit::wait::{eventually, observe};

use super::instance::Instance;
use super::{chart, namespace, read, with_cluster};

/// `meltemi ca`: what it prints, or its error. `token`: the file.
pub(crate) async fn ca(instance: &Instance, words: &'static [&str], token: &Path) -> Result<String> {
    let (url, token) = (instance.url(), token.to_owned());
    let run = move || {
        let mut command = Command::new(server::program()?);
        anyhow::Ok(command.arg("ca").args(words).args(["--server", &url, "--token"]).arg(token).output()?)
    };
    let done = tokio::task::spawn_blocking(run).await??;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?)
}

/// A request to advance from this stage: whether it was done.
async fn advanced(instance: &Instance, from: &str, token: &str) -> Result<bool> {
    let ask = HttpRequest::new(instance.monitoring, "localhost", &format!("/debug/ca/rotate?force=true&from={from}"));
    let ask = ask.with("authorization", format!("Bearer {token}")).with("x-meltemi-admin", "1".to_owned());
    Ok(http_client::send_one(&HttpRequest { method: http::Method::POST, ..ask }).await?.status == 200)
}

/// A replica that follows another one needs some seconds before it can go on from there.
pub(crate) async fn forced(instance: &Instance, token: &Path, stage: &str) -> Result<()> {
    let mut output = String::new();
    let advanced = eventually(stage, async || {
        output = ca(instance, &["rotate", "--force"], token).await.unwrap_or_else(|error| error.to_string());
        Ok(output.contains(&format!("stage     {stage}")))
    });
    advanced.await.with_context(|| output)
}

/// `None`: there is no such file.
fn file(replica: &Instance, name: &str) -> Option<String> {
    fs::read_to_string(replica.authority(name)).ok()
}

#[test]
fn replicas_change_the_root_together() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let settings = [("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true")];
        let first = Instance::named(cluster, "first", &[], &settings).await?;
        let second = Instance::named(cluster, "second", &[], &settings).await?;
        let old = file(&first, "ca-cert.pem");
        let folder = tempfile::tempdir()?;
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "meltemi-admin", "namespace": "istio-system" } });
        api.apply(&account).await?;
        let (token, text) =
            (folder.path().join("token"), chart::token(&api, "istio-system", "meltemi-admin", Some("istio-ca")).await?);
        fs::write(&token, &text)?;
        eventually("the replicas report to each other", async || {
            let status = ca(&first, &["status"], &token).await?;
            Ok(status.contains("replica   second: 0 of 0, at this stage"))
        })
        .await?;
        let error = ca(&first, &["rotate"], &token).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(error.contains("at least 1 must"), "there are no workloads: {error}");

        let status: Value = serde_json::from_str(&ca(&first, &["status", "--output", "json"], &token).await?)?;
        let from = status["id"].as_str().context("an id")?;
        let (one, two) = tokio::join!(advanced(&first, from, &text), advanced(&second, from, &text));
        ensure!(one? != two?, "of two at once, one advances");
        eventually("both announce the same root", async || {
            let next = file(&first, "next-cert.pem");
            Ok(next.is_some() && file(&second, "next-cert.pem") == next)
        })
        .await?;
        let next = file(&first, "next-cert.pem");
        forced(&second, &token, "switched").await?;
        ensure!(file(&second, "ca-cert.pem") == next, "{}", second.log());
        eventually("the first signs with it too", async || Ok(file(&first, "ca-cert.pem") == next)).await?;
        eventually("the old root is trusted still", async || Ok(file(&first, "old-cert.pem") == old)).await?;
        let same = async || Ok(file(&first, "ca-key.pem") == file(&second, "ca-key.pem"));
        eventually("both have one key", same).await?;
        forced(&first, &token, "settled").await?;
        eventually("the second forgets the old one", async || Ok(file(&second, "old-cert.pem").is_none())).await?;

        let secret = read(&api, "/api/v1/namespaces/istio-system/secrets/istio-ca-secret").await;
        let stored = secret["data"]["ca-cert.pem"].as_str().unwrap_or_default();
        let stored = BASE64_STANDARD.decode(stored)?;
        ensure!(next.is_some_and(|next| next.as_bytes() == stored), "the Secret has another root");
        ensure!(secret["data"]["old-cert.pem"].is_null(), "the Secret has the old root still");

        second.signal(Signal::SIGSTOP)?;
        let named = eventually("a replica that is silent is named", async || {
            Ok(ca(&first, &["status"], &token).await?.contains("replica second has reported nothing for"))
        });
        let named = named.await;
        second.signal(Signal::SIGCONT)?;
        named
    });
}

/// Namespaces that are not watched were written to every five seconds: whether they hold the root was never seen.
#[test]
fn namespaces_that_are_not_watched_are_left_alone() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "looked-at", "left-alone"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let map = |space: &str| format!("/api/v1/namespaces/{space}/configmaps/istio-ca-root-cert");
        let settings = [("WATCHED_NAMESPACES", "looked-at")];
        let instance = Instance::named(cluster, "watching", &[], &settings).await?;
        let there = async |space: &str| !read(&api, &map(space)).await.is_null();
        eventually("the root is where it is watched", async || {
            Ok(there("looked-at").await && there("istio-system").await)
        })
        .await?;
        observe(std::time::Duration::from_secs(3)).await;
        ensure!(!there("left-alone").await, "{}", instance.log());
        Ok(())
    });
}
