//! Rows: with the rights of the chart alone everything works; with one of them missing the log names the verb, and only what
//! needs it is worse off.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sources::kube::{ApiAccess, KubeClient, Pacing, State};
use testkit::ads;
use testkit::cluster::{ApiWriter, WatchedStore, options};
use testkit::parity::CaseProxy;
use testkit::test_ca::TestCa;
use testkit::wait::{DEADLINE, eventually};

use super::access::{self, Router};
use super::chart::{self, of_kinds, rendered};
use super::instance::Instance;
use super::{namespace, read, service, virtual_service, with_cluster};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/meltemi-leader";
const LACKS: &str = "the role lacks rights";
const VALIDATOR: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/istio-validator-istio-system";

/// The roles of the chart, to take rules away from and give them back.
struct Roles<'a> {
    api: &'a ApiWriter,
    objects: Vec<Value>,
    /// Who has them.
    user: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Granted {
    Yes,
    No,
}

/// A rule: which role, and which of its rules.
#[derive(Clone, Copy)]
struct Rule(usize, usize);

impl<'a> Roles<'a> {
    fn new(api: &'a ApiWriter, chart: &[Value], kinds: &[&str]) -> Roles<'a> {
        let account = of_kinds(chart, &["ServiceAccount"]);
        let name = account.first().and_then(|it| it["metadata"]["name"].as_str()).unwrap_or_default();
        let user = format!("system:serviceaccount:istio-system:{name}");
        Roles { api, objects: of_kinds(chart, kinds), user }
    }

    fn rules(&self) -> Vec<Rule> {
        let of = |(at, role): (usize, &Value)| {
            let rules = role["rules"].as_array().map_or(0, Vec::len);
            (0..rules).map(move |rule| Rule(at, rule)).collect::<Vec<_>>()
        };
        self.objects.iter().enumerate().flat_map(of).collect()
    }

    fn rule(&self, Rule(role, rule): Rule) -> &Value {
        &self.objects[role]["rules"][rule]
    }

    fn texts(&self, rule: Rule, key: &str) -> Vec<String> {
        let texts = self.rule(rule)[key].as_array().into_iter().flatten();
        texts.filter_map(|it| it.as_str().map(str::to_owned)).collect()
    }

    /// The rule with this resource and verb.
    fn find(&self, resource: &str, verb: &str) -> Result<Rule> {
        let wanted = |rule: &Rule| {
            self.texts(*rule, "resources").contains(&resource.to_owned())
                && self.texts(*rule, "verbs").contains(&verb.to_owned())
        };
        self.rules().into_iter().rfind(wanted).with_context(|| format!("no rule to {verb} {resource}"))
    }

    async fn without(&self, Rule(role, rule): Rule) -> Result<()> {
        let mut less = self.objects[role].clone();
        less["rules"].as_array_mut().context("rules")?.remove(rule);
        self.api.apply(&less).await?;
        Ok(())
    }

    async fn without_all(&self, rules: &[Rule]) -> Result<()> {
        for (at, role) in self.objects.iter().enumerate() {
            let mut less = role.clone();
            let mut number = 0;
            less["rules"].as_array_mut().context("rules")?.retain(|_| {
                number += 1;
                !rules.iter().any(|Rule(role, rule)| *role == at && rule + 1 == number)
            });
            self.api.apply(&less).await?;
        }
        Ok(())
    }

    async fn restore(&self, Rule(role, _): Rule) -> Result<()> {
        self.api.apply(&self.objects[role]).await?;
        Ok(())
    }

    /// The API server applies a change a moment after it has answered.
    async fn until(&self, rule: Rule, (verb, resource): (&str, &str), granted: Granted) -> Result<()> {
        let first = |key: &str| self.texts(rule, key).into_iter().next().unwrap_or_default();
        let namespace = self.objects[rule.0]["metadata"]["namespace"].as_str().unwrap_or_default();
        let what = json!({
            "group": first("apiGroups"), "resource": resource, "verb": verb,
            "name": first("resourceNames"), "namespace": namespace,
        });
        let there = async || Ok(chart::may(self.api, &self.user, &what).await? == (granted == Granted::Yes));
        eventually(&format!("{} has the right {what}: {granted:?}", self.user), there).await
    }
}

#[test]
fn a_kind_that_may_not_be_read_any_more_stays_as_it_was_and_the_others_go_on() {
    with_cluster(async |cluster| {
        let Some(objects) = rendered(None)? else { return Ok(()) };
        let api = cluster.api().await?;
        access::edge(&api).await?;
        api.apply(&service("edge", "kept")).await?;
        let kubeconfig = chart::account(cluster, &api, &objects).await?;
        let client = KubeClient::new(&ApiAccess { kubeconfig: Some(kubeconfig), rate: 1000 }).await?;
        // Rights are asked when a watch begins.
        let second = Duration::from_secs(1);
        let pacing = Pacing {
            watch: 2 * second,
            absent: second / 2,
            first_retry: second / 5,
            longest_retry: second,
            audit: Duration::ZERO,
            ..Pacing::default()
        };
        let mut live = WatchedStore::start(client, options(pacing)).await;
        let roles = Roles::new(&api, &objects, &["ClusterRole"]);
        let reads = |rule: &Rule| roles.texts(*rule, "verbs") == ["list", "watch"];
        let mut count = 0;
        for rule in roles.rules().into_iter().filter(reads) {
            roles.without(rule).await?;
            let resources = roles.texts(rule, "resources");
            // Those of the rule before need a moment to come back.
            let what = format!("{resources:?} and nothing else is forbidden");
            live.until(&what, |live| forbidden(live, &resources)).await?;
            ensure!(live.received.deletions == 0, "without {resources:?}, {} removals", live.received.deletions);
            roles.restore(rule).await?;
            count += 1;
        }
        ensure!(count > 5, "the chart has {count} rules to read by");
        let all = |live: &WatchedStore| live.health.snapshot().iter().all(|(_, watch)| watch.state == State::Live);
        live.until("with the rights back all is live", all).await
    });
}

/// The watches of these, and of no others, say which verb they lack.
fn forbidden(live: &WatchedStore, resources: &[String]) -> bool {
    let harmed = live.health.snapshot().into_iter().filter(|(_, watch)| watch.state == State::Forbidden);
    let troubles: Vec<String> = harmed.map(|(_, watch)| watch.trouble).collect();
    let says = |trouble: &String, resource: &String| {
        ["list", "watch"].iter().any(|verb| trouble.contains(&format!("cannot {verb} resource \"{resource}\"")))
    };
    troubles.len() == resources.len()
        && resources.iter().all(|resource| troubles.iter().any(|trouble| says(trouble, resource)))
}

#[test]
fn all_missing_rights_are_named_in_one_line_at_the_start() {
    with_cluster(async |cluster| {
        let Some(objects) = rendered(None)? else { return Ok(()) };
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let kubeconfig = chart::account(cluster, &api, &objects).await?;
        let roles = Roles::new(&api, &objects, &["ClusterRole"]);
        let gone = [("pods", "list"), ("gateways", "watch"), ("gateways/status", "patch")];
        let rules = gone.iter().map(|(resource, verb)| roles.find(resource, verb)).collect::<Result<Vec<_>>>()?;
        roles.without_all(&rules).await?;
        for (rule, (resource, verb)) in rules.iter().zip(gone) {
            roles.until(*rule, (verb, resource), Granted::No).await?;
        }
        let instance = Instance::start(&kubeconfig, &[], &[("POD_NAME", "poor")]).await?;
        eventually("the log names what is missing", async || Ok(instance.log().contains(LACKS))).await?;
        let log = instance.log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(LACKS)).collect();
        ensure!(lines.len() == 1, "{lines:#?}");
        for right in
            ["list,watch pods;", "list,watch gateways.networking.istio.io", "patch gateways/status.networking.istio.io"]
        {
            ensure!(lines[0].contains(right), "{right}: {}", lines[0]);
        }
        ensure!(!lines[0].contains("secrets"), "what is allowed is not named: {}", lines[0]);
        for rule in rules {
            roles.restore(rule).await?;
        }
        Ok(())
    });
}

