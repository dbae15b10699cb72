//! Alert rules and dashboards with the real Prometheus: rules are checked and fired by promtool; every expression is asked of a Prometheus that
//! scrapes a running server under load.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::http_client::{self, HttpRequest};
use testkit::process::Process;
use testkit::wait::eventually;
use testkit::{environment, port, skip};

use crate::rejecting::Rejecting;
use crate::served::{ServedMesh, plan};

fn folder() -> PathBuf {
    environment::repository().join("deploy/observability")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn every_alert_fires_when_it_should() {
    let alerts: Vec<String> = names_after(&read("alerts.yaml"), "- alert: ");
    let tests = read("alerts-test.yaml");
    assert!(alerts.len() >= 15, "{alerts:?}");
    for alert in &alerts {
        for (state, what) in [("firing", "fires"), ("pending", "ends before it fires")] {
            let tested = format!("alertname=\"{alert}\", alertstate=\"{state}\"");
            assert!(tests.contains(&tested), "no test in which {alert} {what}");
        }
    }
    let Some(promtool) = environment::promtool() else {
        return skip("alert rules: no promtool (Debian: apt-get install prometheus, or set MELTEMI_PROMETHEUS)");
    };
    for words in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts-test.yaml"]] {
        let output = Command::new(&promtool).args(words).current_dir(folder()).output().expect("promtool starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {words:?}: {text}");
    }
}

/// What runbooks say exists.
#[test]
fn every_alert_leads_to_a_page_of_the_manual() {
    let manual = fs::read_to_string(environment::repository().join("docs/operating.md")).expect("docs/operating.md");
    let headings: BTreeSet<String> = names_after(&manual, "## ")
        .iter()
        .map(|heading| heading.trim_start_matches("# ").to_lowercase().replace(' ', "-"))
        .collect();
    for runbook in names_after(&read("alerts.yaml"), "runbook: docs/operating.md#") {
        assert!(headings.contains(&runbook), "{runbook} is not among {headings:?}");
    }
}

fn names_after(text: &str, mark: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.trim().strip_prefix(mark)).map(|rest| rest.trim().to_owned()).collect()
}

#[test]
fn every_expression_returns_data_from_a_server_under_load() {
    let Some(prometheus) = environment::prometheus() else {
        return skip("dashboards: no Prometheus (Debian: apt-get install prometheus, or set MELTEMI_PROMETHEUS)");
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run(&prometheus)).unwrap_or_else(|e| panic!("{e:#}"));
}

async fn run(prometheus: &Path) -> Result<()> {
    let plan = plan(20, 40);
    let mesh = ServedMesh::new(&plan, &[])?;
    let mut swarm = mesh.swarm().await?;
    let rejecting = Rejecting::connect(&mesh, &plan).await?;
    rejecting.reject("cluster is odd");
    let scraper = Scraper::start(prometheus, &mesh)?;
    // Enough scrapes for rates, with changes of every sort and streams that end between them.
    for round in 0..8 {
        mesh.write("more.yaml", &objects(round))?;
        if round == 4 {
            swarm.execute("replace 20").await?;
        }
        tokio::time::sleep(Duration::from_millis(1000)).await;
    }
    for expression in dashboard().into_iter().chain(STOCK.into_iter().map(str::to_owned)) {
        scraper.has_data(&expression).await?;
    }
    for metric in metrics_of_rules() {
        scraper.has_data(&metric).await?;
    }
    // The gauges of rejections are there while somebody rejects, and that is seen.
    scraper.has_data("sum(pilot_xds_cds_reject) == 1").await?;
    scraper.has_data("ALERTS{alertname=\"MeltemiRejects\", type=\"cds\"}").await?;
    drop(rejecting);
    scraper.has_data("absent(pilot_xds_cds_reject)").await?;
    scraper.has_data("absent(ALERTS{alertname=\"MeltemiRejects\"})").await
}

/// A service whose endpoints move, a route that changes.
fn objects(round: usize) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: moving, namespace: istio-system}}
spec: {{clusterIP: 10.96.255.9, ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: moving-a, namespace: istio-system, labels: {{kubernetes.io/service-name: moving}}}}
addressType: IPv4
ports: [{{name: http, port: 80}}]
endpoints: [{{addresses: [10.250.0.{round}], conditions: {{ready: true}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: moving, namespace: istio-system}}
spec: {{hosts: [moving], http: [{{timeout: {round}.5s, route: [{{destination: {{host: moving}}}}]}}]}}
"
    )
}

