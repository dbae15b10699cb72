//! Shards as the recipes make them, two of each at one API server: what goes on in one costs the other nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::ads::AdsClient;
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::environment;
use testkit::parity::CaseProxy;
use testkit::wait::{DEADLINE, eventually, observe};

use super::chart::{self, of_kinds, rendered};
use super::instance::Instance;
use super::{namespace, service, with_cluster};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Long enough for a change to be debounced and sent.
const QUIET: Duration = Duration::from_secs(1);
/// What other work on this machine may add to the slowest of several changes.
const SLACK: Duration = Duration::from_secs(2);
/// Settings of the pod that have no meaning outside of one.
const OF_THE_POD: [&str; 3] = ["KUBECONFIG", "ROOT_CA_DIR", "XDG_STATE_HOME"];

/// One control plane of a recipe, and a proxy of it.
struct Shard {
    name: &'static str,
    instance: Instance,
    proxy: AdsClient,
    /// Where its changes are.
    space: &'static str,
}

/// What a recipe is tried with.
struct Recipe {
    file: &'static str,
    /// The proxy's namespace, and whether it is a gateway's.
    proxy: (&'static str, &'static str),
    /// A namespace that the other shard does not read.
    space: &'static str,
}

impl Shard {
    /// `None`: there is no helm.
    async fn start(cluster: &TestCluster, api: &ApiWriter, recipe: &Recipe) -> Result<Option<Shard>> {
        let file = environment::repository().join("deploy/helm/recipes").join(recipe.file);
        let Some(objects) = rendered(Some(&file))? else { return Ok(None) };
        api.apply_all(&of_kinds(&objects, &["ConfigMap"])).await?;
        let kubeconfig = chart::account(cluster, api, &objects).await?;
        let settings = settings(&objects);
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        let instance = Instance::start(&kubeconfig, &[], &settings).await?.ready().await?;
        let (kind, space) = recipe.proxy;
        let labels = json!({ "istio": "ingress" });
        let entry = json!({ "name": "p", "namespace": space, "type": kind, "ip": "10.7.7.7", "labels": labels });
        let mut proxy = AdsClient::new(instance.plain, CaseProxy::new(&entry)?.node());
        proxy.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
        Ok(Some(Shard { name: recipe.file, instance, proxy, space: recipe.space }))
    }

    /// Refreshes, and changes that reached the store.
    fn work(&self) -> Result<[f64; 3]> {
        let of = |name: &str| self.instance.metric(name, "");
        Ok([of("pilot_pushcontext_init_seconds_count")?, of("pilot_k8s_reg_events")?, of("pilot_xds_pushes")?])
    }

