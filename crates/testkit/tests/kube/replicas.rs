//! Several replicas at one API server, between which a fleet moves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadgen::mesh::MeshPlan;
use loadgen::{Swarm, SwarmOptions};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::cluster::ApiWriter;
use testkit::wait::eventually;
use testkit::{environment, say};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::instance::Instance;
use super::with_cluster;

/// What reconnecting may cost, of all that was sent at first.
const RESENT: f64 = 0.02;
const QUIET: Duration = Duration::from_millis(500);

/// What a Service of Kubernetes does: connections go in turns to those that are there.
struct Front {
    address: SocketAddr,
    /// Connections that each has, in the order of the backends.
    open: Arc<[AtomicUsize]>,
    _running: JoinSet<()>,
}

impl Front {
    async fn start(backends: &[SocketAddr]) -> Result<Front> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let open: Arc<[AtomicUsize]> = backends.iter().map(|_| AtomicUsize::new(0)).collect();
        let (address, mut running) = (listener.local_addr()?, JoinSet::new());
        let (backends, counts) = (backends.to_vec(), open.clone());
        running.spawn(async move {
            let mut connections = JoinSet::new();
            let mut turn = 0;
            while let Ok((client, _)) = listener.accept().await {
                turn += 1;
                connections.spawn(forward(client, backends.clone(), turn, counts.clone()));
            }
        });
        Ok(Front { address, open, _running: running })
    }

    fn open(&self) -> Vec<usize> {
        self.open.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

async fn forward(mut client: TcpStream, backends: Vec<SocketAddr>, turn: usize, open: Arc<[AtomicUsize]>) {
    for step in 0..backends.len() {
        let at = (turn + step) % backends.len();
        if let Ok(mut server) = TcpStream::connect(backends[at]).await {
            open[at].fetch_add(1, Ordering::Relaxed);
            // Either end may go at any time.
            let _ = copy_bidirectional(&mut client, &mut server).await;
            open[at].fetch_sub(1, Ordering::Relaxed);
            return;
        }
    }
}

/// Writes a mesh to the API server; what must be there first comes first.
async fn written(api: &ApiWriter, plan: &MeshPlan) -> Result<Vec<Value>> {
    let objects = plan.objects();
    let (first, rest): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| object["kind"] == "Namespace" || object["kind"] == "Node");
    api.apply_all(&first).await?;
    api.apply_all(&rest).await?;
    Ok(rest)
}

async fn phase(swarm: &mut Swarm, mark: &str, command: Option<&str>) -> Result<Value> {
    swarm.execute(&format!("mark {mark}")).await?;
    if let Some(command) = command {
        swarm.execute(command).await?;
    }
    let summary = swarm.execute(&format!("settle 60000 {} 120000", QUIET.as_millis())).await?;
    ensure!(summary["settled"] == true && summary["missed"] == 0, "{mark} does not settle: {summary}");
    Ok(summary)
}

#[test]
fn a_replica_that_is_killed_loses_no_proxy_and_hardly_a_byte_is_sent_again() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        let proxies = environment::streams();
        let plan = MeshPlan {
            services: 20,
            endpoints: 2,
            slices: 1,
            namespaces: 4,
            proxies,
            scoped: false,
            virtual_services: 30,
            destination_rules: 30,
            gateways: 0,
            gateway_proxies: 0,
        };
        let objects = written(&api, &plan).await?;
        let first = Instance::named(cluster, "one", &[], &[]).await?;
        let second = Instance::named(cluster, "two", &[], &[]).await?;
        let front = Front::start(&[first.plain, second.plain]).await?;
        let nodes: Vec<Value> = plan.nodes().collect();
        let mut swarm =
            Swarm::new(&nodes, &SwarmOptions { server: front.address, stalled: 0, silent: 0, authority: None })?;
        let whole = phase(&mut swarm, "connect all", Some("connect")).await?;
        let [moved, stayed] = front.open()[..] else { anyhow::bail!("two backends") };
        ensure!(moved > proxies / 3 && stayed > proxies / 3, "{moved} and {stayed} of {proxies}");

        swarm.execute("mark killed none").await?;
        let began = Instant::now();
        first.signal(Signal::SIGKILL)?;
        eventually("the streams break", async || Ok(front.open()[0] == 0)).await?;
        let after = swarm.execute(&format!("settle 0 {} 60000", QUIET.as_millis())).await?;
        let took = began.elapsed() - QUIET;
        ensure!(after["open"] == proxies, "{} streams after {took:?}: {after}", after["open"]);
        let bytes = |summary: &Value| summary["bytes"].as_f64().unwrap_or_default();
        let share = bytes(&after) / (bytes(&whole) * moved as f64 / proxies as f64);
        ensure!(share < RESENT, "{:.1} % was sent again: {after}", 100.0 * share);

        // The one that is left tells all of them.
        let mut rule = objects.iter().find(|it| it["kind"] == "VirtualService").context("the mesh has some")?.clone();
        rule["spec"]["http"][0]["timeout"] = json!("7s");
        swarm.execute("mark change all").await?;
        api.apply(&rule).await?;
        let received = swarm.execute(&format!("settle 60000 {} 120000", QUIET.as_millis())).await?;
        ensure!(received["missed"] == 0, "{received}");
        say(&format!(
            "replicas: {moved} of {proxies} streams moved in {took:.1?}, {} bytes, {:.2} % of what they were sent at first",
            bytes(&after),
            100.0 * share
        ));
        Ok(())
    });
}
