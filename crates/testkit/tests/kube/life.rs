//! The life of the program in a cluster: cut off from the API server, asked to end, killed at any moment, and left by all its proxies at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use loadgen::mesh::MeshPlan;
use loadgen::{Swarm, SwarmOptions};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::ads::AdsClient;
use testkit::cluster::{ApiFault, FaultProxy};
use testkit::parity::CaseProxy;
use testkit::wait::{DEADLINE, eventually};
use tokio::time::{Instant, sleep};

use super::instance::Instance;
use super::{namespace, read, service, with_cluster};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

async fn client(instance: &Instance) -> Result<AdsClient> {
    let node = CaseProxy::new(&json!({ "name": "p", "namespace": "life", "ip": "10.6.6.6" }))?.node();
    let mut client = AdsClient::new(instance.plain, node);
    client.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
    Ok(client)
}

fn cluster_of(name: &str) -> String {
    format!("outbound|80||{name}.life.svc.cluster.local")
}

/// Rows F-01 and F-24.
#[test]
fn cut_off_from_the_api_server_it_serves_on_and_catches_up() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "life"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        api.apply(&service("life", "a")).await?;
        let faulty = FaultProxy::start(cluster.client().await?).await?;
        let kubeconfig = cluster.kubeconfig_for(&faulty.url(), "any")?;
        let instance = Instance::start(&kubeconfig, &[], &[]).await?.ready().await?;
        let mut old = client(&instance).await?;
        faulty.set(ApiFault::Cut);
        let age = || instance.metric("meltemi_watch_age_seconds", "kind=\"Service\"");
        eventually("the picture grows old", async || Ok(age()? > 1.0)).await?;
        let timed_age = || anyhow::Ok((Instant::now(), age()?, Instant::now()));
        let first = timed_age()?;
        api.delete(&service("life", "a")).await?;
        api.apply(&service("life", "b")).await?;
        ensure!(old.count_responses(Duration::from_secs(2)).await? == 0, "a proxy was sent something");
        ensure!(instance.is_ready(), "it stays ready");
        // Each age was read at some time between two clock readings; its own resolution is a second.
        let last = timed_age()?;
        let (least, most) = ((last.0 - first.2).as_secs_f64() - 1.0, (last.2 - first.0).as_secs_f64() + 1.0);
        let grown = last.1 - first.1;
        ensure!((least..most).contains(&grown), "the age grew by {grown} s, and not by {least} to {most} s");
        let mut fresh = client(&instance).await?;
        let known = fresh.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
        ensure!(known.contains_key(&cluster_of("a")), "a new proxy gets what was known: {:?}", known.keys());
        faulty.set(ApiFault::None);
        let caught_up = async || {
            old.count_responses(Duration::from_millis(300)).await?;
            let clusters = old.resources(CDS);
            Ok(clusters.contains_key(&cluster_of("b")) && !clusters.contains_key(&cluster_of("a")))
        };
        eventually("it catches up", caught_up).await?;
        Ok(())
    });
}

/// Row F-21. How connections are sent away over the drain window is tested with the protocol.
#[test]
fn asked_to_end_it_is_not_ready_gives_its_lease_back_and_ends_well() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let mut instance = Instance::named(cluster, "ends", &["--revision", "ends"], &[]).await?;
        let _proxy = client(&instance).await?;
        let lease = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/meltemi-leader-ends";
        let holder = async || read(&api, lease).await["spec"]["holderIdentity"].clone();
        eventually("it leads", async || Ok(holder().await == "ends")).await?;
        instance.signal(Signal::SIGTERM)?;
        eventually("it is not ready", async || Ok(!instance.is_ready())).await?;
        ensure!(instance.ended().await?, "{}", instance.log());
        ensure!(holder().await == "", "{} has the lease", holder().await);
        Ok(())
    });
}

/// Row F-22.
#[test]
fn killed_at_any_moment_it_comes_back_with_the_same_answers() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "life"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let services: Vec<Value> = (0..20).map(|number| service("life", &format!("s{number}"))).collect();
        api.apply_all(&services).await?;
        let kubeconfig = cluster.kubeconfig()?;
        let answers = async |instance: &Instance| {
            let clusters = client(instance).await?.resources(CDS);
            Ok::<BTreeMap<_, _>, anyhow::Error>(clusters)
        };
        let untouched = Instance::start(&kubeconfig, &[], &[]).await?.ready().await?;
        let expected = answers(&untouched).await?;
        ensure!(expected.contains_key(&cluster_of("s19")), "{:?}", expected.keys());
        for step in 0..8 {
            let instance = Instance::start(&kubeconfig, &[], &[]).await?;
            // At another moment of its start each time.
            sleep(Duration::from_millis(40 * step)).await;
            instance.signal(Signal::SIGKILL)?;
        }
        let again = Instance::start(&kubeconfig, &[], &[]).await?.ready().await?;
        ensure!(answers(&again).await? == expected, "other answers than before");
        Ok(())
    });
}

/// Row F-11.
#[test]
fn proxies_that_all_leave_and_come_again_and_again_cost_no_memory() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "life"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let plan = MeshPlan {
            services: 10,
            endpoints: 1,
            slices: 1,
            namespaces: 1,
            proxies: testkit::environment::streams(),
            scoped: false,
            virtual_services: 0,
            destination_rules: 0,
            gateways: 0,
            gateway_proxies: 0,
        };
        let services: Vec<Value> = (0..20).map(|number| service("life", &format!("s{number}"))).collect();
        api.apply_all(&services).await?;
        let instance = Instance::start(&cluster.kubeconfig()?, &[], &[]).await?.ready().await?;
        let nodes: Vec<Value> = plan.nodes().collect();
        let mut swarm =
            Swarm::new(&nodes, &SwarmOptions { server: instance.plain, stalled: 0, silent: 0, authority: None })?;
        swarm.execute("mark connect all").await?;
        swarm.execute("connect").await?;
        let whole = swarm.execute("settle 60000 500 60000").await?;
        ensure!(whole["missed"] == 0 && whole["settled"] == true, "{whole}");
        let before = instance.memory()?;
        for _ in 0..10 {
            swarm.execute("reconnect").await?;
            sleep(Duration::from_millis(300)).await;
        }
        swarm.execute("mark after none").await?;
        let after = swarm.execute("settle 0 500 60000").await?;
        ensure!(after["settled"] == true && after["open"] == nodes.len(), "{after}");
        let grown = instance.memory()? as f64 / before as f64;
        ensure!(grown <= 2.0, "its memory is {grown:.1} times what it was");
        Ok(())
    });
}