/// A kind of the Gateway API, as far as names need it.
const ROUTES: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: httproutes.gateway.networking.k8s.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: gateway.networking.k8s.io
  names: {kind: HTTPRoute, plural: httproutes, singular: httproute, listKind: HTTPRouteList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
";

#[test]
fn with_the_rights_of_the_chart_objects_of_the_gateway_api_are_counted_at_the_start() {
    with_cluster(async |cluster| {
        let Some(objects) = rendered(None)? else { return Ok(()) };
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        api.define(ROUTES).await?;
        let route = json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": { "name": "web", "namespace": "istio-system" } });
        api.apply(&route).await?;
        let kubeconfig = chart::account(cluster, &api, &objects).await?;
        let instance = Instance::start(&kubeconfig, &[], &[("POD_NAME", "routes")]).await?.ready().await?;
        let counted = "unread 1 HTTPRoute of the Gateway API, which is not supported";
        let line = eventually("the start counts the route", async || Ok(instance.log().contains(counted))).await;
        line.with_context(|| instance.log())?;
        drop(instance);
        let name = json!({ "name": "httproutes.gateway.networking.k8s.io" });
        let kind =
            json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": name });
        api.delete(&kind).await
    });
}

/// With the one rule more that docs/install.md asks for.
fn istiods_rights() -> Result<Option<Vec<Value>>> {
    let Some(mut objects) = chart::of_istiod("stock")? else { return Ok(None) };
    let role = objects.iter_mut().find(|it| it["metadata"]["name"] == "istiod-clusterrole-stock-istio-system");
    let rules = role.and_then(|role| role["rules"].as_array_mut()).context("istiod's ClusterRole")?;
    rules.push(json!({ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["istio-ca-root-cert"], "verbs": ["patch"] }));
    Ok(Some(objects))
}

#[test]
fn with_istiods_own_cluster_role_status_cannot_be_written_which_is_logged_once_and_costs_nothing_else() {
    with_cluster(async |cluster| {
        let Some(objects) = istiods_rights()? else { return Ok(()) };
        let api = cluster.api().await?;
        access::edge(&api).await?;
        api.apply_all(&[service("edge", "web"), virtual_service("edge", "web", "/a")]).await?;
        let kubeconfig = chart::account(cluster, &api, &objects).await?;
        let instance = Instance::start(&kubeconfig, &[], &[("POD_NAME", "stock")]).await?.ready().await?;
        let refused = "not allowed to write the status of these kinds";
        let lines = || instance.log().lines().filter(|it| it.contains(refused)).map(str::to_owned).collect::<Vec<_>>();
        eventually("the log says it", async || Ok(!lines().is_empty())).await.with_context(|| instance.log())?;

        // Later passes: an edit, another object of the kind, and one whose status istiod's role allows.
        let entry = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": { "name": "late", "namespace": "edge" },
            "spec": { "hosts": ["late.example"], "resolution": "DNS", "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }] },
        });
        api.apply_all(&[virtual_service("edge", "web", "/b"), virtual_service("edge", "other", "/c"), entry]).await?;
        let path = "/apis/networking.istio.io/v1/namespaces/edge/serviceentries/late";
        let judged = async || Ok(read(&api, path).await["status"]["conditions"].is_array());
        eventually("the status of the ServiceEntry is written", judged).await.with_context(|| instance.log())?;
        ensure!(lines().len() == 1 && lines()[0].contains("VirtualService"), "{:#?}", lines());

        let is_holder = async || Ok(read(&api, LEASE).await["spec"]["holderIdentity"] == "stock");
        eventually("the lease is held", is_holder).await.with_context(|| instance.log())?;
        api.apply(&namespace("rights-stock", &json!({}))).await?;
        let map = "/api/v1/namespaces/rights-stock/configmaps/istio-ca-root-cert";
        eventually("a new namespace has the root", async || Ok(!read(&api, map).await.is_null())).await?;
        let mut router = Router::connect(&instance, &api, "ingress").await?;
        ensure!(router.gets(DEADLINE).await?, "no secret for a gateway\n{}", instance.log());
        serves(&instance).await?;
        let log = instance.log();
        let others: Vec<&str> =
            log.lines().filter(|line| line.contains("forbidden") && !line.contains(refused)).collect();
        ensure!(others.is_empty(), "{others:#?}");
        let forbidden = instance.metric("meltemi_watch_state", "forbidden")?;
        ensure!(forbidden == 0.0, "{forbidden} watches are forbidden\n{log}");
        Ok(())
    });
}

