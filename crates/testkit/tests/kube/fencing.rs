//! Two replicas of which the leader's way to the API server stalls: the other takes over, and the two never both write.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use controllers::{Leadership, Lease, LeaseTiming, leadership};
use http::Method;
use serde_json::{Value, json};
use sources::kube::{ApiAccess, JSON, KubeClient};
use testkit::cluster::{ApiFault, ApiWriter, FaultProxy, TestCluster};
use testkit::wait::{eventually, observe};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{namespace, read, with_cluster};

const SPACE: &str = "fenced";
const MAPS: &str = "/api/v1/namespaces/fenced/configmaps";
const MAP: &str = "/api/v1/namespaces/fenced/configmaps/written";
const ONE: &str = "metadata.name%3Dwritten";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/fenced/leases/writer";
/// As the program's, a third as long: what a slow machine delays is still short beside it.
const TIMING: LeaseTiming =
    LeaseTiming { length: Duration::from_secs(5), deadline: Duration::from_secs(3), renewal: Duration::from_secs(1) };

/// A replica that leads when it can, and writes its name as often as it can while it leads.
async fn replica(
    cluster: &TestCluster,
    server: &FaultProxy,
    name: &'static str,
    tasks: &mut JoinSet<()>,
) -> Result<Leadership> {
    let kubeconfig = cluster.kubeconfig_for(&server.url(), "any")?;
    let client = KubeClient::new(&ApiAccess { kubeconfig: Some(kubeconfig), rate: 1000 }).await?;
    let (elected, leads) = leadership();
    tasks.spawn(Lease::new(&client, SPACE, "writer", name, TIMING).follow(elected));
    let leadership = leads.clone();
    tasks.spawn(async move {
        for number in 0_u64.. {
            leadership.write(write(&client, name, number)).await;
            sleep(Duration::from_millis(20)).await;
        }
    });
    Ok(leads)
}

/// Whatever is there: nothing but the lease keeps two writers apart.
async fn write(client: &KubeClient, name: &str, number: u64) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "written", "namespace": SPACE },
        "data": { "by": name, "number": number.to_string() },
    });
    let path = format!("{MAP}?fieldManager=test&force=true");
    let _ = client.send(Method::PATCH, &path, "application/apply-patch+yaml", map.to_string().into()).await;
}

async fn writer(api: &ApiWriter) -> String {
    read(api, MAP).await["data"]["by"].as_str().unwrap_or_default().to_owned()
}

/// Who wrote each version since then, without repetitions. Nobody writes any more.
async fn writers(api: &ApiWriter, since: u64) -> Result<Vec<String>> {
    // A watch ends by itself; on a busy machine it may bring nothing before. What the API server had received when its
    // client was stopped may still be written.
    for seconds in [2, 10, 60] {
        let last = read(api, MAP).await["metadata"]["resourceVersion"].clone();
        let path = format!("{MAPS}?watch=true&timeoutSeconds={seconds}&resourceVersion={since}&fieldSelector={ONE}");
        let events = api.client.get(&path, JSON).await?;
        let events =
            serde_json::Deserializer::from_slice(&events).into_iter::<Value>().collect::<Result<Vec<_>, _>>()?;
        if events.last().is_some_and(|event| event["object"]["metadata"]["resourceVersion"] == last) {
            let names = events.iter().filter_map(|event| event["object"]["data"]["by"].as_str());
            let mut names: Vec<String> = names.map(str::to_owned).collect();
            names.dedup();
            return Ok(names);
        }
    }
    bail!("no watch brings all versions since {since}")
}

async fn stalled(cluster: &TestCluster, delayed: &'static str) -> Result<()> {
    let api = cluster.api().await?;
    let since = api.apply(&namespace(SPACE, &json!({}))).await?.version;
    let (mut tasks, client) = (JoinSet::new(), cluster.client().await?);
    let [ours, theirs] = [FaultProxy::start(client.clone()).await?, FaultProxy::start(client).await?];
    let first = replica(cluster, &ours, "first", &mut tasks).await?;
    eventually("the first writes", async || Ok(writer(&api).await == "first")).await?;
    let second = replica(cluster, &theirs, "second", &mut tasks).await?;
    observe(TIMING.length).await;
    ensure!(first.is_held() && !second.is_held(), "a lease that is renewed moves");

    ours.set(ApiFault::Hold(delayed));
    eventually("the second leads", async || {
        ensure!(!(first.is_held() && second.is_held()), "both lead");
        // Looked at more often than others are waited for: they may overlap for a moment only.
        sleep(Duration::from_millis(1)).await;
        Ok(second.is_held())
    })
    .await?;
    eventually("the second writes", async || Ok(writer(&api).await == "second")).await?;
    // The delayed requests come through.
    ours.set(ApiFault::None);
    observe(TIMING.length).await;
    ensure!(second.is_held() && !first.is_held(), "a lease that is renewed moves");
    let moves = read(&api, LEASE).await["spec"]["leaseTransitions"].as_i64().context("transitions")?;
    ensure!(moves == 2, "{moves} times the lease changed hands");
    tasks.shutdown().await;
    let found = writers(&api, since).await?;
    ensure!(found == ["first", "second"], "delayed {delayed:?}: {found:?}");
    Ok(())
}

/// Its renewals waited for the API server, and it wrote on.
#[test]
fn a_leader_whose_renewals_stall_stops_writing_before_another_begins() {
    with_cluster(async |cluster| stalled(cluster, "/leases/").await);
}

/// A write that waited for the API server arrived when another had written.
#[test]
fn writes_that_stall_are_abandoned_before_another_writes() {
    with_cluster(async |cluster| stalled(cluster, "/").await);
}
