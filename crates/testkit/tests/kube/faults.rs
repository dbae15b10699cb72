//! Faults on the way to the API server: nothing is removed because of them, and the picture is right again soon after.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use config::kind::Kind;
use serde_json::json;
use sources::kube::{ApiAccess, KubeClient, Pacing, State};
use testkit::cluster::{ApiFault, ApiWriter, FaultProxy, TestCluster, WatchedStore, options};

use super::{namespace, service, virtual_service, with_cluster};

/// As the program's, a tenth as long.
const HASTE: Pacing = Pacing {
    first_retry: Duration::from_millis(100),
    longest_retry: Duration::from_secs(2),
    between_lists: Duration::from_millis(500),
    idle: Duration::from_secs(3),
    watch: Duration::from_secs(30),
    absent: Duration::from_millis(500),
    audit: Duration::ZERO,
    late: Duration::from_millis(500),
    page: 2,
};

/// A client whose way leads through the faulty proxy, and what the server has: `count` services in a namespace of its own.
struct Scene<'a> {
    cluster: &'a TestCluster,
    api: ApiWriter,
    faulty: FaultProxy,
    space: &'static str,
}

impl<'a> Scene<'a> {
    async fn new(cluster: &'a TestCluster, space: &'static str) -> Result<Scene<'a>> {
        let api = cluster.api().await?;
        api.apply(&namespace(space, &json!({}))).await?;
        for name in ["a", "b", "c", "d", "e"] {
            api.apply(&service(space, name)).await?;
        }
        let faulty = FaultProxy::start(cluster.client().await?).await?;
        Ok(Scene { cluster, api, faulty, space })
    }

    async fn live(&self, pacing: Pacing) -> Result<WatchedStore> {
        let kubeconfig = self.cluster.kubeconfig_for(&self.faulty.url(), "any")?;
        let client = KubeClient::new(&ApiAccess { kubeconfig: Some(kubeconfig), rate: 1000 }).await?;
        Ok(WatchedStore::start(client, options(pacing)).await)
    }

    fn holds(&self, name: &str) -> impl Fn(&WatchedStore) -> bool {
        let (space, name) = (self.space, name.to_owned());
        move |live| live.received.holds(Kind::Service, space, &name)
    }

    /// The server changes and the picture follows.
    async fn follows(&self, live: &mut WatchedStore, name: &str) -> Result<()> {
        self.api.apply(&service(self.space, name)).await?;
        live.until(&format!("service {name} comes"), self.holds(name)).await?;
        self.api.delete(&service(self.space, name)).await?;
        let holds = self.holds(name);
        live.until(&format!("service {name} goes"), |live| !holds(live)).await
    }
}

fn state(live: &WatchedStore, kind: Kind) -> Option<State> {
    live.health.snapshot().into_iter().find(|(resource, _)| resource.kind == kind).map(|(_, watch)| watch.state)
}

fn all_live(live: &WatchedStore) -> bool {
    live.health.snapshot().iter().all(|(_, watch)| watch.state == State::Live)
}

#[test]
fn a_cut_removes_nothing_and_what_happened_meanwhile_is_caught_up() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-cut").await?;
        let mut live = scene.live(HASTE).await?;
        live.until("every watch is live", all_live).await?;
        scene.faulty.set(ApiFault::Cut);
        live.until("the watch stalls", |live| state(live, Kind::Service) == Some(State::Stalled)).await?;
        scene.api.apply(&service(scene.space, "meanwhile")).await?;
        live.receive_for(Duration::from_secs(2)).await?;
        ensure!(live.received.deletions == 0, "{} removals while the server was away", live.received.deletions);
        ensure!(scene.holds("a")(&live) && !scene.holds("meanwhile")(&live), "what was known stays");
        scene.faulty.set(ApiFault::None);
        live.until("what came meanwhile", scene.holds("meanwhile")).await?;
        live.until("every watch is live", all_live).await?;
        let lists: u64 = live.health.snapshot().iter().map(|(_, watch)| watch.lists).max().unwrap_or_default();
        ensure!(lists == 1, "a cut needs no list: the watch goes on from where it was");
        scene.follows(&mut live, "after").await
    });
}

