//! Two control planes in one cluster, each with a revision and the namespaces that carry its label: what happens in one shard costs the other
//! nothing.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loadgen::mesh::Plan;
use loadgen::{Options, Swarm};
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::load::{self, Ask};
use testkit::process::Process;
use testkit::server;

use super::{in_turn, namespace, virtual_service};

const PATIENCE: Duration = Duration::from_secs(60);

/// A control plane, and the proxies of its namespace.
struct Shard {
    monitoring: SocketAddr,
    swarm: Swarm,
    _process: Process,
}

impl Shard {
    async fn start(cluster: &Cluster, folder: &Path, plan: &Plan, revision: &str, namespace: &str) -> Result<Shard> {
        let port = || anyhow::Ok(SocketAddr::from(([127, 0, 0, 1], server::free_port()?)));
        let (xds, monitoring) = (port()?, port()?);
        let program = tokio::task::spawn_blocking(server::program).await??;
        let mut command = Command::new(program);
        command.args(["serve", "--httpAddr=", "--httpsAddr=", "--secureGRPCAddr=", "--revision", revision]);
        command.args([format!("--grpcAddr={xds}"), format!("--monitoringAddr={monitoring}")]);
        command.arg("--kubeconfig").arg(cluster.kubeconfig()?).env("POD_NAME", revision);
        let process = Process::start(&mut command, &folder.join(format!("{revision}.log")))?;
        let own = plan.nodes().filter(|node| node["metadata"]["NAMESPACE"] == namespace);
        let swarm = Swarm::new(&own.collect::<Vec<_>>(), &Options { server: xds, stalled: 0, silent: 0 })?;
        let mut shard = Shard { monitoring, swarm, _process: process };
        let end = Instant::now() + PATIENCE;
        while !shard.metric("pilot_services").await.is_ok_and(|services| services > 1.0) {
            ensure!(Instant::now() < end, "it has read nothing");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        shard.swarm.obey("connect").await?;
        shard.settled("all").await?;
        Ok(shard)
    }

    async fn settled(&mut self, audience: &str) -> Result<Value> {
        let heard =
            self.swarm.obey(if audience == "none" { "settle 0 1500 5000" } else { "settle 20000 500 40000" }).await?;
        ensure!(heard["settled"] == true && heard["missed"] == 0 && heard["strangers"] == 0, "{heard}");
        Ok(heard)
    }

    /// Over all labels.
    async fn metric(&self, name: &str) -> Result<f64> {
        let page = load::one(&Ask::new(self.monitoring, "localhost", "/metrics")).await?.body;
        let lines = page.lines().filter_map(|line| line.rsplit_once(' '));
        let values = lines.filter(|(series, _)| series.split('{').next() == Some(name));
        Ok(values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum())
    }

    /// What it did so far for its proxies.
    async fn work(&self) -> Result<[f64; 2]> {
        Ok([self.metric("pilot_xds_pushes").await?, self.metric("pilot_push_context_recompute_count").await?])
    }
}

fn mesh_config(revision: &str) -> Value {
    let mesh = format!("discoverySelectors: [{{matchLabels: {{istio.io/rev: {revision}}}}}]");
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "mesh": mesh },
        "metadata": { "name": format!("istio-{revision}"), "namespace": "istio-system" },
    })
}

/// The services and pods of two namespaces, without what Kubernetes fills in by itself.
fn objects(plan: &Plan, folder: &Path) -> Result<Vec<Value>> {
    plan.write(folder)?;
    let mut all = Vec::new();
    for space in ["ns-0", "ns-1"] {
        for file in std::fs::read_dir(folder.join("objects").join(space))? {
            let text = std::fs::read_to_string(file?.path())?;
            let documents = text.split("\n---\n").map(|document| serde_json::from_str(document).context("JSON"));
            all.extend(documents.collect::<Result<Vec<Value>>>()?);
        }
    }
    Ok(all)
}

#[test]
fn what_happens_in_one_shard_costs_the_other_nothing() {
    in_turn(async |cluster| {
        let (api, folder) = (cluster.api().await?, tempfile::tempdir()?);
        let plan = Plan {
            services: 8,
            endpoints: 1,
            namespaces: 2,
            proxies: 8,
            scoped: false,
            virtual_services: 0,
            destination_rules: 0,
            gateways: 0,
            routers: 0,
        };
        let spaces = [("one", "ns-0"), ("two", "ns-1")];
        api.apply(&namespace("istio-system", &json!({}))).await?;
        for (revision, space) in spaces {
            api.apply(&mesh_config(revision)).await?;
            api.apply(&namespace(space, &json!({ "istio.io/rev": revision }))).await?;
        }
        let objects = objects(&plan, folder.path())?;
        api.apply_all(&objects).await?;
        let mut shards = Vec::new();
        for (revision, space) in spaces {
            let shard = Shard::start(cluster, folder.path(), &plan, revision, space).await?;
            ensure!(shard.metric("pilot_xds_clients").await? == 4.0, "each has its share of the proxies");
            ensure!(shard.metric("pilot_services").await? == 4.0, "and of the services");
            shards.push(shard);
        }
        let [one, two] = &mut shards[..] else { unreachable!("two were made") };
        let before = [one.work().await?, two.work().await?];
        one.swarm.obey("mark changed all").await?;
        two.swarm.obey("mark changed none").await?;
        let changed = virtual_service("ns-0", "s-0", "/changed.*");
        api.apply(&changed).await?;
        let heard = one.settled("all").await?;
        ensure!(heard["reached"] == 4, "{heard}");
        let heard = two.settled("none").await?;
        ensure!(heard["reached"] == 0, "{heard}");
        let after = [one.work().await?, two.work().await?];
        ensure!(after[0][0] > before[0][0] && after[0][1] > before[0][1], "{before:?} {after:?}");
        ensure!(after[1] == before[1], "the other shard worked, too: {before:?} {after:?}");
        drop(shards);
        api.delete(&changed).await?;
        api.delete_all(&objects).await?;
        for (revision, _) in spaces {
            api.delete(&mesh_config(revision)).await?;
        }
        Ok(())
    });
}
