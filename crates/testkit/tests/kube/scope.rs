//! Which namespaces are watched: those that the mesh config selects, as labels and the mesh config change.

use std::collections::BTreeSet;

use anyhow::ensure;
use config::kind::Kind;
use serde_json::{Value, json};
use sources::kube::{EndpointKind, KubeOptions, Pacing};
use testkit::cluster::{WatchedStore, options};

use super::{chart, namespace, service, virtual_service, with_cluster};

fn mesh_config(text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio", "namespace": "istio-system" },
        "data": { "mesh": text },
    })
}

#[test]
fn only_selected_namespaces_are_watched() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        api.apply(&mesh_config("discoverySelectors: [{matchLabels: {mesh: in}}]")).await?;
        api.apply(&namespace("scope-in", &json!({ "mesh": "in" }))).await?;
        api.apply(&namespace("scope-out", &json!({}))).await?;
        for space in ["scope-in", "scope-out", "istio-system"] {
            api.apply(&service(space, "scoped")).await?;
        }
        let mut live = WatchedStore::start(cluster.client().await?, options(Pacing::default())).await;
        let holds =
            |space: &'static str| move |live: &WatchedStore| live.received.holds(Kind::Service, space, "scoped");
        ensure!(holds("scope-in")(&live) && holds("istio-system")(&live) && !holds("scope-out")(&live), "at the start");
        ensure!(live.received.holds(Kind::ConfigMap, "istio-system", "istio"), "the mesh config is always watched");
        api.apply(&namespace("scope-out", &json!({ "mesh": "in" }))).await?;
        live.until("a labelled namespace comes", holds("scope-out")).await?;
        api.apply(&namespace("scope-in", &json!({}))).await?;
        live.until("an unlabelled one goes", |live| !holds("scope-in")(live)).await?;
        api.delete(&mesh_config("")).await?;
        live.until("without selectors all come", holds("scope-in")).await?;
        Ok(())
    });
}

#[test]
fn objects_of_another_revision_are_not_read() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("revised", &json!({}))).await?;
        let mut objects = Vec::new();
        for (name, revision) in [("all", None), ("ours", Some("canary")), ("theirs", Some("stable"))] {
            let mut object = virtual_service("revised", name, "/");
            if let Some(revision) = revision {
                object["metadata"]["labels"] = json!({ "istio.io/rev": revision });
            }
            objects.push(object);
        }
        api.apply_all(&objects).await?;
        let canary = KubeOptions { revision: "canary".into(), ..options(Pacing::default()) };
        let mut live = WatchedStore::start(cluster.client().await?, canary).await;
        let holds =
            |name: &'static str| move |live: &WatchedStore| live.received.holds(Kind::VirtualService, "revised", name);
        ensure!(holds("all")(&live) && holds("ours")(&live) && !holds("theirs")(&live), "{:?}", live.received.ids);
        objects[2]["metadata"]["labels"] = json!({ "istio.io/rev": "canary" });
        objects[1]["metadata"]["labels"] = json!({ "istio.io/rev": "stable" });
        api.apply_all(&objects).await?;
        live.until("one comes", holds("theirs")).await?;
        live.until("one goes", |live| !holds("ours")(live)).await
    });
}

#[test]
fn a_role_of_single_namespaces_is_enough() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "few-in", "few-out"] {
            api.apply(&namespace(space, &json!({}))).await?;
            api.apply(&service(space, "few")).await?;
        }
        for space in ["istio-system", "few-in"] {
            api.apply_all(&role(space)).await?;
        }
        let meta = json!({ "name": "few", "namespace": "few-in" });
        api.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta })).await?;
        let token = chart::token(&api, "few-in", "few", None).await?;
        let kubeconfig = cluster.kubeconfig_for(&format!("https://{}", cluster.address), &token)?;
        let client =
            sources::kube::KubeClient::new(&sources::kube::ApiAccess { kubeconfig: Some(kubeconfig), rate: 1000 })
                .await?;
        let few = KubeOptions {
            namespaces: BTreeSet::from(["few-in".into()]),
            endpoints: EndpointKind::EndpointSlice,
            ..options(Pacing::default())
        };
        let live = WatchedStore::start(client, few).await;
        let holds = |space| live.received.holds(Kind::Service, space, "few");
        ensure!(holds("few-in") && holds("istio-system") && !holds("few-out"), "{:?}", live.received.ids);
        let forbidden: Vec<String> = live.health.snapshot().into_iter().map(|(_, watch)| watch.trouble).collect();
        ensure!(forbidden.iter().any(|it| it.contains("cannot list resource \"nodes\"")), "{forbidden:?}");
        Ok(())
    });
}

/// Reading everything in one namespace.
fn role(space: &str) -> Vec<Value> {
    let meta = json!({ "name": "few", "namespace": space });
    let group = "rbac.authorization.k8s.io";
    let verbs = json!(["get", "list", "watch"]);
    vec![
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": meta,
            "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": verbs }],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": meta,
            "roleRef": { "apiGroup": group, "kind": "Role", "name": "few" },
            "subjects": [{ "kind": "ServiceAccount", "name": "few", "namespace": "few-in" }],
        }),
    ]
}
