//! A real API server as the source: the parity corpus through it, faults on the way to it, and the whole program on it. The tests take
//! turns with one server.

mod access;
mod addresses;
mod admission;
mod all_replicas;
mod balance;
mod chart;
mod check;
mod corpus;
mod csr_api;
mod encodings;
mod faults;
mod fencing;
mod injection;
mod instance;
mod leader_tasks;
mod leadership;
mod lease_owner;
mod left;
mod life;
mod program;
mod replicas;
mod revisions;
mod rights;
mod root;
mod scope;
mod sharding;
mod status;
mod tokens;
mod wait;
mod ways;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sources::kube::JSON;
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::fixture::SharedFixture;
use testkit::skip;
use tokio::runtime::Runtime;

struct SharedCluster {
    cluster: TestCluster,
    runtime: Runtime,
    turn: Mutex<()>,
}

/// The cluster of all tests. `None`: it cannot run here, which was reported.
fn shared() -> Option<Arc<SharedCluster>> {
    static CLUSTER: SharedFixture<SharedCluster> = SharedFixture::new();
    CLUSTER.get(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads can be had");
        let cluster = runtime.block_on(TestCluster::start()).unwrap_or_else(|e| panic!("no API server: {e:#}"));
        let Some(cluster) = cluster else {
            skip(
                "the API server as a source: no etcd and kube-apiserver (`cargo xtask setup`, or set MELTEMI_REFERENCE)",
            );
            return None;
        };
        Some(SharedCluster { cluster, runtime, turn: Mutex::default() })
    })
}

/// One test with the server, which has nothing of what other tests wrote.
fn in_turn(scenario: impl AsyncFnOnce(&TestCluster) -> Result<()>) {
    let Some(shared_cluster) = shared() else { return };
    let _turn: MutexGuard<'_, ()> = shared_cluster.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let done = shared_cluster.runtime.block_on(async {
        shared_cluster.cluster.restore().await.context("what earlier tests left behind does not go")?;
        scenario(&shared_cluster.cluster).await
    });
    done.unwrap_or_else(|e| panic!("{e:#}"));
}

/// `Null`: there is none.
async fn read(api: &ApiWriter, path: &str) -> Value {
    let text = api.client.get(path, JSON).await.unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// How many with these labels the API server has answered so far.
async fn requests(api: &ApiWriter, labels: &[&str]) -> Result<f64> {
    let page = api.client.get("/metrics", "text/plain").await?;
    let page = String::from_utf8_lossy(&page);
    let meant =
        |line: &&str| line.starts_with("apiserver_request_total{") && labels.iter().all(|label| line.contains(label));
    let counts = page.lines().filter(meant).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(counts.sum())
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

fn service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": namespace },
        "spec": { "clusterIP": "None", "ports": [{ "name": "http", "port": 80 }] },
    })
}

/// What the regular expression is, no schema of the API server asks.
fn virtual_service(namespace: &str, name: &str, regex: &str) -> Value {
    let route = json!({ "match": [{ "uri": { "regex": regex } }], "route": [{ "destination": { "host": name } }] });
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": { "name": name, "namespace": namespace },
        "spec": { "hosts": [name], "http": [route] },
    })
}
