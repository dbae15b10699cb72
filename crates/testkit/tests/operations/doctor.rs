//! `meltemi doctor` on one prepared mesh per cause: it finds exactly that, with figures, and nothing on a healthy one. What cannot be prepared
//! within seconds is in the unit tests of its checks.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadgen::csr::CsrLoad;
use loadgen::mesh::MeshPlan;
use serde_json::{Value, json};

use crate::rejecting::Rejecting;
use crate::served::{ServedMesh, Setup, plan};

pub(crate) fn run(question: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(question).unwrap_or_else(|e| panic!("{e:#}"));
}

/// What is not in order, by id.
pub(crate) fn findings(mesh: &ServedMesh) -> Result<Vec<Value>> {
    findings_over(mesh, "1s")
}

/// From now on for so long.
pub(crate) fn findings_over(mesh: &ServedMesh, during: &str) -> Result<Vec<Value>> {
    let output = mesh.command(&["doctor", "-o", "json", "--for", during, "--fail-on", "warning"])?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}{}", String::from_utf8_lossy(&output.stderr), mesh.log()))?;
    let checks = report["checks"].as_array().context("checks")?.clone();
    ensure!(checks.len() > 20, "only {} checks", checks.len());
    let found: Vec<Value> = checks.into_iter().filter(|check| check["mark"] != "ok").collect();
    let fails = found.iter().any(|check| check["mark"] != "unknown");
    ensure!(output.status.code() == Some(i32::from(fails)), "{:?} with {found:#?}", output.status);
    Ok(found)
}

pub(crate) fn check(found: &[Value], ids: &[&str]) -> Result<()> {
    let found_ids: Vec<&str> = found.iter().filter_map(|check| check["id"].as_str()).collect();
    ensure!(found_ids == ids, "{found:#?} instead of {ids:?}");
    ensure!(
        found.iter().all(|check| check["hint"].as_str().is_some_and(|hint| !hint.is_empty())),
        "no hint: {found:#?}"
    );
    Ok(())
}

/// A mesh that is healthy but for these objects.
async fn with_objects(objects: &str, ids: &[&str]) -> Result<Vec<Value>> {
    let more = [("more.yaml", objects.to_owned())];
    let mesh = ServedMesh::with(&plan(12, 12), &Setup { more: &more, ..Setup::default() })?;
    let _swarm = mesh.swarm().await?;
    let found = findings(&mesh)?;
    check(&found, ids)?;
    Ok(found)
}

#[test]
fn a_healthy_mesh_has_nothing() {
    run(async {
        with_objects("", &[]).await?;
        Ok(())
    });
}

#[test]
fn a_thousand_services_without_sidecars() {
    run(async {
        let wide = MeshPlan {
            endpoints: 1,
            namespaces: 10,
            scoped: false,
            virtual_services: 10,
            destination_rules: 10,
            ..plan(1000, 10)
        };
        let mesh = ServedMesh::new(&wide, &[])?;
        let _swarm = mesh.swarm().await?;
        let found = findings(&mesh)?;
        check(&found, &["unscoped"])?;
        let figures = &found[0]["figures"][0];
        let number =
            |path: &str| figures.pointer(path).and_then(Value::as_u64).with_context(|| format!("{path} in {figures}"));
        ensure!(number("/before/clusters")? > 1000 && number("/after/clusters")? < 200, "{figures}");
        ensure!(number("/after/bytes")? * 4 < number("/before/bytes")?, "{figures}");
        // What it says is what happens: applied, the proxy carries that many.
        let sidecars: Vec<&str> =
            found[0]["apply"].as_array().context("YAML")?.iter().filter_map(Value::as_str).collect();
        mesh.write("sidecars.yaml", &sidecars.join("---\n"))?;
        let sample = figures["sample"].as_str().context("a proxy")?.to_owned();
        let after = number("/after/clusters")?;
        mesh.wait_for(&format!("{after} clusters"), || {
            let dump: Value =
                serde_json::from_str(&mesh.page(&format!("/debug/config_dump?proxyID={sample}&types=cds"))?)?;
            Ok(dump["configs"][0]["dynamicActiveClusters"].as_array().map_or(0, Vec::len) as u64 == after)
        })?;
        check(&findings(&mesh)?, &[])
    });
}

