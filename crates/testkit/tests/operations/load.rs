//! Row L-10: with 10,000 proxies, pushes reach everybody while a page is polled without end, and no page takes much memory. Prints how long
//! things took, and asks for no time: `cargo xtask bench` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use loadgen::mesh::MeshPlan;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use testkit::http_client::{self, HttpRequest};
use testkit::{say, skip};

use crate::figures::{Figures, phase, routed};
use crate::served::{ServedMesh, plan};

const PROXIES: usize = 10_000;
/// Sockets of the proxies, and what else the process has open.
const FILES: u64 = PROXIES as u64 + 500;

#[test]
fn ten_thousand_proxies_are_pushed_to_while_pages_are_polled() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    if hard < FILES {
        return skip(&format!("ten thousand proxies need {FILES} open files, and the limit is {hard} (ulimit -Hn)"));
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(FILES), hard).expect("up to the hard limit");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run()).unwrap_or_else(|e| panic!("{e:#}"));
}

async fn run() -> Result<()> {
    // One endpoint for each of few services: what is looked at is the number of streams.
    let small = MeshPlan { endpoints: 1, virtual_services: 0, destination_rules: 0, ..plan(8, PROXIES) };
    let mesh = ServedMesh::new(&small, &[])?;
    let began = Instant::now();
    let mut swarm = mesh.idle_swarm()?;
    swarm.execute("connect").await?;
    let settled = swarm.execute("settle 280000 300 300000").await?;
    ensure!(settled["settled"] == true && settled["missed"] == 0, "the proxies do not settle: {settled}");
    say(&format!("{PROXIES} proxies connected in {:.1} s", began.elapsed().as_secs_f64()));
    let figures = Figures::of(&mesh)?;
    ensure!(figures.value("pilot_xds_clients") == PROXIES as f64, "{} proxies", figures.value("pilot_xds_clients"));
    ensure!(figures.bytes("informer_cache") < 50e6, "{} bytes of 10,000 pods", figures.bytes("informer_cache"));
    let state = figures.bytes("delta") + figures.bytes("ack");
    say(&format!("{:.0} MB resident, {:.0} MB of it state of streams", figures.resident() / 1e6, state / 1e6));
    ensure!(figures.resident() < 1.5e9 && state < 200e6, "{} bytes, {state} of them for streams", figures.resident());

    let monitoring = HttpRequest::new(mesh.monitoring, "localhost", "/debug/syncz");
    let stop = Arc::new(AtomicBool::new(false));
    let poll = tokio::spawn(polled(monitoring, stop.clone()));
    for round in 0..3 {
        let text = routed("istio-system", round);
        let changed = phase(&mesh, &mut swarm, "all", || mesh.write("extra.yaml", &text)).await?;
        say(&format!("pushed to all while a page is polled: p99 {} ms", changed.received("/p99_ms")?));
    }
    stop.store(true, Ordering::Relaxed);
    say(&format!("the page was served {} times", poll.await??));
    every_page(&mesh).await
}

/// As often as it is answered. Returns how often that was.
async fn polled(ask: HttpRequest, stop: Arc<AtomicBool>) -> Result<usize> {
    let mut answers = 0;
    while !stop.load(Ordering::Relaxed) || answers == 0 {
        let answer = http_client::send_one(&ask).await?;
        ensure!(answer.status == 200, "{}", answer.status);
        answers += 1;
    }
    Ok(answers)
}

async fn every_page(mesh: &ServedMesh) -> Result<()> {
    let list: Vec<String> = serde_json::from_str(&mesh.page("/debug/list")?)?;
    let proxies: Vec<Value> = serde_json::from_str(&mesh.page("/debug/proxies")?)?;
    let one = proxies[0]["proxy"].as_str().context("a name")?;
    let before = Figures::of(mesh)?.resident();
    for page in list.iter().map(String::as_str).chain(["/metrics"]) {
        let began = Instant::now();
        let ask = HttpRequest::new(mesh.monitoring, "localhost", &format!("{page}?proxyID={one}"));
        let answer = http_client::send_one(&ask).await?;
        let took = began.elapsed();
        say(&format!("{page}: {} bytes in {:.0} ms", answer.body.len(), took.as_secs_f64() * 1000.0));
        ensure!(answer.body.len() < 100 << 20, "{page} has {} bytes", answer.body.len());
    }
    let after = Figures::of(mesh)?.resident();
    ensure!(after < before + 300e6, "pages left {} bytes behind", after - before);
    Ok(())
}