#[test]
fn versions_that_are_gone_lead_to_one_list_and_no_removal() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-gone").await?;
        let pacing = Pacing { watch: Duration::from_secs(1), ..HASTE };
        let mut live = scene.live(pacing).await?;
        scene.faulty.seen();
        scene.faulty.set(ApiFault::Gone);
        live.receive_for(Duration::from_secs(5)).await?;
        ensure!(live.received.deletions == 0, "{} removals by a list that lacks nothing", live.received.deletions);
        let seen = scene.faulty.seen();
        let lists = seen.iter().filter(|it| it.path == "/api/v1/services?limit=2&").count();
        ensure!((1..=11).contains(&lists), "{lists} lists of services in 5 s, at most one in half a second");
        // What vanishes between two lists is found by the difference.
        scene.api.delete(&service(scene.space, "b")).await?;
        let holds = scene.holds("b");
        live.until("the deleted goes", |live| !holds(live)).await?;
        scene.faulty.set(ApiFault::None);
        live.until("every watch is live", all_live).await?;
        scene.follows(&mut live, "after").await
    });
}

#[test]
fn error_responses_are_retried_with_backoff() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-storm").await?;
        let pacing = Pacing { watch: Duration::from_secs(1), first_retry: Duration::from_secs(1), ..HASTE };
        let mut live = scene.live(pacing).await?;
        for code in [429, 500, 401] {
            scene.faulty.set(ApiFault::ErrorStatus(code));
            live.receive_for(Duration::from_secs(2)).await?;
            scene.faulty.seen();
            live.receive_for(Duration::from_secs(3)).await?;
            let asked = scene.faulty.seen().iter().filter(|it| it.path.starts_with("/api/v1/services")).count();
            ensure!(asked <= 3, "{asked} requests for services in 3 s of {code}");
        }
        ensure!(live.received.deletions == 0 && scene.holds("a")(&live), "error responses remove nothing");
        scene.faulty.set(ApiFault::None);
        live.until("every watch is live", all_live).await?;
        scene.follows(&mut live, "after").await
    });
}

#[test]
fn an_event_that_got_lost_is_found_by_the_audit() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-lost").await?;
        // Nothing but the audit can find it.
        let pacing = Pacing { audit: Duration::from_secs(2), idle: Duration::from_secs(60), ..HASTE };
        let mut live = scene.live(pacing).await?;
        live.until("every watch is live", all_live).await?;
        scene.faulty.set(ApiFault::Drop);
        scene.api.apply(&service(scene.space, "lost")).await?;
        scene.api.delete(&service(scene.space, "c")).await?;
        live.until("both events are lost", |_| scene.faulty.swallowed() >= 2).await?;
        scene.faulty.set(ApiFault::None);
        live.until("the audit brings it", scene.holds("lost")).await?;
        let holds = scene.holds("c");
        live.until("the audit finds it gone", |live| !holds(live)).await?;
        let repairs: u64 = live.health.snapshot().iter().map(|(_, watch)| watch.repairs).sum();
        ensure!(repairs >= 2, "{repairs} repairs are counted");
        // A quiet server needs no repair.
        live.receive_for(Duration::from_secs(4)).await?;
        let later: u64 = live.health.snapshot().iter().map(|(_, watch)| watch.repairs).sum();
        ensure!(later == repairs, "{} repairs of nothing", later - repairs);
        Ok(())
    });
}

#[test]
fn a_silent_watch_is_given_up_and_resumed() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-silent").await?;
        let mut live = scene.live(HASTE).await?;
        live.until("every watch is live", all_live).await?;
        scene.faulty.set(ApiFault::Stall);
        scene.api.apply(&service(scene.space, "unheard")).await?;
        live.receive_for(Duration::from_millis(500)).await?;
        // From now on new watches work; the old ones stay silent because what they swallowed does not come again.
        scene.faulty.set(ApiFault::None);
        live.until("the watch is given up", scene.holds("unheard")).await?;
        ensure!(live.received.deletions == 0, "{} removals", live.received.deletions);
        Ok(())
    });
}

#[test]
fn doubled_and_reordered_events_end_in_the_right_picture() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-order").await?;
        let mut live = scene.live(HASTE).await?;
        live.until("every watch is live", all_live).await?;
        for fault in [ApiFault::Double, ApiFault::Reorder] {
            scene.faulty.set(fault);
            let names: Vec<String> = (0..10).map(|number| format!("s{number}")).collect();
            let made: Vec<_> = names.iter().map(|name| service(scene.space, name)).collect();
            scene.api.apply_all(&made).await?;
            for name in &names {
                live.until(&format!("{name} comes"), scene.holds(name)).await?;
            }
            scene.api.delete_all(&made).await?;
            for name in &names {
                let holds = scene.holds(name);
                live.until(&format!("{name} goes"), |live| !holds(live)).await?;
            }
        }
        ensure!(scene.holds("a")(&live), "the others stayed");
        Ok(())
    });
}