/// The queries of Istio's own control-plane dashboard. Left out: those of the kubelet's and of Envoy's metrics, and counters of a garbage
/// collector's allocations, and of injection and admission, of which nothing happens in this test.
const STOCK: [&str; 15] = [
    "sum by (tag) (istio_build{component=\"pilot\"})",
    "sum by (pod) (go_memstats_stack_inuse_bytes{app=\"istiod\"})",
    "sum by (pod) (go_memstats_heap_inuse_bytes{app=\"istiod\"})",
    "sum by (pod) (go_memstats_heap_alloc_bytes{app=\"istiod\"})",
    "sum by (pod) (go_goroutines{app=\"istiod\"})",
    "sum by (type) (irate(pilot_xds_pushes[5s]))",
    "sum by (type,event) (rate(pilot_k8s_reg_events[5s]))",
    "sum by (type,event) (rate(pilot_k8s_cfg_events[5s]))",
    "sum by (type) (rate(pilot_push_triggers[5s]))",
    "sum (pilot_xds)",
    "sum by (type) (pilot_total_xds_rejects)",
    "pilot_total_xds_internal_errors",
    "sum(rate(pilot_xds_push_time_bucket{}[5s])) by (le)",
    "sum(rate(pilot_xds_config_size_bytes_bucket{}[5s])) by (le)",
    "histogram_quantile(0.99, sum(rate(pilot_proxy_convergence_time_bucket[5s])) by (le))",
];

/// As Grafana would ask them.
fn dashboard() -> Vec<String> {
    let document: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let panels = document["panels"].as_array().expect("panels");
    let rows: Vec<_> = panels.iter().filter(|panel| panel["type"] == "row").map(|row| row["title"].clone()).collect();
    assert_eq!(rows, ["Health", "Push pipeline", "Volume", "Resources"]);
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<String> =
        targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect();
    assert!(expressions.len() > 30, "{}", expressions.len());
    expressions.iter().map(|text| text.replace("$__rate_interval", "5s").replace("$job", ".*")).collect()
}

/// Their comparisons are false on a healthy mesh; what they compare must be there. Left out: what cAdvisor and kube-state-metrics tell, the
/// watches and replicas of a cluster, and rejections, which are there only while there are some.
fn metrics_of_rules() -> BTreeSet<String> {
    let rules = read("alerts.yaml");
    let words = rules.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = ["pilot_", "meltemi_", "process_", "go_", "citadel_", "endpoint_"];
    words
        .filter(|word| ours.iter().any(|prefix| word.starts_with(prefix)))
        .filter(|word| !["meltemi_watch_", "meltemi_leader", "meltemi_replicas"].iter().any(|it| word.starts_with(it)))
        .filter(|word| !word.ends_with("_reject"))
        .map(str::to_owned)
        .collect()
}

pub(crate) struct Scraper {
    pub(crate) at: SocketAddr,
    _process: Process,
}

impl Scraper {
    pub(crate) fn start(prometheus: &Path, mesh: &ServedMesh) -> Result<Scraper> {
        let at = port::reserve_address()?;
        let config = format!(
            "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\nrule_files: [{}]\nscrape_configs:\n- job_name: meltemi\n  static_configs:\n  - targets: [\"{}\"]\n    \
             labels: {{app: istiod, pod: istiod-0}}\n",
            folder().join("alerts.yaml").display(),
            mesh.monitoring
        );
        fs::write(mesh.path("prometheus.yml"), config)?;
        let log = fs::File::create(mesh.path("prometheus.log"))?;
        let mut command = Command::new(prometheus);
        command
            .arg(format!("--config.file={}", mesh.path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", mesh.path("tsdb").display()))
            .arg(format!("--web.listen-address={at}"))
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Scraper { at, _process: Process::spawn(&mut command)? })
    }

    /// At least one number.
    pub(crate) async fn has_data(&self, expression: &str) -> Result<()> {
        eventually(&format!("data of {expression}"), async || {
            let answer = self.ask(expression).await.unwrap_or_default();
            Ok(answer["data"]["result"].as_array().is_some_and(|results| !results.is_empty()))
        })
        .await
    }

    async fn ask(&self, expression: &str) -> Result<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let ask = HttpRequest::new(self.at, "prometheus", &format!("/api/v1/query?query={encoded}"));
        let answer = http_client::send_one(&ask).await?;
        let answer: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
        ensure!(answer["status"] == "success", "{expression}: {answer}");
        Ok(answer)
    }
}
