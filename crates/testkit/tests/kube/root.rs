//! The root of the mesh with several replicas: what one of them changes, all of them follow.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::json;
use testkit::server;

use super::instance::{Instance, until};
use super::{in_turn, namespace, read};

async fn rotate(instance: &Instance) -> Result<()> {
    let url = instance.url();
    let run = move || anyhow::Ok(Command::new(server::program()?).args(["ca", "rotate", "--server", &url]).output()?);
    let done = tokio::task::spawn_blocking(run).await??;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// `None`: there is no such file.
fn file(replica: &Instance, name: &str) -> Option<String> {
    fs::read_to_string(replica.authority(name)).ok()
}

#[test]
fn replicas_change_the_root_together() {
    in_turn(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let settings = [("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true")];
        let first = Instance::named(cluster, "first", &[], &settings).await?;
        let second = Instance::named(cluster, "second", &[], &settings).await?;
        let old = file(&first, "ca-cert.pem");

        rotate(&first).await?;
        let next = file(&first, "next-cert.pem");
        ensure!(next.is_some(), "{}", first.log());
        until("the second announces it too", async || Ok(file(&second, "next-cert.pem") == next)).await?;
        rotate(&second).await?;
        ensure!(file(&second, "ca-cert.pem") == next, "{}", second.log());
        until("the first signs with it too", async || Ok(file(&first, "ca-cert.pem") == next)).await?;
        until("the old root is trusted still", async || Ok(file(&first, "old-cert.pem") == old)).await?;
        let same = async || Ok(file(&first, "ca-key.pem") == file(&second, "ca-key.pem"));
        until("both have one key", same).await?;
        rotate(&first).await?;
        until("the second forgets the old one", async || Ok(file(&second, "old-cert.pem").is_none())).await?;

        let secret = read(&api, "/api/v1/namespaces/istio-system/secrets/istio-ca-secret").await;
        let stored = secret["data"]["ca-cert.pem"].as_str().unwrap_or_default();
        let stored = BASE64_STANDARD.decode(stored)?;
        ensure!(next.is_some_and(|next| next.as_bytes() == stored), "the Secret has another root");
        ensure!(secret["data"]["old-cert.pem"].is_null(), "the Secret has the old root still");
        Ok(())
    });
}

/// Namespaces that are not watched were written to every five seconds: whether they hold the root was never seen.
#[test]
fn namespaces_that_are_not_watched_are_left_alone() {
    in_turn(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "looked-at", "left-alone"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let map = |space: &str| format!("/api/v1/namespaces/{space}/configmaps/istio-ca-root-cert");
        let settings = [("WATCHED_NAMESPACES", "looked-at")];
        let instance = Instance::named(cluster, "watching", &[], &settings).await?;
        let there = async |space: &str| !read(&api, &map(space)).await.is_null();
        until("the root is where it is watched", async || Ok(there("looked-at").await && there("istio-system").await))
            .await?;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        ensure!(!there("left-alone").await, "{}", instance.log());
        Ok(())
    });
}