/// The program with the account of the chart.
struct Scene<'a> {
    api: &'a ApiWriter,
    roles: Roles<'a>,
    instance: Instance,
}

#[test]
fn with_the_rights_of_the_chart_everything_works_and_a_missing_one_is_named() {
    with_cluster(async |cluster| {
        let Some(objects) = rendered(None)? else { return Ok(()) };
        let api = cluster.api().await?;
        access::edge(&api).await?;
        api.apply(&service("edge", "web")).await?;
        api.apply_all(&of_kinds(&objects, &["ValidatingWebhookConfiguration"])).await?;
        let kubeconfig = chart::account(cluster, &api, &objects).await?;
        let settings = [("MELTEMI_ACCESS_INTERVAL", "1s"), ("POD_NAME", "chart")];
        let instance = Instance::start(&kubeconfig, &[], &settings).await?.ready().await?;
        let roles = Roles::new(&api, &objects, &["ClusterRole", "Role"]);
        let scene = Scene { api: &api, roles, instance };
        let mut router = scene.everything_works("rights-a").await?;
        let log = scene.instance.log();
        ensure!(!log.contains("forbidden") && !log.contains(LACKS), "{log}");

        scene
            .lacks("tokenreviews", "create", async || {
                let refused = Router::connect(&scene.instance, &api, "ingress").await;
                ensure!(refused.is_err(), "a token that nobody reviewed is believed");
                Ok(())
            })
            .await?;
        scene.lacks("subjectaccessreviews", "create", async || Ok(())).await?;
        api.apply(&access::site_secret(&TestCa::new()?)?).await?;
        ensure!(router.gets(DEADLINE).await?, "a stream that is there goes on");
        scene
            .lacks("configmaps", "patch", async || {
                api.apply(&namespace("rights-b", &json!({}))).await?;
                Ok(())
            })
            .await?;
        scene.lacks("validatingwebhookconfigurations", "list", async || Ok(())).await?;
        scene.lacks("validatingwebhookconfigurations", "update", async || scene.distrust().await).await?;
        scene.lacks("leases", "get", async || Ok(())).await?;
        scene.lacks("leases", "create", async || api.delete(&lease()).await).await?;
        scene.everything_works("rights-c").await?;

        // The root is shared at the start.
        for verb in ["get", "create"] {
            let rule = scene.roles.find("secrets", verb)?;
            if verb == "create" {
                api.delete(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "istio-ca-secret", "namespace": "istio-system" } })).await?;
            }
            scene.roles.without(rule).await?;
            let second = Instance::start(&kubeconfig, &[], &[("POD_NAME", "second")]).await?;
            let named = format!("cannot {verb} resource \"secrets\"");
            eventually("the second names the right", async || Ok(unquoted(&second.log()).contains(&named))).await?;
            ensure!(!second.is_ready(), "a root that nobody shares");
            serves(&second).await?;
            scene.roles.restore(rule).await?;
            second.ready().await?;
        }
        Ok(())
    });
}

