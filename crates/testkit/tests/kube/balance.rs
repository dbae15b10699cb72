//! Two replicas side by side: they see each other, say whether they hold the same, and share the proxies.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testkit::ads::AdsClient;
use testkit::parity::CaseProxy;
use testkit::server;
use testkit::wait::{DEADLINE, eventually};

use super::instance::Instance;
use super::{namespace, service, with_cluster};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// What `meltemi replicas` says, and its exit code.
async fn replicas(instance: &Instance) -> Result<(Option<i32>, Vec<Value>)> {
    let url = instance.url();
    let ask = move || {
        anyhow::Ok(Command::new(server::program()?).args(["replicas", "-o", "json", "--server", &url]).output()?)
    };
    let done = tokio::task::spawn_blocking(ask).await??;
    let output: Value =
        serde_json::from_slice(&done.stdout).with_context(|| String::from_utf8_lossy(&done.stderr).into_owned())?;
    Ok((done.status.code(), output.as_array().cloned().unwrap_or_default()))
}

fn of<'a>(found: &'a [Value], name: &str) -> &'a Value {
    found.iter().find(|it| it["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn replicas_see_each_other_and_share_the_proxies() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "shared"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let first = Instance::named(cluster, "first", &[], &[]).await?;
        let mut proxies = Vec::new();
        for number in 0..24 {
            let node = json!({ "name": format!("p{number}"), "namespace": "shared", "ip": format!("10.8.0.{number}") });
            let mut proxy = AdsClient::new(first.plain, CaseProxy::new(&node)?.node());
            proxy.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
            proxies.push(proxy);
        }
        eventually("it says of itself that it is in step", async || {
            let (code, found) = replicas(&first).await?;
            Ok(code == Some(0) && found.len() == 1 && found[0]["state"] == "in-step")
        })
        .await
        .with_context(|| first.log())?;
        // Alone it gives nothing away.
        let second = Instance::named(cluster, "second", &[], &[]).await?;
        eventually("both hold the same", async || {
            let (code, found) = replicas(&second).await?;
            let same = of(&found, "first")["inputs"] == of(&found, "second")["inputs"];
            Ok(code == Some(0) && found.len() == 2 && same && of(&found, "first")["state"] == "in-step")
        })
        .await?;
        api.apply(&service("shared", "web")).await?;
        eventually("the first has given some away", async || {
            Ok(of(&replicas(&second).await?.1, "first")["streams"].as_u64().is_some_and(|it| it <= 19))
        })
        .await
        .with_context(|| first.log())?;
        eventually("it says why", async || Ok(first.log().contains("above the fair share"))).await?;
        // Whoever was asked to go can go: the other takes it, with what is new.
        let node = json!({ "name": "moved", "namespace": "shared", "ip": "10.8.1.1" });
        eventually("the other serves what is new", async || {
            let mut moved = AdsClient::new(second.plain, CaseProxy::new(&node)?.node());
            let clusters = moved.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
            Ok(clusters.contains_key("outbound|80||web.shared.svc.cluster.local"))
        })
        .await?;
        drop(proxies);
        drop(first);
        eventually("who left is not missed", async || {
            let (code, found) = replicas(&second).await?;
            Ok(code == Some(0) && found.len() == 1)
        })
        .await
    });
}
