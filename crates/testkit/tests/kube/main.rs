//! A real API server as the source: the parity corpus through it, faults on the way to it, and the whole program on it. The tests take
//! turns with one server.

mod access;
mod addresses;
mod admission;
mod balance;
mod chart;
mod corpus;
mod csr_api;
mod duties;
mod faults;
mod fencing;
mod instance;
mod leadership;
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
mod ways;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sources::kube::JSON;
use testkit::cluster::{Api, Cluster};
use testkit::skip;
use tokio::runtime::Runtime;

struct World {
    cluster: Cluster,
    runtime: Runtime,
    turn: Mutex<()>,
}

/// Made by the first test and ended by the last that holds it. `None`: it cannot run here, which was said.
fn shared() -> Option<Arc<World>> {
    static LIVE: Mutex<Weak<World>> = Mutex::new(Weak::new());
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(world) = live.upgrade() {
        return Some(world);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads can be had");
    let cluster = runtime.block_on(Cluster::start()).unwrap_or_else(|e| panic!("no API server: {e:#}"));
    let Some(cluster) = cluster else {
        skip("the API server as a source: no etcd and kube-apiserver (`cargo xtask setup`, or set MELTEMI_REFERENCE)");
        return None;
    };
    let world = Arc::new(World { cluster, runtime, turn: Mutex::default() });
    *live = Arc::downgrade(&world);
    Some(world)
}

/// One test with the server, which has nothing of what other tests wrote.
fn in_turn(scenario: impl AsyncFnOnce(&Cluster) -> Result<()>) {
    let Some(world) = shared() else { return };
    let _turn: MutexGuard<'_, ()> = world.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let done = world.runtime.block_on(async {
        world.cluster.restore().await.context("what earlier tests left behind does not go")?;
        scenario(&world.cluster).await
    });
    done.unwrap_or_else(|e| panic!("{e:#}"));
}

/// `Null`: there is none.
async fn read(api: &Api, path: &str) -> Value {
    let text = api.client.get(path, JSON).await.unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// How many with these labels the API server has answered so far.
async fn requests(api: &Api, labels: &[&str]) -> Result<f64> {
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
