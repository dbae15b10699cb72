//! app -> sidecar -> sidecar -> app between two network namespaces, redirected by iptables, over mutual TLS: HTTP, gRPC, raw TCP.

mod app;
mod pod;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use pod::Pod;
use testkit::environment::{self, Rerun};
use testkit::server::{self, MeltemiServer};
use testkit::test_ca::TestCa;
use testkit::wait::eventually;
use testkit::{netns, say, skip};

#[test]
fn traffic_passes_both_sidecars() {
    if let Some(inside) = environment::rerun() {
        return play(&inside).unwrap_or_else(|e| panic!("{e:#}"));
    }
    if let Some(why) = netns::missing().or_else(iptables_missing) {
        return skip(&format!("traffic through two sidecars: {why}"));
    }
    if environment::envoy().is_none() {
        return skip("traffic through two sidecars: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    server::program().unwrap();
    run().unwrap_or_else(|e| panic!("{e:#}"));
}

fn iptables_missing() -> Option<String> {
    let found = std::process::Command::new("iptables").arg("--version").output();
    found.err().map(|e| format!("iptables does not start: {e}"))
}

/// The roles of the processes that stand in for applications.
#[tokio::main]
async fn play(inside: &Rerun) -> Result<()> {
    match inside.part.as_str() {
        "server" => app::serve(&inside.report).await,
        _ => app::call_all(&inside.report).await,
    }
}

#[tokio::main]
async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let objects = folder.path().join("objects");
    std::fs::create_dir(&objects)?;
    std::fs::write(objects.join("mesh.yaml"), include_str!("mesh.yaml"))?;
    let mut server = MeltemiServer::start(&objects)?;
    let ads = folder.path().join("ads");
    testkit::pod::forward(&ads, server.address)?;

    let authority = TestCa::new()?;
    let mut client = Pod::new(folder.path(), "client", "10.77.0.1", &authority)?;
    let mut web = Pod::new(folder.path(), "web", "10.77.0.2", &authority)?;
    pod::connect(&client, &web)?;
    let listening = folder.path().join("listening");
    let _app = web.app("server", &listening)?;
    for pod in [&mut client, &mut web] {
        pod.start_sidecar(&ads).await.with_context(|| server.log())?;
    }
    wait_for(&listening).await?;
    let answers = folder.path().join("answers");
    let status = client.app("client", &answers)?.0.wait()?;
    ensure!(status.success(), "the client failed, see above\n{}\n{}", client.log(), web.log());
    check(&std::fs::read_to_string(answers)?, &client, &web).await
}

async fn check(answers: &str, client: &Pod, web: &Pod) -> Result<()> {
    let caller = "URI=spiffe://cluster.local/ns/shop/sa/client";
    ensure!(answers.contains("http: hello"), "{answers}");
    ensure!(answers.contains(caller), "the web app did not receive the caller: {answers}");
    ensure!(answers.contains("grpc: hello") && answers.contains("tcp: hello"), "{answers}");
    for port in [80, 9000, 5000] {
        let pattern = format!(r"^cluster\.outbound\|{port}\|\|web\.shop\..*upstream_cx_total$");
        ensure!(client.count(&pattern).await? > 0, "port {port} did not go through the client's sidecar");
    }
    let handshakes = web.count(r"^listener\..*_15006\.ssl\.handshake$").await?;
    ensure!(handshakes >= 3, "{handshakes} TLS handshakes at the web sidecar, want one for each protocol");
    say("traffic: HTTP, gRPC and TCP through two sidecars over mutual TLS");
    Ok(())
}

async fn wait_for(file: &Path) -> Result<()> {
    eventually("the web app to listen", async || Ok(file.exists())).await
}
