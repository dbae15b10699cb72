//! A live stock Envoy whose control plane is replaced: it says what it holds, is sent nothing of it again, and warms nothing anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::authority::Authority;
use testkit::envoy::{Address, Bootstrap, Envoy};
use testkit::parity::Corpus;
use testkit::place;
use testkit::server::{self, Server};
use testkit::{netns, sds, skip};

/// Long enough for a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_proxy_that_reconnects_warms_nothing_again() {
    if place::inside().is_some() {
        return work().unwrap_or_else(|e| panic!("{e:#}"));
    }
    if let Some(why) = netns::missing() {
        return skip(&format!("an Envoy that reconnects: {why}"));
    }
    if place::envoy().is_none() {
        return skip("an Envoy that reconnects: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    let mut command = netns::lonely_rerun("a_proxy_that_reconnects_warms_nothing_again").unwrap();
    command.env(place::PART, "0").env(place::REPORT, "").env(place::PROGRAM, server::program().unwrap());
    assert!(command.status().unwrap().success(), "see above");
}

#[tokio::main]
async fn work() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let case = Corpus::open()?.case("base-only")?;
    case.write_objects(folder.path())?;
    let asker = case.askers.first().context("a proxy")?;
    let socket = tempfile::tempdir()?;
    let sds = socket.path().join("sds");
    let _secrets = sds::Stub::start(&sds, &Authority::new()?, "spiffe://cluster.local/ns/shop/sa/any")?;

    let server = Server::start(folder.path())?;
    let address = server.address;
    let binary = place::envoy().context("no Envoy")?;
    let mut envoy = Envoy::start(&binary, &[], &Bootstrap { asker, ads: Address::Tcp(address), sds })?;
    envoy.wait_live(PATIENCE).await?;
    let before = counts(&envoy).await?;
    ensure!(before["cluster_manager.active_clusters"] > 5, "{before:?}");

    drop(server);
    until(&envoy, |now| now["control_plane.connected_state"] == 0).await?;
    let server = Server::start_on(folder.path(), address)?;
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
    let end = Instant::now() + PATIENCE;
    loop {
        let now = counts(envoy).await?;
        if done(&now) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "still {now:#?}\n{}", envoy.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
