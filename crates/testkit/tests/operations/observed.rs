//! `meltemi doctor --prometheus`: Sidecars from who called whom, and thresholds over hours, as a real Prometheus remembers them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use loadgen::mesh::MeshPlan;
use serde_json::Value;
use testkit::scraper::{Scraped, Scraper};
use testkit::{environment, skip};

use crate::doctor::run;
use crate::served::{ServedMesh, plan};

#[test]
fn sidecars_name_what_was_called() {
    let (Some(prometheus), Some(promtool)) = (environment::prometheus(), environment::promtool()) else {
        return skip("observed use: no Prometheus (Debian: apt-get install prometheus, or set MELTEMI_PROMETHEUS)");
    };
    run(async move {
        let wide = MeshPlan { endpoints: 1, scoped: false, virtual_services: 0, destination_rules: 0, ..plan(240, 4) };
        let mesh = ServedMesh::new(&wide, &[])?;
        let _swarm = mesh.swarm().await?;
        remember(&promtool, &mesh)?;
        let scraped = Scraped { monitoring: mesh.monitoring, api_server: None };
        let scraper = Scraper::start(&prometheus, mesh.folder.path(), scraped)?;
        scraper.has_data("increase(istio_requests_total[1d]) > 0").await?;

        let by_objects = sidecars(&mesh, &[])?;
        ensure!(by_objects.len() == 4 && by_objects.iter().all(|(_, hosts)| hosts.len() == 2), "{by_objects:#?}");
        let by_use = sidecars(&mesh, &["--prometheus", &scraper.url()])?;
        let always = ["./*", "istio-system/*"];
        let expected = [
            ("ns-0", [&always[..], &["ns-1/s-1.ns-1.svc.cluster.local", "ns-2/s-2.ns-2.svc.cluster.local"]].concat()),
            ("ns-1", always.to_vec()),
            ("ns-2", always.to_vec()),
            ("ns-3", [&always[..], &["ns-0/s-0.ns-0.svc.cluster.local"]].concat()),
        ];
        let expected = expected
            .map(|(namespace, hosts)| (namespace.to_owned(), hosts.into_iter().map(str::to_owned).collect::<Vec<_>>()));
        ensure!(by_use == expected, "{by_use:#?}");
        suggests(&mesh, &scraper)
    });
}

/// `meltemi scope suggest`: the same hosts, with reasons; applied, the proxies carry what it measured.
fn suggests(mesh: &ServedMesh, scraper: &Scraper) -> Result<()> {
    mesh.write("declared.yaml", DECLARED)?;
    let url = scraper.url();
    let mut report = Value::Null;
    mesh.wait_for("the declared host", || {
        let output = mesh.command(&["scope", "suggest", "-o", "json", "--prometheus", &url])?;
        report = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        Ok(report["namespaces"][0]["hosts"].as_array().is_some_and(|hosts| hosts.len() == 3))
    })?;
    let [first, last] = [0, 3].map(|at| &report["namespaces"][at]);
    let why =
        |it: &Value| (it["declared"] == true, it["observed"] == true, it["calls"].as_f64().unwrap_or_default() > 1.0);
    let reasons: Vec<_> = first["hosts"].as_array().into_iter().flatten().map(why).collect();
    ensure!(reasons == [(true, true, true), (false, true, true), (true, false, false)], "{first:#}");
    ensure!(first["hosts"][1]["workloads"] == serde_json::json!(["web"]), "{first:#}");
    ensure!(last["unknown"] == serde_json::json!(["elsewhere.example.com"]), "{last:#}");
    ensure!(first["leftOut"].as_u64() > Some(150), "{first:#}");

    let text = mesh.command(&["scope", "suggest", "--prometheus", &url])?;
    let text = String::from_utf8(text.stdout)?;
    for part in [
        "imported, called and not declared: s-2.ns-2.svc.cluster.local (",
        "declared and not called in 24h: s-3.ns-3.",
        "called and not known to the mesh",
    ] {
        ensure!(text.contains(part), "{part} is not in {text}");
    }
    mesh.write("sidecars.yaml", &text)?;
    let after = first["after"]["clusters"].as_u64().context("a count")?;
    let sample = first["sample"].as_str().context("a proxy")?;
    mesh.wait_for(&format!("{after} clusters"), || {
        let dump: Value = serde_json::from_str(&mesh.page(&format!("/debug/config_dump?proxyID={sample}&types=cds"))?)?;
        Ok(dump["configs"][0]["dynamicActiveClusters"].as_array().map_or(0, Vec::len) as u64 == after)
    })?;
    let left = mesh.command(&["scope", "suggest", "-o", "json", "--prometheus", &url])?;
    let left: Value = serde_json::from_slice(&left.stdout)?;
    ensure!(left["namespaces"] == serde_json::json!([]), "{left:#}");
    Ok(())
}

const DECLARED: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: declared, namespace: ns-0}
spec:
  hosts: [s-0.ns-0.svc.cluster.local]
  http:
  - route:
    - {destination: {host: s-1.ns-1.svc.cluster.local}, weight: 50}
    - {destination: {host: s-3.ns-3.svc.cluster.local}, weight: 50}
";

