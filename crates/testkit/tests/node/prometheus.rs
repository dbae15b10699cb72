//! What the kubelet tells of containers, scraped by a real Prometheus: the panels and alerts that read it have data.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::http_client::{HttpRequest, send_one};
use testkit::process::Process;
use testkit::{environment, port, skip};
use tokio::runtime::Runtime;

use crate::mesh::{Mesh, in_turn};

/// Expressions of the dashboard and the alerts with a metric of the kubelet, without what kube-state-metrics would tell.
fn expressions() -> Result<Vec<String>> {
    let text = fs::read_to_string(environment::repository().join("deploy/observability/dashboard.json"))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let all = targets.filter_map(|target| target["expr"].as_str());
    let ours = all.filter(|expression| expression.contains("container_"));
    // Each has a fall-back behind `or`; what is in front of it must have data by itself.
    let kubelets = ours.map(|expression| expression.split(" or ").next().unwrap_or_default());
    let plain = kubelets.map(|expression| expression.split(" / ").next().unwrap_or_default());
    let mut found: Vec<String> = plain.map(|expression| expression.replace("$__rate_interval", "30s")).collect();
    found.push("sum by (pod) (rate(container_cpu_usage_seconds_total{container=\"discovery\"}[30s]))".to_owned());
    ensure!(found.len() >= 3, "{found:?}");
    Ok(found)
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
        "global: {{scrape_interval: 2s}}\nscrape_configs:\n- job_name: kubelet\n  scheme: https\n  metrics_path: /metrics/cadvisor\n  \
         tls_config: {{insecure_skip_verify: true}}\n  authorization: {{credentials: {}}}\n  static_configs: [{{targets: ['{address}:10250']}}]\n",
        token.trim()
    ))
}

fn has_data(at: SocketAddr, expression: &str) -> Result<bool> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let ask = HttpRequest::new(at, "prometheus", &format!("/api/v1/query?query={encoded}"));
    let answer: Value = serde_json::from_str(&Runtime::new()?.block_on(send_one(&ask))?.body)?;
    Ok(answer["data"]["result"].as_array().is_some_and(|results| !results.is_empty()))
}
