//! A live stock Envoy whose control plane is replaced: it says what it holds, is sent nothing of it again, and warms nothing again.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use testkit::environment;
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::parity::Corpus;
use testkit::server::{self, MeltemiServer};
use testkit::test_ca::TestCa;
use testkit::wait::eventually;
use testkit::{netns, sds, skip};

#[test]
fn a_proxy_that_reconnects_warms_nothing_again() {
    if environment::rerun().is_some() {
        return work().unwrap_or_else(|e| panic!("{e:#}"));
    }
    if let Some(why) = netns::missing() {
        return skip(&format!("an Envoy that reconnects: {why}"));
    }
    if environment::envoy().is_none() {
        return skip("an Envoy that reconnects: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    let mut command = netns::isolated_rerun("a_proxy_that_reconnects_warms_nothing_again").unwrap();
    command
        .env(environment::PART, "0")
        .env(environment::REPORT, "")
        .env(environment::PROGRAM, server::program().unwrap());
    assert!(command.status().unwrap().success(), "see above");
}

#[tokio::main]
async fn work() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let case = Corpus::open()?.case("base-only")?;
    case.write_objects(folder.path())?;
    let proxy = case.proxies.first().context("a proxy")?;
    let socket = tempfile::tempdir()?;
    let sds = socket.path().join("sds");
    let _secrets = sds::SdsStub::start(&sds, &TestCa::new()?, "spiffe://cluster.local/ns/shop/sa/any")?;

    let server = MeltemiServer::start(folder.path())?;
    let address = server.address;
    let binary = environment::envoy().context("no Envoy")?;
    let mut envoy = Envoy::start(&binary, &[], &Bootstrap { proxy, ads: ServerAddress::Tcp(address), sds })?;
    envoy.wait_live().await?;
    let before = counts(&envoy).await?;
    ensure!(before["cluster_manager.active_clusters"] > 5, "{before:?}");

    drop(server);
    until(&envoy, |now| now["control_plane.connected_state"] == 0).await?;
    let server = MeltemiServer::start_on(folder.path(), address)?;
    // A first request for everything is answered even when there is nothing to say.
    until(&envoy, |now| {
        now["control_plane.connected_state"] == 1
            && UPDATES.iter().all(|name| now[*name] > before[*name])
            && now["cluster_manager.warming_clusters"] == 0
    })
    .await?;
    let after = counts(&envoy).await?;
    for name in CHANGES {
        ensure!(before[name] == after[name], "{name} was {} and is {}", before[name], after[name]);
    }

    std::fs::write(folder.path().join("more.yaml"), SERVICE)?;
    until(&envoy, |now| now["cluster_manager.cluster_added"] > after["cluster_manager.cluster_added"]).await?;
    drop(server);
    Ok(())
}

const SERVICE: &str = "{apiVersion: v1, kind: Service, metadata: {name: late, namespace: default}, \
    spec: {clusterIP: 10.96.99.99, ports: [{name: http, port: 8123}]}}";

const UPDATES: [&str; 2] = ["cluster_manager.cds.update_success", "listener_manager.lds.update_success"];

/// What must not move when nothing changed.
const CHANGES: [&str; 7] = [
    "cluster_manager.cluster_added",
    "cluster_manager.cluster_modified",
    "cluster_manager.cluster_removed",
    "cluster_manager.cluster_updated",
    "listener_manager.listener_added",
    "listener_manager.listener_modified",
    "listener_manager.listener_removed",
];

async fn counts(envoy: &Envoy) -> Result<BTreeMap<String, u64>> {
    Ok(envoy.stats(r"^(cluster_manager|listener_manager|control_plane)\.").await?.into_iter().collect())
}

async fn until(envoy: &Envoy, done: impl Fn(&BTreeMap<String, u64>) -> bool) -> Result<()> {
    let mut now = BTreeMap::new();
    let reached = eventually("other counters of Envoy", async || {
        now = counts(envoy).await?;
        Ok(done(&now))
    });
    reached.await.with_context(|| format!("{now:#?}\n{}", envoy.log()))
}