/// A Prometheus that has run for some time: calls to other namespaces, to the own one, to nobody whom the mesh knows, and some of long ago.
fn remember(promtool: &Path, mesh: &ServedMesh) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let calls = [
        ("ns-0", "s-1.ns-1.svc.cluster.local", now),
        ("ns-0", "s-2.ns-2.svc.cluster.local", now),
        ("ns-1", "s-1.ns-1.svc.cluster.local", now),
        ("ns-3", "s-0.ns-0.svc.cluster.local", now),
        ("ns-3", "elsewhere.example.com", now),
        ("ns-3", "no host&use=ns-3/s-1", now),
        ("ns-2", "s-3.ns-3.svc.cluster.local", now - 2 * 86_400),
    ];
    let series = calls.map(|(from, to, at)| {
        let sample = |count: u32, before: u64| {
            format!(
                "istio_requests_total{{source_workload=\"web\",source_workload_namespace=\"{from}\",destination_service=\"{to}\"}} {count} {}\n",
                at - before
            )
        };
        sample(10, 7200) + &sample(50, 3600)
    });
    backfill(promtool, mesh, &format!("# TYPE istio_requests counter\n{}", series.concat()))
}

/// Into the data that a Prometheus starts with.
fn backfill(promtool: &Path, mesh: &ServedMesh, series: &str) -> Result<()> {
    let file = mesh.path("history.om");
    fs::write(&file, format!("{series}# EOF\n"))?;
    let output = Command::new(promtool)
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&file, &mesh.path("tsdb")])
        .output()?;
    ensure!(output.status.success(), "promtool: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
/// How long convergence has been slow.
const SLOW: u64 = 2 * HOUR;
/// An instant query sees samples of the last five minutes.
const STEP: u64 = 4 * MINUTE;

/// What lasts two hours is found over two hours, and is a peak over eight.
#[test]
fn thresholds_hold_for_the_time_that_was_asked_for() {
    let (Some(prometheus), Some(promtool)) = (environment::prometheus(), environment::promtool()) else {
        return skip(
            "doctor over hours: no Prometheus (Debian: apt-get install prometheus, or set MELTEMI_PROMETHEUS)",
        );
    };
    run(async move {
        let mesh = ServedMesh::new(&plan(12, 12), &[])?;
        let _swarm = mesh.swarm().await?;
        backfill(&promtool, &mesh, &slow_convergence()?)?;
        let scraped = Scraped { monitoring: mesh.monitoring, api_server: None };
        let scraper = Scraper::start(&prometheus, mesh.folder.path(), scraped)?;
        scraper.has_data("pilot_xds_clients").await?;
        scraper.has_data("pilot_proxy_convergence_time_bucket{job=\"old\"} offset 10m").await?;
        let judged = |since: &str| {
            let output = mesh.command(&["doctor", "-o", "json", "--prometheus", &scraper.url(), "--since", since])?;
            serde_json::from_slice::<Value>(&output.stdout)
                .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let wrong = |report: &Value| {
            let checks = report["checks"].as_array().cloned().unwrap_or_default();
            let wrong = checks.iter().filter(|check| check["mark"] != "ok");
            wrong.filter_map(|check| check["id"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        let short = judged("2h")?;
        ensure!(wrong(&short) == ["convergence", "sharding"], "{short:#}");
        ensure!(short["judgedOver"]["source"] == "from Prometheus", "{short:#}");
        let long = judged("8h")?;
        ensure!(wrong(&long).is_empty(), "{long:#}");
        Ok(())
    });
}

/// Ten changes a minute for nine hours. Each has reached all within a second, but in the last two hours, within a minute.
fn slow_convergence() -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut text = "# TYPE pilot_proxy_convergence_time_bucket gauge\n".to_owned();
    for (bound, slow) in [("1", false), ("30", false), ("60", true), ("+Inf", true)] {
        let mut count = 0;
        for ago in (0..9 * HOUR / STEP).rev().map(|step| step * STEP) {
            if slow || ago >= SLOW {
                count += 10 * STEP / MINUTE;
            }
            text +=
                &format!("pilot_proxy_convergence_time_bucket{{job=\"old\",le=\"{bound}\"}} {count} {}\n", now - ago);
        }
    }
    Ok(text)
}

/// What it would have applied: namespaces and hosts.
fn sidecars(mesh: &ServedMesh, words: &[&str]) -> Result<Vec<(String, Vec<String>)>> {
    let output = mesh.command(&[&["doctor", "-o", "json", "--for", "1s"], words].concat())?;
    let report: Value =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let checks = report["checks"].as_array().context("checks")?;
    let unscoped = checks.iter().find(|check| check["id"] == "unscoped").context("the check of scope")?;
    let objects = unscoped["apply"].as_array().with_context(|| format!("objects in {unscoped}"))?;
    let sidecar = |object: &Value| {
        let text = object.as_str().context("YAML")?;
        let namespace = text.lines().find_map(|line| line.strip_prefix("  namespace: ")).context("a namespace")?;
        let hosts = text.lines().filter_map(|line| line.trim().strip_prefix("- \"")?.strip_suffix('"'));
        Ok((namespace.to_owned(), hosts.map(str::to_owned).collect()))
    };
    objects.iter().map(sidecar).collect()
}
