//! The status of objects: accepted or not and why, how many proxies hold it, written once and beside what others write.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::ads::Client;
use testkit::cluster::Api;
use testkit::parity::Asker;
use tokio::time::sleep;

use super::instance::{Instance, until};
use super::{in_turn, namespace, read, virtual_service};

const OBJECT: &str = "/apis/networking.istio.io/v1/namespaces/told/virtualservices/web";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/meltemi-status";

async fn condition(api: &Api, kind: &str) -> Value {
    let object = read(api, OBJECT).await;
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["type"] == kind).unwrap_or_default()
}

async fn told(api: &Api, kind: &str, reason: &str, generation: i64) -> Result<()> {
    let there = async || {
        let found = condition(api, kind).await;
        Ok(found["reason"] == reason && found["observedGeneration"] == generation)
    };
    let done = until(&format!("{kind} is {reason} for generation {generation}"), there).await;
    let found = read(api, OBJECT).await["status"].to_string();
    done.map_err(|error| error.context(found))
}

/// Asks as a sidecar would, and answers what comes meanwhile.
async fn listen(proxy: &mut Client) -> Result<()> {
    for (kind, name) in
        [("cluster.v3.Cluster", None), ("listener.v3.Listener", None), ("route.v3.RouteConfiguration", Some("80"))]
    {
        let names: BTreeSet<String> = name.into_iter().map(str::to_owned).collect();
        proxy.ask(&format!("type.googleapis.com/envoy.config.{kind}"), &names, Duration::from_secs(5)).await?;
    }
    Ok(())
}

#[test]
fn an_object_says_whether_it_was_accepted_and_who_holds_it() {
    in_turn(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "told"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let ports = json!([{ "name": "http", "port": 80 }]);
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "told" }, "spec": { "ports": ports } });
        api.apply(&service).await?;
        let object = |regex| virtual_service("told", "web", regex);
        api.apply(&object("/")).await?;
        let first = Instance::named(cluster, "first", &[], &[]).await?;
        let second = Instance::named(cluster, "second", &[], &[]).await?;
        let node = Asker::new(&json!({ "name": "p", "namespace": "told", "ip": "10.9.9.8" }))?.node();
        let mut proxy = Client::new(first.plain, node);
        listen(&mut proxy).await?;
        told(&api, "Accepted", "Accepted", 1).await?;

        // A bad version: the reason stands where people look.
        api.apply(&object("(")).await?;
        told(&api, "Accepted", "Invalid", 2).await?;
        let refused = condition(&api, "Accepted").await;
        ensure!(
            refused["status"] == "False" && refused["message"].to_string().contains("spec.http[0].match[0].uri"),
            "{refused}"
        );

        // What others wrote stays, and a good version is reported with the proxies that hold it.
        let theirs = json!({ "type": "Theirs", "status": "True", "reason": "R", "message": "m" });
        let held = read(&api, OBJECT).await["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let all: Vec<Value> = held.into_iter().chain([theirs.clone()]).collect();
        let patch = json!({ "status": { "conditions": all } }).to_string();
        let path = format!("{OBJECT}/status?fieldManager=other");
        let (code, text) = api.client.send(Method::PATCH, &path, "application/merge-patch+json", patch.into()).await?;
        ensure!(code.is_success(), "{}", String::from_utf8_lossy(&text));
        api.apply(&object("/more")).await?;
        // Whenever it comes, the proxy answers.
        let acknowledged = async || {
            proxy.heard(Duration::from_millis(300)).await?;
            let found = condition(&api, "Reconciled").await;
            Ok(found["reason"] == "Acknowledged" && found["observedGeneration"] == 3)
        };
        until("the proxy has acknowledged it", acknowledged).await.with_context(|| first.log())?;
        let held = condition(&api, "Reconciled").await;
        ensure!(held["status"] == "True" && held["message"] == "1 of 1 proxies have acknowledged it", "{held}");
        ensure!(condition(&api, "Theirs").await["message"] == "m", "the condition of another is gone");

        // Nothing changes, nothing is written; not by a new leader either.
        let version = async || read(&api, OBJECT).await["metadata"]["resourceVersion"].clone();
        let before = version().await;
        sleep(Duration::from_secs(4)).await;
        ensure!(version().await == before, "an unchanged status was written again");
        let holder = async || read(&api, LEASE).await["spec"]["holderIdentity"].clone();
        ensure!(holder().await == "first", "{}", holder().await);
        first.signal(Signal::SIGTERM)?;
        until("the second leads", async || Ok(holder().await == "second")).await?;
        sleep(Duration::from_secs(4)).await;
        ensure!(version().await == before, "the new leader wrote what was there\n{}", second.log());
        api.apply(&object("(")).await?;
        told(&api, "Accepted", "Invalid", 4).await
    });
}
