//! Symptoms of the playbook that need proxies, each made real: `meltemi doctor` names the stage and the remedy, and with the remedy it finds
//! nothing any more. Those that objects alone cause are in `doctor`, those of the machine in `strained`.

use anyhow::{Context, Result, ensure};
use loadgen::Swarm;
use loadgen::mesh::MeshPlan;
use serde_json::{Value, json};
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::parity::CaseProxy;
use testkit::sds::SdsStub;
use testkit::test_ca::TestCa;
use testkit::{environment, skip};

use crate::doctor::{check, findings, findings_over, run};
use crate::served::{ServedMesh, Setup, plan};

/// Without Sidecars, and nothing that only takes time.
fn unscoped(services: usize, proxies: usize) -> MeshPlan {
    MeshPlan { endpoints: 1, scoped: false, virtual_services: 0, destination_rules: 0, ..plan(services, proxies) }
}

fn only(found: Vec<Value>, id: &str) -> Vec<Value> {
    found.into_iter().filter(|check| check["id"] == id).collect()
}

/// All proxies of the mesh, which read slowly from now on.
async fn slow_swarm(mesh: &ServedMesh) -> Result<Swarm> {
    let mut swarm = mesh.swarm().await?;
    // They come back with what they hold.
    for line in ["mark slow none", "behaviour 0 0 100", "settle 0 300 60000"] {
        swarm.execute(line).await?;
    }
    Ok(swarm)
}

/// An EnvoyFilter that changes every cluster of every proxy; another number is another change.
fn change_of_all_clusters(number: usize) -> String {
    let patch = json!({ "operation": "MERGE", "value": { "connect_timeout": format!("{}s", number + 1) } });
    json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": { "name": "all", "namespace": "istio-system" },
        "spec": { "configPatches": [{ "applyTo": "CLUSTER", "patch": patch }] },
    })
    .to_string()
}

/// What is found of this check, at one of two looks, while all clusters change again and again.
fn found_under_changes(mesh: &ServedMesh, id: &str) -> Result<Vec<Value>> {
    for number in 0..2 {
        mesh.write("all.yaml", &change_of_all_clusters(number))?;
        let found = only(findings_over(mesh, "2s")?, id);
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Queue wait: each of the proxies keeps its turn for some milliseconds, as over a saturated network, and all have something to read.
#[test]
fn more_proxies_than_turns() {
    // On a busy machine a look may find something else: what lasts is waited for.
    let waits = |throttle: &'static str, expected: usize| async move {
        let mesh = ServedMesh::new(&unscoped(40, 300), &[("PILOT_PUSH_THROTTLE", throttle)])?;
        let _swarm = slow_swarm(&mesh).await?;
        let mut found = Vec::new();
        mesh.wait_for("what is expected of the queue", || {
            found = found_under_changes(&mesh, "throttle")?;
            Ok(found.len() == expected)
        })?;
        anyhow::Ok(found)
    };
    run(async {
        let found = waits("1", 1).await?;
        check(&found, &["throttle"])?;
        ensure!(found[0]["figures"]["queueP99Seconds"].as_f64() > Some(1.0), "{found:#?}");
        ensure!(found[0]["hint"].to_string().contains("PILOT_PUSH_THROTTLE="), "{found:#?}");
        check(&waits("200", 0).await?, &[])
    });
}

/// Serialisation: responses so large that each takes seconds. With the Sidecars that are suggested they are small.
#[test]
fn responses_that_are_too_large() {
    run(async {
        let wide = MeshPlan { namespaces: 10, ..unscoped(850, 10) };
        let mesh = ServedMesh::new(&wide, &[])?;
        let _swarm = slow_swarm(&mesh).await?;
        mesh.write("all.yaml", &change_of_all_clusters(10))?;
        let mut found = Vec::new();
        mesh.wait_for("responses that have taken seconds", || {
            found = findings_over(&mesh, "4s")?;
            Ok(found.iter().any(|check| check["id"] == "push-time"))
        })?;
        let large = only(found.clone(), "push-time");
        ensure!(large[0]["hint"].to_string().contains("Sidecars first"), "{large:#?}");
        let unscoped = only(found, "unscoped");
        let sidecars = unscoped[0]["apply"].as_array().context("YAML")?.iter().filter_map(Value::as_str);
        mesh.write("sidecars.yaml", &sidecars.collect::<Vec<_>>().join("---\n"))?;
        mesh.wait_for("scoped proxies", || Ok(only(findings(&mesh)?, "unscoped").is_empty()))?;
        // What is on its way is read to its end first.
        mesh.wait_for("quick pushes", || Ok(found_under_changes(&mesh, "push-time")?.is_empty()))
    });
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
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: edge-1, namespace: ns-0}, status: {phase: Running, podIP: 127.0.0.1}}";
        let more = [("filter.yaml", odd), ("edge.yaml", pod.to_owned())];
        let mesh = ServedMesh::with(&plan(12, 12), &Setup { more: &more, ..Setup::default() })?;
        let _swarm = mesh.swarm().await?;
        let proxy =
            CaseProxy::new(&json!({ "name": "edge-1", "namespace": "ns-0", "ip": "127.0.0.1", "type": "router" }))?;
        // Clusters whose certificates do not come stay warming, and Envoy acknowledges none meanwhile.
        let _secrets = SdsStub::start(&mesh.path("sds"), &TestCa::new()?, "spiffe://cluster.local/ns/ns-0/sa/edge")?;
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
        mesh.wait_for("an Envoy that accepts it", || Ok(only(findings(&mesh)?, "rejects").is_empty()))
            .with_context(|| proxy.log())
    });
}