    /// Until nothing is left to do.
    async fn settled(&mut self) -> Result<[f64; 3]> {
        let mut last = self.work()?;
        for _ in 0..60 {
            self.proxy.count_responses(QUIET).await?;
            let now = self.work()?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
        anyhow::bail!("{} never rests", self.name)
    }
}

/// What the chart gives the pod.
fn settings(objects: &[Value]) -> Vec<(String, String)> {
    let deployments = of_kinds(objects, &["Deployment"]);
    let container = &deployments[0]["spec"]["template"]["spec"]["containers"][0];
    let given = container["env"].as_array().into_iter().flatten();
    let literal = given.filter_map(|it| Some((it["name"].as_str()?.to_owned(), it["value"].as_str()?.to_owned())));
    literal.filter(|(name, _)| !OF_THE_POD.contains(&name.as_str())).collect()
}

/// Churn in a namespace of each shard, in turns.
async fn check(cluster: &TestCluster, recipes: [Recipe; 2]) -> Result<()> {
    let api = cluster.api().await?;
    let mut shards = Vec::new();
    for recipe in &recipes {
        let Some(shard) = Shard::start(cluster, &api, recipe).await? else { return Ok(()) };
        shards.push(shard);
    }
    for _ in 0..2 {
        let [busy, idle] = &mut shards[..] else { anyhow::bail!("two shards") };
        busy.settled().await?;
        let before = idle.settled().await?;
        churn(&api, busy).await?;
        let received = idle.proxy.count_responses(QUIET).await?;
        let after = idle.work()?;
        let what = format!("{} by changes in {}", idle.name, busy.space);
        ensure!(received == 0 && after == before, "{what}: {received} responses, {before:?} became {after:?}");
        shards.reverse();
    }
    Ok(())
}

/// A service comes, changes and goes, and its own shard hears of it.
async fn churn(api: &ApiWriter, shard: &mut Shard) -> Result<()> {
    let mut object = service(shard.space, "churn");
    let before = shard.work()?;
    for port in [80, 81, 82] {
        object["spec"]["ports"] = json!([{ "name": "http", "port": port }]);
        api.apply(&object).await?;
    }
    let works = async || Ok(shard.work()?[0] > before[0]);
    eventually("its own shard works", works).await.with_context(|| shard.instance.log())?;
    let what = format!("{} hears of {}", shard.name, shard.space);
    eventually(&what, async || Ok(shard.proxy.count_responses(QUIET).await? > 0)).await?;
    api.delete(&object).await
}

/// Namespaces and their labels, as the recipe's text says.
async fn spaces(cluster: &TestCluster, spaces: &[(&str, Value)]) -> Result<()> {
    let api = cluster.api().await?;
    api.apply(&namespace("istio-system", &json!({}))).await?;
    for (name, labels) in spaces {
        api.apply(&namespace(name, labels)).await?;
    }
    Ok(())
}

#[test]
fn shards_by_namespace_do_not_hear_of_each_other() {
    with_cluster(async |cluster| {
        spaces(cluster, &[("payments", json!({})), ("payments-batch", json!({})), ("shop", json!({}))]).await?;
        let payments =
            Recipe { file: "namespace/payments.yaml", proxy: ("sidecar", "payments"), space: "payments-batch" };
        check(cluster, [payments, Recipe { file: "namespace/shop.yaml", proxy: ("sidecar", "shop"), space: "shop" }])
            .await
    });
}

#[test]
fn shards_by_region_do_not_hear_of_each_other() {
    with_cluster(async |cluster| {
        let region = |name: &str| json!({ "meltemi.region": name, "istio.io/rev": name });
        spaces(cluster, &[("shop-eu", region("eu-west")), ("shop-us", region("us-east"))]).await?;
        let recipe = |file, space| Recipe { file, proxy: ("sidecar", space), space };
        check(cluster, [recipe("region/eu-west.yaml", "shop-eu"), recipe("region/us-east.yaml", "shop-us")]).await
    });
}

#[test]
fn gateways_and_sidecars_do_not_hear_of_each_other() {
    with_cluster(async |cluster| {
        let gateways = json!({ "istio.io/rev": "gateways", "meltemi.exposed": "true" });
        let sidecars = json!({ "istio.io/rev": "sidecars" });
        spaces(cluster, &[("istio-ingress", gateways), ("batch", sidecars)]).await?;
        // A gateway hears of the services that its routes name.
        let api = cluster.api().await?;
        let meta = |name: &str| json!({ "name": name, "namespace": "istio-ingress", "labels": { "istio.io/rev": "gateways" } });
        let server = json!({ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": ["*"] });
        let route = json!({ "route": [{ "destination": { "host": "churn.istio-ingress.svc.cluster.local" } }] });
        let version = "networking.istio.io/v1";
        api.apply(&json!({
            "apiVersion": version, "kind": "Gateway", "metadata": meta("edge"),
            "spec": { "selector": { "istio": "ingress" }, "servers": [server] },
        }))
        .await?;
        api.apply(&json!({
            "apiVersion": version, "kind": "VirtualService", "metadata": meta("edge"),
            "spec": { "hosts": ["*"], "gateways": ["edge"], "http": [route] },
        }))
        .await?;
        let gateways =
            Recipe { file: "workload/gateways.yaml", proxy: ("router", "istio-ingress"), space: "istio-ingress" };
        check(
            cluster,
            [gateways, Recipe { file: "workload/sidecars.yaml", proxy: ("sidecar", "batch"), space: "batch" }],
        )
        .await
    });
}

/// How many changes are timed with and without churn of jobs.
const TIMED: usize = 20;

/// The longest time from a change of a service to the proxy of its shard.
async fn slowest_change(api: &ApiWriter, shard: &mut Shard) -> Result<Duration> {
    let (mut object, mut slowest) = (service(shard.space, "web"), Duration::ZERO);
    for port in 0..TIMED {
        object["spec"]["ports"] = json!([{ "name": "http", "port": 8000 + port }]);
        let began = Instant::now();
        api.apply(&object).await?;
        let cluster = format!("outbound|{}||web.{}.svc.cluster.local", 8000 + port, shard.space);
        let there = async || {
            shard.proxy.count_responses(Duration::from_millis(20)).await?;
            Ok(shard.proxy.resources(CDS).contains_key(&cluster))
        };
        eventually(&format!("{cluster} at its proxy"), there).await?;
        slowest = slowest.max(began.elapsed());
    }
    Ok(slowest)
}

/// Services of jobs that come and go, until this is dropped.
fn churn_of_jobs(api: ApiWriter, space: &'static str) -> tokio::task::JoinHandle<Result<()>> {
    tokio::spawn(async move {
        for job in 0.. {
            let object = service(space, &format!("job-{}", job % 10));
            api.apply(&object).await?;
            api.delete(&object).await?;
        }
        Ok(())
    })
}

#[test]
fn jobs_that_churn_do_not_delay_the_shard_of_services() {
    with_cluster(async |cluster| {
        let jobs = json!({ "istio.io/rev": "jobs", "meltemi.workload": "jobs" });
        spaces(cluster, &[("shop", json!({ "istio.io/rev": "services" })), ("reports", jobs)]).await?;
        let api = cluster.api().await?;
        let recipe = |file, space| Recipe { file, proxy: ("sidecar", space), space };
        let Some(mut services) = Shard::start(cluster, &api, &recipe("workload/services.yaml", "shop")).await? else {
            return Ok(());
        };
        let Some(mut jobs) = Shard::start(cluster, &api, &recipe("workload/jobs.yaml", "reports")).await? else {
            return Ok(());
        };
        let quiet = slowest_change(&api, &mut services).await?;
        let churn = churn_of_jobs(cluster.api().await?, "reports");
        eventually("the shard of jobs hears of them", async || Ok(jobs.proxy.count_responses(QUIET).await? > 0))
            .await?;
        // Nothing of the churn reaches the other shard: it has no work at all until one of its own services changes.
        let before = services.settled().await?;
        observe(QUIET * 3).await;
        ensure!(services.work()? == before, "the shard of services works: {before:?}, {:?}", services.work()?);
        let busy = slowest_change(&api, &mut services).await?;
        churn.abort();
        println!("the slowest of {TIMED} changes took {quiet:?}, and {busy:?} beside churn of jobs");
        ensure!(busy < quiet + SLACK, "{quiet:?} became {busy:?}");
        // What jobs call they do hear of.
        let cluster = "outbound|8019||web.shop.svc.cluster.local".to_owned();
        eventually("the services are known to jobs", async || {
            jobs.proxy.count_responses(QUIET).await?;
            Ok(jobs.proxy.resources(CDS).contains_key(&cluster))
        })
        .await
    });
}
