//! Which control plane a proxy is sent to: labels and tags, as istioctl makes them.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::server;

use super::{in_turn, namespace};

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

#[test]
fn labels_and_tags_choose_the_control_plane() {
    in_turn(async |cluster| {
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
        let (kubeconfig, program) = (cluster.kubeconfig()?, tokio::task::spawn_blocking(server::program).await??);
        let server = |proxy: &str| -> Result<Value> {
            let flags = [format!("--proxy={proxy}"), format!("--kubeconfig={}", kubeconfig.display())];
            let made =
                Command::new(&program).args(["bootstrap", "--ip=10.0.0.1", "-o", "json"]).args(flags).output()?;
            ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            let document: Value = serde_json::from_slice(&made.stdout)?;
            let endpoints = &document["static_resources"]["clusters"][0]["load_assignment"]["endpoints"];
            Ok(endpoints[0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["address"].clone())
        };
        let check = |proxy: &str, host: &str| -> Result<()> {
            let found = server(proxy)?;
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
        check("a.injected", "istiod-1-30.istio-system.svc")?;
        for name in ["prod", "default"] {
            api.delete(&tag(name, "")).await?;
        }
        api.delete(&pod).await?;
        Ok(())
    });
}
