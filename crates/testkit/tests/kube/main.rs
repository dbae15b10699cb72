//! A real API server as the source: the parity corpus through it, faults on the way to it, and the whole program on it. Each test has a
//! server for itself while it runs.

mod access;
mod addresses;
mod admission;
mod all_replicas;
mod balance;
mod chart;
mod check;
mod corpus;
mod csr_api;
mod dashboard;
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

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sources::kube::JSON;
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::fixture::SharedFixture;
use testkit::skip;
use tokio::runtime::Runtime;

struct Cluster {
    server: TestCluster,
    runtime: Runtime,
}

/// The API servers of all tests. Two, since most tests mostly wait.
struct Clusters {
    pool: Mutex<Pool>,
    changed: Condvar,
}

struct Pool {
    idle: Vec<Cluster>,
    /// How many more may be started.
    unstarted: usize,
}

impl Clusters {
    fn new() -> Clusters {
        Clusters { pool: Mutex::new(Pool { idle: Vec::new(), unstarted: 2 }), changed: Condvar::new() }
    }

    /// One that is idle or new, otherwise the next that is returned. `None`: it cannot run here.
    fn take(&self) -> Result<Option<Cluster>> {
        let nothing = |pool: &mut Pool| pool.idle.is_empty() && pool.unstarted == 0;
        let mut pool = self.changed.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = pool.idle.pop() {
            return Ok(Some(cluster));
        }
        pool.unstarted -= 1;
        drop(pool);
        let started = Cluster::start();
        if !matches!(started, Ok(Some(_))) {
            self.lock().unstarted += 1;
            self.changed.notify_one();
        }
        started
    }

    fn give_back(&self, cluster: Cluster) {
        self.lock().idle.push(cluster);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// `None`: its programs are not there.
    fn start() -> Result<Option<Cluster>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let server = runtime.block_on(TestCluster::start())?;
        Ok(server.map(|server| Cluster { server, runtime }))
    }
}

/// One test with a server of its own, which has nothing of what other tests wrote.
fn with_cluster(scenario: impl AsyncFnOnce(&TestCluster) -> Result<()>) {
    static CLUSTERS: SharedFixture<Clusters> = SharedFixture::new();
    let clusters = CLUSTERS.get(|| Some(Clusters::new())).expect("it is always made");
    let Some(cluster) = clusters.take().unwrap_or_else(|e| panic!("no API server: {e:#}")) else {
        skip("the API server as a source: no etcd and kube-apiserver (`cargo xtask setup`, or set MELTEMI_REFERENCE)");
        return;
    };
    let done = catch_unwind(AssertUnwindSafe(|| {
        cluster.runtime.block_on(async {
            cluster.server.restore().await.context("what earlier tests left behind does not go")?;
            scenario(&cluster.server).await
        })
    }));
    clusters.give_back(cluster);
    match done {
        Ok(done) => done.unwrap_or_else(|e| panic!("{e:#}")),
        Err(panic) => resume_unwind(panic),
    }
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
