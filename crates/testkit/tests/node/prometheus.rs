//! What the kubelet tells of containers, scraped by a real Prometheus: the panels and alerts that read it have data.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use config::yaml::{Scalars, documents};
use serde_json::{Value, json};
use testkit::http_client::{HttpRequest, send_one};
use testkit::process::Process;
use testkit::{environment, port, skip};
use tokio::runtime::Runtime;

use crate::mesh::{Mesh, in_turn};

/// What the dashboard and the alerts ask of the kubelet's metrics.
fn expressions() -> Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(environment::repository().join("deploy/observability").join(name));
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")?)?;
    let text = read("alerts.yaml")?;
    let Some(Ok(alerts)) = documents(&text, Scalars::Objects).next() else { bail!("alerts.yaml is no YAML") };
    let alerts = alerts.to_json();
    let mut all = Vec::new();
    for list in [&dashboard["panels"], &alerts["groups"]].into_iter().filter_map(Value::as_array).flatten() {
        let entries = ["targets", "rules"].into_iter().filter_map(|name| list[name].as_array()).flatten();
        all.extend(entries.filter_map(|entry| entry["expr"].as_str()).map(kubelets_part));
    }
    let ours: Vec<String> = all.into_iter().filter(|expression| expression.contains("container_")).collect();
    ensure!(ours.len() >= 3, "{ours:?}");
    Ok(ours)
}

/// Each has a fall-back behind `or`; what is in front of it must have data by itself, and that of an alert also while nothing is wrong.
fn kubelets_part(expression: &str) -> String {
    let first = expression.split(" or ").next().unwrap_or_default();
    let value = first.split(" > ").next().unwrap_or_default();
    value.replace("$__rate_interval", "30s")
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn panels_of_containers_have_data() {
    in_turn(|mesh| {
        let Some(prometheus) = environment::prometheus() else {
            skip("kubelet metrics: no Prometheus (Debian: apt-get install prometheus, or set MELTEMI_PROMETHEUS)");
            return Ok(());
        };
        let folder = tempfile::tempdir()?;
        let at = port::reserve_address()?;
        fs::write(folder.path().join("prometheus.yml"), scraping(mesh)?)?;
        fs::write(folder.path().join("requests.yml"), requests(mesh)?)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let mut command = Command::new(prometheus);
        command.arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("tsdb").display()));
        let _process =
            Process::spawn(command.arg(format!("--web.listen-address={at}")).stdout(log.try_clone()?).stderr(log))?;
        for expression in expressions()? {
            mesh.until(&format!("data of {expression}"), |_| Ok(has_data(at, &expression).unwrap_or_default()))?;
        }
        Ok(())
    });
}

const SCRAPER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:kubelet-api-admin'}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]";

/// The kubelet's page of containers, as an administrator may read it.
fn scraping(mesh: &Mesh) -> Result<String> {
    let nodes = mesh.get(&["nodes"])?;
    let address = nodes["items"][0]["status"]["addresses"][0]["address"].as_str().context("a node with an address")?;
    mesh.apply(SCRAPER)?;
    let token = mesh.kubectl(&["-n", "default", "create", "token", "default"])?;
    Ok(format!(
        "global: {{scrape_interval: 2s, evaluation_interval: 2s}}\nrule_files: [requests.yml]\nscrape_configs:\n- job_name: kubelet\n  scheme: https\n  metrics_path: /metrics/cadvisor\n  \
         tls_config: {{insecure_skip_verify: true}}\n  authorization: {{credentials: {}}}\n  static_configs: [{{targets: ['{address}:10250']}}]\n",
        token.trim()
    ))
}

/// What kube-state-metrics, which is not on the node, tells of the replicas: the CPU that they request.
fn requests(mesh: &Mesh) -> Result<String> {
    let mut rules = Vec::new();
    for pod in mesh.pods("istio-system", "app=istiod")? {
        let asked = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().context("a request")?;
        let thousandths: u32 = asked.strip_suffix('m').context("a request below one processor")?.parse()?;
        rules.push(json!({
            "record": "kube_pod_container_resource_requests", "expr": format!("vector({thousandths} / 1000)"),
            "labels": { "pod": pod["metadata"]["name"], "container": "discovery", "resource": "cpu" },
        }));
    }
    ensure!(!rules.is_empty(), "there is no replica");
    Ok(json!({ "groups": [{ "name": "requests", "rules": rules }] }).to_string())
}

fn has_data(at: SocketAddr, expression: &str) -> Result<bool> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let ask = HttpRequest::new(at, "prometheus", &format!("/api/v1/query?query={encoded}"));
    let answer: Value = serde_json::from_str(&Runtime::new()?.block_on(send_one(&ask))?.body)?;
    Ok(answer["data"]["result"].as_array().is_some_and(|results| !results.is_empty()))
}
