//! Shards as the recipes make them, two of each at one API server: what goes on in one costs the other nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::ads::AdsClient;
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::environment;
use testkit::parity::CaseProxy;
use testkit::wait::{DEADLINE, eventually};

use super::chart::{self, of_kinds, rendered};
use super::instance::Instance;
use super::{in_turn, namespace, service};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Long enough for a change to be debounced and sent.
const QUIET: Duration = Duration::from_secs(1);
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
        let entry = json!({ "name": "p", "namespace": space, "type": kind, "ip": "10.7.7.7" });
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
    in_turn(async |cluster| {
        spaces(cluster, &[("payments", json!({})), ("payments-batch", json!({})), ("shop", json!({}))]).await?;
        let payments =
            Recipe { file: "namespace/payments.yaml", proxy: ("sidecar", "payments"), space: "payments-batch" };
        check(cluster, [payments, Recipe { file: "namespace/shop.yaml", proxy: ("sidecar", "shop"), space: "shop" }])
            .await
    });
}

#[test]
fn shards_by_region_do_not_hear_of_each_other() {
    in_turn(async |cluster| {
        let region = |name: &str| json!({ "meltemi.region": name, "istio.io/rev": name });
        spaces(cluster, &[("shop-eu", region("eu-west")), ("shop-us", region("us-east"))]).await?;
        let recipe = |file, space| Recipe { file, proxy: ("sidecar", space), space };
        check(cluster, [recipe("region/eu-west.yaml", "shop-eu"), recipe("region/us-east.yaml", "shop-us")]).await
    });
}

#[test]
fn gateways_and_sidecars_do_not_hear_of_each_other() {
    in_turn(async |cluster| {
        let gateways = json!({ "istio.io/rev": "gateways", "meltemi.exposed": "true" });
        let sidecars = json!({ "istio.io/rev": "sidecars" });
        spaces(cluster, &[("istio-ingress", gateways), ("batch", sidecars)]).await?;
        // Services of its own namespace are what a gateway without rules hears of.
        let gateways =
            Recipe { file: "workload/gateways.yaml", proxy: ("sidecar", "istio-ingress"), space: "istio-ingress" };
        check(
            cluster,
            [gateways, Recipe { file: "workload/sidecars.yaml", proxy: ("sidecar", "batch"), space: "batch" }],
        )
        .await
    });
}