#[test]
fn an_expired_token_is_replaced_by_the_one_in_the_file() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-token").await?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("token");
        std::fs::write(&file, "first")?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": scene.faulty.url() } }],
            "users": [{ "name": "test", "user": { "tokenFile": file } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, config.to_string())?;
        scene.faulty.set(ApiFault::Token("first".into()));
        let client = KubeClient::new(&ApiAccess { kubeconfig: Some(kubeconfig), rate: 1000 }).await?;
        let pacing = Pacing { watch: Duration::from_secs(1), ..HASTE };
        let mut live = WatchedStore::start(client, options(pacing)).await;
        scene.faulty.set(ApiFault::Token("second".into()));
        live.until("the watch is rejected", |live| state(live, Kind::Service) == Some(State::Stalled)).await?;
        std::fs::write(&file, "second")?;
        live.until("the new token works", |live| state(live, Kind::Service) == Some(State::Live)).await?;
        ensure!(live.received.deletions == 0 && scene.holds("a")(&live), "an old token removes nothing");
        Ok(())
    });
}

#[test]
fn a_kind_may_appear_and_vanish() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-kind").await?;
        let (definition, path) =
            ("wasmplugins.extensions.istio.io", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        let original: serde_json::Value =
            serde_json::from_slice(&scene.api.client.get(&format!("{path}/{definition}"), "application/json").await?)?;
        let spec = json!({
            "apiVersion": original["apiVersion"], "kind": original["kind"],
            "metadata": { "name": definition, "labels": original["metadata"]["labels"], "annotations": original["metadata"]["annotations"] },
            "spec": original["spec"],
        });
        let plugin = json!({
            "apiVersion": "extensions.istio.io/v1alpha1", "kind": "WasmPlugin",
            "metadata": { "name": "p", "namespace": scene.space }, "spec": { "url": "oci://example.com/p:1" },
        });
        scene.api.delete(&spec).await?;
        let mut live = scene.live(HASTE).await.context("start without the kind")?;
        live.until("the kind is absent", |live| state(live, Kind::WasmPlugin) == Some(State::Absent)).await?;
        scene.api.define(&format!("{spec}")).await?;
        live.until("the kind appears", |live| state(live, Kind::WasmPlugin) == Some(State::Live)).await?;
        scene.api.apply(&plugin).await?;
        let space = scene.space;
        let holds = move |live: &WatchedStore| live.received.holds(Kind::WasmPlugin, space, "p");
        live.until("its object comes", holds).await?;
        scene.api.delete(&spec).await?;
        live.until("its object goes with it", |live| !holds(live)).await?;
        live.until("the kind is absent", |live| state(live, Kind::WasmPlugin) == Some(State::Absent)).await?;
        scene.api.define(&format!("{spec}")).await?;
        live.until("the kind is back", |live| state(live, Kind::WasmPlugin) == Some(State::Live)).await
    });
}

#[test]
fn a_bad_version_of_an_object_keeps_the_good_one() {
    with_cluster(async |cluster| {
        let scene = Scene::new(cluster, "fault-object").await?;
        let mut live = scene.live(HASTE).await?;
        scene.api.apply(&virtual_service(scene.space, "a", "/a.*")).await?;
        let space = scene.space;
        live.until("it comes", |live| live.received.holds(Kind::VirtualService, space, "a")).await?;
        let noted = |live: &WatchedStore| !live.received.store.snapshot().diagnostics.is_empty();
        scene.api.apply(&virtual_service(scene.space, "a", "(")).await?;
        live.until("its fault is noted", noted).await?;
        let diagnostics: Vec<String> =
            live.received.store.snapshot().diagnostics.iter().map(ToString::to_string).collect();
        ensure!(
            diagnostics[0].starts_with(&format!("error: VirtualService {space}/a: spec.http[0].match[0].uri")),
            "{diagnostics:?}"
        );
        ensure!(live.received.holds(Kind::VirtualService, space, "a"), "the good version stays");
        scene.api.delete(&virtual_service(scene.space, "a", "/a.*")).await?;
        live.until("its note goes with it", |live| !noted(live)).await
    });
}