impl Scene<'_> {
    /// Certificates, secrets, roots, the lease, the trust in the webhook, configuration.
    async fn everything_works(&self, fresh: &str) -> Result<Router> {
        let Scene { api, instance, .. } = self;
        let forbidden = instance.metric("meltemi_watch_state", "forbidden")?;
        ensure!(forbidden == 0.0, "{forbidden} watches are forbidden\n{}", instance.log());
        let is_holder = async || Ok(read(api, LEASE).await["spec"]["holderIdentity"] == "chart");
        eventually("the lease is held", is_holder).await.with_context(|| instance.log())?;
        api.apply(&namespace(fresh, &json!({}))).await?;
        let map = format!("/api/v1/namespaces/{fresh}/configmaps/istio-ca-root-cert");
        eventually("a new namespace has the root", async || Ok(!read(api, &map).await.is_null())).await?;
        let trusted = async || Ok(read(api, VALIDATOR).await["webhooks"][0]["clientConfig"]["caBundle"].is_string());
        eventually("the webhook is trusted", trusted).await.with_context(|| instance.log())?;
        let mut router = Router::connect(instance, api, "ingress").await?;
        ensure!(router.gets(DEADLINE).await?, "no secret for a gateway\n{}", instance.log());
        serves(instance).await?;
        Ok(router)
    }

    /// Without a right: what needs it is logged, by verb and resource, and the rest goes on.
    async fn lacks(&self, resource: &str, verb: &str, tried: impl AsyncFn() -> Result<()>) -> Result<()> {
        let rule = self.roles.find(resource, verb)?;
        let from = self.instance.log().len();
        self.roles.without(rule).await?;
        self.roles.until(rule, (verb, resource), Granted::No).await?;
        tried().await?;
        let named = format!("cannot {verb} resource \"{resource}\"");
        let logged = async || Ok(unquoted(&self.instance.log()[from..]).contains(&named));
        eventually(&format!("the log says {named:?}"), logged).await.with_context(|| self.instance.log())?;
        let log = self.instance.log();
        let others: Vec<&str> =
            log[from..].lines().filter(|line| line.contains("is forbidden") && !line.contains(resource)).collect();
        ensure!(others.is_empty(), "without the right to {verb} {resource}: {others:#?}");
        serves(&self.instance).await?;
        self.roles.restore(rule).await?;
        self.roles.until(rule, (verb, resource), Granted::Yes).await
    }

    /// Somebody takes the trust in the webhook away.
    async fn distrust(&self) -> Result<()> {
        let (kind, version) = ("ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1");
        let mut found = read(self.api, VALIDATOR).await;
        ensure!(found["kind"] == kind && found["apiVersion"] == version, "{found}");
        if let Some(meta) = found["metadata"].as_object_mut() {
            meta.retain(|key, _| key == "name" || key == "labels");
        }
        for webhook in found["webhooks"].as_array_mut().into_iter().flatten() {
            webhook["clientConfig"]["caBundle"] = json!("");
        }
        self.api.apply(&found).await?;
        Ok(())
    }
}