#[test]
fn an_envoy_filter_for_every_proxy() {
    let filter = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: everybody, namespace: istio-system}
spec:
  configPatches:
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {connect_timeout: 5s}}
";
    run(async {
        let found = with_objects(filter, &["envoy-filters"]).await?;
        ensure!(found[0]["figures"] == json!(["istio-system/everybody"]), "{found:#?}");
        Ok(())
    });
}

#[test]
fn entries_with_wildcards_many_addresses_and_doubles() {
    let endpoints: String = (0..60).map(|n| format!("  - address: 10.9.0.{n}\n")).collect();
    let entries = format!(
        "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: any, namespace: istio-system}}
spec: {{hosts: ['*.example.com'], resolution: NONE, ports: [{{number: 80, name: http, protocol: HTTP}}]}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: long, namespace: istio-system}}
spec:
  hosts: [long.example.com]
  resolution: STATIC
  location: MESH_INTERNAL
  ports: [{{number: 80, name: http, protocol: HTTP}}]
  endpoints:
{endpoints}---
apiVersion: v1
kind: Service
metadata: {{name: twin, namespace: istio-system}}
spec: {{clusterIP: 10.96.255.9, ports: [{{name: http, port: 80}}]}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: twin, namespace: istio-system}}
spec: {{hosts: [twin.istio-system.svc.cluster.local], resolution: STATIC, location: MESH_INTERNAL, ports: [{{number: 80, name: http, protocol: HTTP}}]}}
"
    );
    run(async {
        let found = with_objects(&entries, &["wildcard-entries", "long-entries", "doubled-services"]).await?;
        ensure!(found[1]["figures"] == json!(["istio-system/long (60 addresses)"]), "{found:#?}");
        ensure!(found[2]["figures"] == json!(["istio-system/twin repeats istio-system/twin"]), "{found:#?}");
        Ok(())
    });
}

#[test]
fn policies_that_could_be_one_and_namespaces_outside_the_mesh() {
    let policies = (0..6).map(|n| {
        format!(
            "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: same-{n}, namespace: ns-0}}
spec: {{selector: {{matchLabels: {{app: svc-{n}}}}}, rules: [{{from: [{{source: {{namespaces: [ns-1]}}}}]}}]}}
---"
        )
    });
    let services = (0..10).map(|n| {
        format!("\n{{apiVersion: v1, kind: Service, metadata: {{name: old-{n}, namespace: legacy}}, spec: {{clusterIP: 10.96.254.{n}, ports: [{{name: http, port: 80}}]}}}}\n---")
    });
    let peers = (0..5).map(|n| {
        format!(
            "\n{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {{name: same-{n}, namespace: ns-1}}, \
             spec: {{selector: {{matchLabels: {{app: s-{n}}}}}, mtls: {{mode: STRICT}}}}}}\n---"
        )
    });
    let objects: String = policies.chain(peers).chain(services).collect();
    run(async {
        let found = with_objects(&objects, &["idle-namespaces", "repeated-policies"]).await?;
        ensure!(found[0]["figures"] == json!([{"namespace": "legacy", "services": 10}]), "{found:#?}");
        let repeated = json!(["6 equal AuthorizationPolicies in ns-0", "5 equal PeerAuthentications in ns-1"]);
        ensure!(found[1]["figures"] == repeated, "{found:#?}");
        Ok(())
    });
}

