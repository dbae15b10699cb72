//! Which control plane a proxy is sent to, by labels and tags as istioctl makes them, and that no other serves it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::cluster::ApiWriter;
use testkit::parity::CaseProxy;
use testkit::wait::{DEADLINE, eventually};
use testkit::{grpc, server};
use tokio::time::timeout;
use wire::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

use super::access::{METHOD, secured};
use super::chart::{self, of_kinds, rendered};
use super::instance::Instance;
use super::{namespace, read, service, virtual_service, with_cluster};

const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

fn tag(name: &str, revision: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": format!("istio-revision-tag-{name}"),
            "labels": { "app": "sidecar-injector", "istio.io/tag": name, "istio.io/rev": revision },
        },
        "webhooks": [],
    })
}

/// The name of the server that a proxy is sent to.
fn server_of(program: &Path, kubeconfig: &Path, proxy: &str) -> Result<String> {
    let flags = [format!("--proxy={proxy}"), format!("--kubeconfig={}", kubeconfig.display())];
    let made = Command::new(program).args(["bootstrap", "--ip=10.0.0.1", "-o", "json"]).args(flags).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let document: Value = serde_json::from_slice(&made.stdout)?;
    let endpoints = &document["static_resources"]["clusters"][0]["load_assignment"]["endpoints"];
    let address = &endpoints[0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["address"];
    Ok(address.as_str().context("no address")?.to_owned())
}

#[test]
fn labels_and_tags_choose_the_control_plane() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for (space, labels) in [
            ("plain", json!({})),
            ("revised", json!({ "istio.io/rev": "1-30" })),
            ("tagged", json!({ "istio.io/rev": "prod" })),
            ("injected", json!({ "istio-injection": "enabled" })),
        ] {
            api.apply(&namespace(space, &labels)).await?;
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "own", "namespace": "plain", "labels": { "istio.io/rev": "prod" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        });
        api.apply(&pod).await?;
        api.apply(&tag("prod", "canary")).await?;
        let kubeconfig = cluster.kubeconfig()?;
        let program = tokio::task::spawn_blocking(server::program).await??;
        let check = |proxy: &str, host: &str| -> Result<()> {
            let found = server_of(&program, &kubeconfig, proxy)?;
            ensure!(found == host, "{proxy}: {found}, not {host}");
            Ok(())
        };
        check("a.plain", "istiod.istio-system.svc")?;
        check("own.plain", "istiod-canary.istio-system.svc")?;
        check("a.revised", "istiod-1-30.istio-system.svc")?;
        check("a.tagged", "istiod-canary.istio-system.svc")?;
        check("a.injected", "istiod.istio-system.svc")?;
        // The tag moves, and with it the default.
        api.apply(&tag("prod", "1-30")).await?;
        api.apply(&tag("default", "1-30")).await?;
        check("a.tagged", "istiod-1-30.istio-system.svc")?;
        check("a.injected", "istiod-1-30.istio-system.svc")
    });
}

/// What the API server has of two control planes: a namespace of each, with a rule of each in both.
async fn two_revisions(api: &ApiWriter) -> Result<()> {
    api.apply(&namespace("istio-system", &json!({}))).await?;
    for (space, labels) in [("plains", json!({})), ("canaries", json!({ "istio.io/rev": "canary" }))] {
        api.apply(&namespace(space, &labels)).await?;
        let meta = json!({ "name": "web", "namespace": space });
        api.apply_all(&[
            service(space, "web"),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta }),
        ])
        .await?;
        for revision in ["default", "canary"] {
            let mut rule = virtual_service(space, revision, "/");
            rule["metadata"]["labels"] = json!({ "istio.io/rev": revision });
            rule["spec"]["hosts"] = json!(["web"]);
            rule["spec"]["http"] = json!([{ "name": revision, "route": [{ "destination": { "host": "web" } }] }]);
            api.apply(&rule).await?;
        }
    }
    Ok(())
}

