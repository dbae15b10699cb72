//! Symptoms of the playbook that need proxies, each made real: `meltemi doctor` names the stage and the remedy, and with the remedy it finds
//! nothing any more. Those that objects alone cause are in `doctor`, those of the machine in `strained`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadgen::Swarm;
use loadgen::mesh::MeshPlan;
use serde_json::{Value, json};
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::parity::CaseProxy;
use testkit::{environment, skip};

use crate::doctor::{check, findings, run};
use crate::figures::Figures;
use crate::served::{ServedMesh, Setup, plan};

/// Without Sidecars, and nothing that only takes time.
fn unscoped(services: usize, proxies: usize) -> MeshPlan {
    MeshPlan { endpoints: 1, scoped: false, virtual_services: 0, destination_rules: 0, ..plan(services, proxies) }
}

fn only(found: Vec<Value>, id: &str) -> Vec<Value> {
    found.into_iter().filter(|check| check["id"] == id).collect()
}

/// Queue wait: proxies that read slowly, as over a saturated network. Each keeps its turn for some milliseconds, and all have something to read.
#[test]
fn more_proxies_than_turns() {
    const PROXIES: usize = 600;
    let queued = |throttle: &'static str| async move {
        let mesh = ServedMesh::new(&unscoped(60, PROXIES), &[("PILOT_PUSH_THROTTLE", throttle)])?;
        let mut swarm = mesh.idle_swarm()?;
        swarm.execute("behaviour 100 0").await?;
        swarm.execute("connect").await?;
        mesh.wait_for("proxies that have waited for a second, or have had their turn", || {
            let figures = Figures::of(&mesh)?;
            let turns = |bound: &str| figures.value(&format!("pilot_proxy_queue_time_bucket{{le=\"{bound}\"}}"));
            Ok(turns("+Inf") > turns("1") || turns("+Inf") >= PROXIES as f64)
        })?;
        let found = findings(&mesh)?;
        anyhow::Ok(only(found, "throttle"))
    };
    run(async {
        let found = queued("1").await?;
        check(&found, &["throttle"])?;
        ensure!(found[0]["figures"]["queueP99Seconds"].as_f64() > Some(1.0), "{found:#?}");
        ensure!(found[0]["hint"].to_string().contains("PILOT_PUSH_THROTTLE="), "{found:#?}");
        check(&queued("200").await?, &[])
    });
}

/// Serialisation: proxies without a Sidecar that come again and again, and are sent everything.
#[test]
fn large_responses_take_the_cpu() {
    let served = |plan: MeshPlan| async move {
        let mesh = ServedMesh::new(&plan, &[("MELTEMI_CPU_REQUEST", "200m")])?;
        let mut swarm = mesh.swarm().await?;
        let came = tokio::spawn(async move { come_again(&mut swarm).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let found = tokio::task::spawn_blocking(move || findings(&mesh)).await??;
        came.abort();
        eprintln!("{found:#?}");
        anyhow::Ok(only(found, "cpu"))
    };
    run(async {
        let found = served(unscoped(400, 40)).await?;
        check(&found, &["cpu"])?;
        check(&served(MeshPlan { scoped: true, ..unscoped(400, 40) }).await?, &[])
    });
}

async fn come_again(swarm: &mut Swarm) -> Result<()> {
    loop {
        swarm.execute("replace 50").await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A real Envoy refuses what an EnvoyFilter makes of its clusters.
#[test]
fn an_envoy_that_rejects_what_a_filter_made() {
    let Some(envoy) = environment::envoy() else {
        return skip("rejects of a real Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    let filter = |value: &Value| {
        let patch = json!({ "operation": "MERGE", "value": value });
        json!({
            "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
            "metadata": { "name": "odd", "namespace": "ns-0" },
            "spec": { "configPatches": [{ "applyTo": "CLUSTER", "match": { "context": "GATEWAY" }, "patch": patch }] },
        })
        .to_string()
    };
    run(async move {
        // Its clusters have their endpoints from EDS.
        let odd = filter(&json!({ "lb_policy": "CLUSTER_PROVIDED" }));
        let mesh = ServedMesh::with(&plan(12, 12), &Setup { more: &[("filter.yaml", odd)], ..Setup::default() })?;
        let _swarm = mesh.swarm().await?;
        let proxy =
            CaseProxy::new(&json!({ "name": "edge-1", "namespace": "ns-0", "ip": "127.0.0.1", "type": "router" }))?;
        let bootstrap = Bootstrap { proxy: &proxy, ads: ServerAddress::Tcp(mesh.xds), sds: mesh.path("sds") };
        let proxy = Envoy::start(&envoy, &[], &bootstrap)?;
        let mut found = Vec::new();
        mesh.wait_for("the rejection", || {
            found = findings(&mesh)?;
            Ok(!found.is_empty())
        })
        .with_context(|| proxy.log())?;
        check(&found, &["rejects"])?;
        let cause = &found[0]["figures"][0];
        ensure!(cause["kind"] == "CDS" && cause["objects"].to_string().contains("EnvoyFilter ns-0/odd"), "{found:#?}");
        mesh.write("filter.yaml", &filter(&json!({ "connect_timeout": "3s" })))?;
        mesh.wait_for("an Envoy that accepts it", || Ok(findings(&mesh)?.is_empty())).with_context(|| proxy.log())
    });
}