/// Texts in log lines, as they were before they were quoted.
fn unquoted(log: &str) -> String {
    log.replace("\\\"", "\"")
}

/// Configuration, also for those who come now.
async fn serves(instance: &Instance) -> Result<()> {
    let node = CaseProxy::new(&json!({ "name": "p", "namespace": "edge", "ip": "10.9.9.9" }))?.node();
    let mut client = ads::AdsClient::new(instance.plain, node);
    let clusters = client.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
    ensure!(clusters.contains_key("outbound|80||web.edge.svc.cluster.local"), "{:?}", clusters.keys());
    Ok(())
}

fn lease() -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "meltemi-leader", "namespace": "istio-system" } })
}

#[test]
fn what_a_tenant_writes_over_is_put_right_and_a_stolen_lease_stops_its_holder() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "tenant"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let instance = Instance::named(cluster, "owner", &[], &[]).await?;
        let path = "/api/v1/namespaces/tenant/configmaps/istio-ca-root-cert";
        let root = async || read(&api, path).await["data"]["root-cert.pem"].as_str().map(str::to_owned);
        eventually("the root is there", async || Ok(root().await.is_some())).await?;
        let right = root().await;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio-ca-root-cert", "namespace": "tenant" },
            "data": { "root-cert.pem": "mine" },
        });
        api.apply(&map).await?;
        eventually("the edit is undone", async || Ok(root().await == right)).await?;

        let mut stolen = lease();
        stolen["spec"] = json!({ "holderIdentity": "thief", "leaseDurationSeconds": 15 });
        api.apply(&stolen).await?;
        let log = || instance.log();
        eventually("the loser stops", async || Ok(log().contains("lost leadership"))).await?;
        api.apply(&map).await?;
        eventually("the thief's lease to end, which nobody renews", async || {
            // In this order: what is written is written by who leads afterwards, too.
            let written = root().await;
            let holder = read(&api, LEASE).await["spec"]["holderIdentity"].clone();
            ensure!(written.as_deref() == Some("mine") || holder == "owner", "it writes while {holder} leads");
            Ok(written == right)
        })
        .await
    });
}