/// The routes that a proxy receives over the secure port, as far as it is text; an error if the server does not have this name.
async fn routes(instance: &Instance, api: &ApiWriter, name: &str, space: &str) -> Result<String> {
    let token = chart::token(api, space, "web", Some("istio-ca")).await?;
    let entry = json!({ "name": "a", "namespace": space, "ip": "10.7.7.1", "serviceAccount": "web" });
    let first = DeltaDiscoveryRequest {
        node: Some(CaseProxy::new(&entry)?.node()),
        type_url: ROUTE.to_owned(),
        resource_names_subscribe: vec!["80".to_owned()],
        ..Default::default()
    };
    let io = secured(instance, name).await?;
    let (_sender, mut reader) = grpc::call_as(io, name, METHOD, Some(&token), &first).await?;
    let answer = timeout(DEADLINE, reader.next::<DeltaDiscoveryResponse>()).await??.context("the stream ended")?;
    let values = answer.resources.iter().filter_map(|it| it.resource.as_ref());
    Ok(values.map(|any| String::from_utf8_lossy(&any.value).into_owned()).collect())
}

/// istiod answers whoever finds it, and so do we: that a proxy finds its own is the doing of names.
#[test]
fn a_proxy_of_a_revision_is_served_by_it_alone() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        two_revisions(&api).await?;
        let plain = Instance::named(cluster, "plain", &["--revision", "default"], &[]).await?;
        let canary = Instance::named(cluster, "canary", &["--revision", "canary"], &[]).await?;
        let (kubeconfig, program) = (cluster.kubeconfig()?, server::program()?);

        let name = server_of(&program, &kubeconfig, "a.canaries")?;
        ensure!(name == "istiod-canary.istio-system.svc", "{name}");
        let routes_text = routes(&canary, &api, &name, "canaries").await?;
        ensure!(
            routes_text.contains("/virtual-service/canary") && !routes_text.contains("/virtual-service/default"),
            "{routes_text}"
        );
        // Whatever a name leads to by mistake, the other cannot show that it is the canary.
        let error = routes(&plain, &api, &name, "canaries").await.err().map(|error| format!("{error:#}"));
        ensure!(error.as_ref().is_some_and(|why| why.contains("not valid for name")), "{error:?}");

        let name = server_of(&program, &kubeconfig, "a.plains")?;
        ensure!(name == "istiod.istio-system.svc", "{name}");
        let routes_text = routes(&plain, &api, &name, "plains").await?;
        ensure!(
            routes_text.contains("/virtual-service/default") && !routes_text.contains("/virtual-service/canary"),
            "{routes_text}"
        );
        for (lease, holder) in [("meltemi-leader", "plain"), ("meltemi-leader-canary", "canary")] {
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/{lease}");
            let is_holder = async || Ok(read(&api, &path).await["spec"]["holderIdentity"] == holder);
            eventually("each revision has its own leader", is_holder).await?;
        }
        names_lead_to_one_revision()
    });
}

/// The Services of two charts in one namespace, and the pods that they choose.
fn names_lead_to_one_revision() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut charts = Vec::new();
    for revision in ["", "canary"] {
        let values = folder.path().join("values.yaml");
        std::fs::write(&values, format!("revision: {revision:?}\n"))?;
        let Some(objects) = rendered(Some(&values))? else { return Ok(()) };
        let deployment = of_kinds(&objects, &["Deployment"]).remove(0);
        let pod = deployment["spec"]["template"]["metadata"]["labels"].clone();
        charts.push((of_kinds(&objects, &["Service"]).remove(0), pod));
    }
    for (at, expected) in ["istiod", "istiod-canary"].into_iter().enumerate() {
        let service = &charts[at].0;
        ensure!(service["metadata"]["name"] == expected, "{}", service["metadata"]["name"]);
        let selector = service["spec"]["selector"].as_object().context("a selector")?;
        for (other, (_, pod)) in charts.iter().enumerate() {
            let chosen = selector.iter().all(|(key, value)| pod[key] == *value);
            ensure!(chosen == (other == at), "{expected} and the pods of {other}: {selector:?} {pod}");
        }
    }
    Ok(())
}
