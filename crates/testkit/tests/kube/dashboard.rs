//! Every expression of the dashboard, of Istio's own one and of the alert rules, asked of a real Prometheus that scrapes an API server and a
//! Meltemi that reads it, under load.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadgen::mesh::MeshPlan;
use loadgen::{Swarm, SwarmOptions};
use serde_json::{Value, json};
use testkit::ads::AdsClient;
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::parity::CaseProxy;
use testkit::scraper::{Scraped, Scraper};
use testkit::wait::{DEADLINE, observe};
use testkit::{environment, skip};

use super::instance::{Instance, sum_of_series};
use super::with_cluster;

const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Enough scrapes for rates, with changes of every sort and streams that end between them.
const ROUNDS: usize = 8;

#[test]
fn every_expression_returns_data_from_a_server_under_load() {
    let Some(prometheus) = environment::prometheus() else {
        return skip("dashboards: no Prometheus (Debian: apt-get install prometheus, or set MELTEMI_PROMETHEUS)");
    };
    with_cluster(async |cluster| run(cluster, &prometheus).await);
}

async fn run(cluster: &TestCluster, prometheus: &Path) -> Result<()> {
    let (api, plan) = (cluster.api().await?, plan());
    write(&api, &plan).await?;
    let instance = Instance::named(cluster, "meltemi", &[], &[]).await?;
    let nodes: Vec<Value> = plan.nodes().collect();
    let options = SwarmOptions { server: instance.plain, authority: None, stalled: 0, silent: 0 };
    let mut swarm = Swarm::new(&nodes, &options)?;
    for line in ["mark connect all", "connect"] {
        swarm.execute(line).await?;
    }
    let settled = swarm.execute("settle 120000 300 150000").await?;
    ensure!(settled["settled"] == true, "{settled}\n{}", instance.log());
    let node = CaseProxy::new(&json!({ "name": "p", "namespace": "ns-0", "ip": "10.9.9.8" }))?.node();
    let mut rejecting = AdsClient::new(instance.plain, node);
    rejecting.ask_and_reject(CLUSTERS, "cluster is odd", DEADLINE).await?;

    let folder = tempfile::tempdir()?;
    let scraped = Scraped { monitoring: instance.monitoring, api_server: Some(cluster.address) };
    let scraper = Scraper::start(prometheus, folder.path(), scraped)?;
    for round in 0..ROUNDS {
        api.apply_all(&objects(round)).await?;
        if round == ROUNDS / 2 {
            swarm.execute("replace 20").await?;
        }
        observe(Duration::from_secs(1)).await;
    }
    for expression in dashboard().into_iter().chain(STOCK.into_iter().map(str::to_owned)).chain(metrics_of_rules()) {
        scraper.has_data(&expression).await.with_context(|| instance.log())?;
    }
    received_events_are_counted(&instance)?;
    // The gauges of rejections are there while somebody rejects, and that is seen.
    scraper.has_data("sum(pilot_xds_cds_reject) == 1").await?;
    scraper.has_data("ALERTS{alertname=\"MeltemiRejects\", type=\"cds\"}").await?;
    drop(rejecting);
    scraper.has_data("absent(pilot_xds_cds_reject)").await?;
    scraper.has_data("absent(ALERTS{alertname=\"MeltemiRejects\"})").await
}

fn plan() -> MeshPlan {
    MeshPlan {
        services: 20,
        endpoints: 2,
        slices: 1,
        namespaces: 4,
        proxies: 40,
        scoped: true,
        virtual_services: 30,
        destination_rules: 30,
        gateways: 0,
        gateway_proxies: 0,
    }
}

/// Namespaces first, then what stands in them.
async fn write(api: &ApiWriter, plan: &MeshPlan) -> Result<()> {
    let (namespaces, others): (Vec<Value>, Vec<Value>) =
        plan.objects().into_iter().partition(|object| object["kind"] == "Namespace");
    api.apply_all(&namespaces).await?;
    api.apply_all(&others).await?;
    Ok(())
}

/// A service whose endpoints move, a route that changes.
fn objects(round: usize) -> Vec<Value> {
    let meta = |name: &str, labels: Value| json!({ "name": name, "namespace": "istio-system", "labels": labels });
    let port = json!([{ "name": "http", "port": 80 }]);
    let route = json!([{ "timeout": format!("{round}.5s"), "route": [{ "destination": { "host": "moving" } }] }]);
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta("moving", json!({})),
            "spec": { "clusterIP": "10.96.255.9", "ports": port },
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": meta("moving-a", json!({ "kubernetes.io/service-name": "moving" })), "ports": port,
            "endpoints": [{ "addresses": [format!("10.250.0.{}", round + 1)], "conditions": { "ready": true } }],
        }),
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": meta("moving", json!({})),
            "spec": { "hosts": ["moving"], "http": route },
        }),
    ]
}

/// In both encodings: EndpointSlices are protobuf, VirtualServices JSON. Every one of these events tells when it was written.
fn received_events_are_counted(instance: &Instance) -> Result<()> {
    // One page: statuses that the server writes meanwhile come back as events.
    let page = instance.page("/metrics")?;
    for kind in ["EndpointSlice", "VirtualService"] {
        let label = format!("kind=\"{kind}\"");
        let of = |metric: &str| sum_of_series(&page, metric, &label);
        let (events, bytes) = (of("meltemi_watch_events_total"), of("meltemi_watch_event_bytes_total"));
        ensure!(events >= ROUNDS as f64 && bytes > 200.0 * events, "{kind}: {events} events, {bytes} bytes");
        ensure!(of("meltemi_watch_delay_seconds_count") == events, "{kind}: not every event has its time");
        // Up to a second each is the resolution.
        let late = of("meltemi_watch_delay_seconds_sum") / events;
        ensure!(late < 30.0, "{kind}: {late} s on the average");
    }
    let sent = |port: &str| {
        let page = instance.page("/metrics")?;
        let series = format!("meltemi_port_bytes_total{{direction=\"sent\",port=\"{port}\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&series)).with_context(|| series.clone())?;
        anyhow::Ok(value.parse::<f64>()?)
    };
    ensure!(sent("grpc")? > 100_000.0, "{} bytes to 40 proxies", sent("grpc")?);
    ensure!(sent("monitoring")? > 10_000.0 && sent("https")? == 0.0, "{} bytes of pages", sent("monitoring")?);
    Ok(())
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

fn read(name: &str) -> String {
    let file = environment::repository().join("deploy/observability").join(name);
    fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// As Grafana would ask them.
fn dashboard() -> Vec<String> {
    let document: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let panels = document["panels"].as_array().expect("panels");
    let rows: Vec<_> = panels.iter().filter(|panel| panel["type"] == "row").map(|row| row["title"].clone()).collect();
    assert_eq!(rows, ["Health", "Push pipeline", "Volume", "Resources", "API server"]);
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<String> =
        targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect();
    assert!(expressions.len() > 45, "{}", expressions.len());
    expressions.iter().map(|text| text.replace("$__rate_interval", "5s").replace("$job", ".*")).collect()
}

/// Their comparisons are false on a healthy mesh; what they compare must be there. Left out: what cAdvisor and kube-state-metrics tell, and
/// rejections, which are there only while there are some.
fn metrics_of_rules() -> BTreeSet<String> {
    let rules = read("alerts.yaml");
    let words = rules.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = ["pilot_", "meltemi_", "process_", "go_", "citadel_", "endpoint_"];
    words
        .filter(|word| ours.iter().any(|prefix| word.starts_with(prefix)))
        .filter(|word| !word.ends_with("_reject"))
        .map(str::to_owned)
        .collect()
}