/// What is found while a VirtualService changes many times in a second.
async fn under_churn(env: &[(&str, &str)]) -> Result<Vec<Value>> {
    let mesh = ServedMesh::new(&plan(12, 12), env)?;
    let _swarm = mesh.swarm().await?;
    let folder = mesh.path("objects");
    let churn = tokio::spawn(async move {
        for round in 0.. {
            let text = format!(
                "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: churn, namespace: istio-system}}\n\
                 spec: {{hosts: [churn.example.com], http: [{{timeout: {round}s, route: [{{destination: {{host: churn.example.com}}}}]}}]}}\n"
            );
            if std::fs::write(folder.join("churn.yaml"), text).is_err() {
                // The mesh is gone.
                return;
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    });
    let found = tokio::task::spawn_blocking(move || findings(&mesh)).await??;
    churn.abort();
    Ok(found)
}

/// With the remedy that it names the finding is gone.
#[test]
fn a_short_debounce_under_churn() {
    run(async {
        let found = under_churn(&[("PILOT_DEBOUNCE_AFTER", "1ms")]).await?;
        check(&found, &["debounce"])?;
        ensure!(found[0]["figures"]["rebuildsPerSecond"].as_f64() > Some(3.0), "{found:#?}");
        let remedy = [("PILOT_DEBOUNCE_AFTER", "300ms"), ("PILOT_DEBOUNCE_MAX", "15s")];
        for (name, value) in remedy {
            ensure!(found[0]["hint"].to_string().contains(&format!("{name}={value}")), "{found:#?}");
        }
        check(&under_churn(&remedy).await?, &[])
    });
}

/// A slow build of the push context: the CPU is busy with it, and what is named makes it idle.
#[test]
fn a_push_context_that_takes_the_cpu() {
    // Files that are written all the time are read all the time, by another stage.
    let busy = |env: &'static [(&'static str, &'static str)]| async move {
        let found = under_churn(env).await?;
        let is_busy = |check: &Value| check["id"] == "cpu" && check["what"].to_string().contains("push_context");
        anyhow::Ok(found.into_iter().filter(is_busy).collect::<Vec<_>>())
    };
    run(async {
        // A request that any machine exceeds with rebuilds.
        let found = busy(&[("PILOT_DEBOUNCE_AFTER", "1ms"), ("MELTEMI_CPU_REQUEST", "30m")]).await?;
        check(&found, &["cpu"])?;
        ensure!(found[0]["hint"].to_string().contains("PILOT_DEBOUNCE_AFTER=300ms"), "{found:#?}");
        let remedy: &[_] =
            &[("PILOT_DEBOUNCE_AFTER", "300ms"), ("PILOT_DEBOUNCE_MAX", "15s"), ("MELTEMI_CPU_REQUEST", "30m")];
        check(&busy(remedy).await?, &[])
    });
}

/// Signatures as they are asked for, with the key that signs: with another root it is in order.
#[test]
fn many_signatures_with_an_rsa_key() {
    let signing = |env: &'static [(&'static str, &'static str)], seconds: &'static str| async move {
        let mesh = ServedMesh::new(&plan(12, 12), env)?;
        let _swarm = mesh.swarm().await?;
        let (token, key, csr) = (mesh.path("token"), mesh.path("workload.key"), mesh.path("workload.csr"));
        std::fs::write(&token, mesh.token("ns-0/s-0")?)?;
        let (pair, request) = signing_request()?;
        std::fs::write(&key, pair)?;
        std::fs::write(&csr, request)?;
        let load = CsrLoad::new(mesh.secure, [token, key, csr], 2, seconds.parse()?);
        let asked = tokio::spawn(async move { load.run().await });
        let found = tokio::task::spawn_blocking(move || (findings(&mesh), mesh)).await?;
        asked.await?.context("certificates")?;
        anyhow::Ok(found.0?)
    };
    run(async {
        let found = signing(&[("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE", "2048")], "4").await?;
        let ids: Vec<&str> = found.iter().filter_map(|check| check["id"].as_str()).collect();
        ensure!(ids.starts_with(&["signing", "key"]), "{found:#?}");
        ensure!(found[0]["figures"]["perSecond"].as_f64() >= Some(3.0), "{found:#?}");
        ensure!(found[0]["hint"].to_string().contains("PILOT_WORKLOAD_CERT_TTL=48h"), "{found:#?}");
        ensure!(found[1]["figures"]["key"] == "RSA-2048", "{found:#?}");
        // Nobody asks any more, and P-256 signs.
        check(&signing(&[("CITADEL_SELF_SIGNED_CA_KEY_TYPE", "P-256")], "0").await?, &[])
    });
}

/// The key and the CSR of a workload, as PEM.
fn signing_request() -> Result<(String, String)> {
    let key = rcgen::KeyPair::generate()?;
    let request = rcgen::CertificateParams::default().serialize_request(&key)?;
    Ok((key.serialize_pem(), request.pem()?))
}

#[test]
fn proxies_that_do_not_answer() {
    run(async {
        let mesh = ServedMesh::new(&plan(12, 20), &[])?;
        let mut swarm = mesh.swarm_with(0, 10).await?;
        let mut found = Vec::new();
        mesh.wait_for("replies that are late", || {
            found = findings(&mesh)?;
            Ok(!found.is_empty())
        })?;
        check(&found, &["back-pressure"])?;
        ensure!(found[0]["figures"]["oldestSeconds"].as_f64() > Some(5.0), "{found:#?}");
        // They answer again, as after a restart.
        swarm.execute("behaviour 0 0 0").await?;
        swarm.execute("reconnect").await?;
        mesh.wait_for("nothing that is wrong", || Ok(findings(&mesh)?.is_empty()))
    });
}

#[test]
fn proxies_whose_pods_are_gone() {
    run(async {
        let mesh = ServedMesh::new(&plan(12, 12), &[])?;
        let swarm = mesh.swarm().await?;
        let gone = std::fs::read_dir(mesh.path("objects/ns-0"))?.filter_map(Result::ok).map(|entry| entry.path());
        let pods = gone.filter(|path| path.to_string_lossy().ends_with("-pods.yaml"));
        for file in pods {
            std::fs::remove_file(file)?;
        }
        let mut found = Vec::new();
        mesh.wait_for("zombies", || {
            found = findings(&mesh)?;
            Ok(found.iter().any(|check| check["id"] == "zombies"))
        })?;
        check(&found, &["zombies"])?;
        ensure!(found[0]["figures"].as_array().is_some_and(|names| names.len() == 3), "{found:#?}");
        // Their nodes are gone, and so are their streams.
        drop(swarm);
        mesh.wait_for("the end of the streams", || {
            let zombies = findings(&mesh)?.into_iter().find(|check| check["id"] == "zombies");
            // Without proxies it is not green, but it names nobody.
            Ok(zombies.is_some_and(|it| it["what"].to_string().contains("no proxy is connected")))
        })?;
        Ok(())
    });
}

/// A state-of-the-world proxy that rejects its clusters: two causes, each with its figures.
#[test]
fn a_state_of_the_world_proxy_that_rejects() {
    run(async {
        let plan = plan(12, 12);
        let mesh = ServedMesh::new(&plan, &[])?;
        let proxy = Rejecting::connect(&mesh, &plan).await?;
        check(&findings(&mesh)?, &["state-of-the-world"])?;
        let cluster = "outbound|80||s-0.ns-0.svc.cluster.local";
        proxy.reject(&format!("Error adding cluster {cluster}: it is odd"));
        let mut found = Vec::new();
        mesh.wait_for("the rejection", || {
            found = findings(&mesh)?;
            Ok(found.len() > 1)
        })?;
        check(&found, &["rejects", "state-of-the-world"])?;
        let cause = &found[0]["figures"][0];
        ensure!(cause["kind"] == "CDS" && cause["reason"].to_string().contains("it is odd"), "{found:#?}");
        let objects = cause["objects"].to_string();
        ensure!(objects.contains("Service ns-0/s-0"), "the objects that it is made from: {found:#?}");
        ensure!(found[0]["what"].to_string().contains("made from "), "{found:#?}");
        drop(proxy);
        mesh.wait_for("the end of the stream", || Ok(findings(&mesh)?.iter().all(|check| check["id"] != "rejects")))
    });
}
