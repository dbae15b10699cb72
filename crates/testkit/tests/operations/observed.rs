//! `meltemi doctor --prometheus`: Sidecars from who called whom, as a real Prometheus remembers it.

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
        Ok(())
    });
}

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
                "istio_requests_total{{source_workload_namespace=\"{from}\",destination_service=\"{to}\"}} {count} {}\n",
                at - before
            )
        };
        sample(10, 7200) + &sample(50, 3600)
    });
    let text = format!("# TYPE istio_requests counter\n{}# EOF\n", series.concat());
    let file = mesh.path("calls.om");
    fs::write(&file, text)?;
    let output = Command::new(promtool)
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&file, &mesh.path("tsdb")])
        .output()?;
    ensure!(output.status.success(), "promtool: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
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
