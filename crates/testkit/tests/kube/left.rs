//! What a test leaves behind, however it ended, is gone when the next begins.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::cluster::ApiWriter;

use super::{namespace, read, service, virtual_service, with_cluster};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/wasmplugins.extensions.istio.io";

async fn leave(api: &ApiWriter) -> Result<()> {
    for (space, labels) in [("left", json!({})), ("default", json!({ "istio-injection": "enabled" }))] {
        api.apply(&namespace(space, &labels)).await?;
        api.apply_all(&[service(space, "left"), virtual_service(space, "left", "/")]).await?;
    }
    let lease = json!({ "name": "left", "namespace": "left" });
    api.apply(&json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease })).await?;
    let webhook = "ValidatingWebhookConfiguration";
    let webhook =
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": webhook, "metadata": { "name": "left" } });
    api.apply(&webhook).await?;
    let definition = json!({ "name": "wasmplugins.extensions.istio.io" });
    let kind = "CustomResourceDefinition";
    api.delete(&json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "metadata": definition })).await
}

#[test]
fn what_a_test_leaves_behind_is_gone_for_the_next() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        leave(&api).await?;
        cluster.restore().await?;
        for path in [
            "/api/v1/namespaces/left",
            "/api/v1/namespaces/left/services/left",
            "/api/v1/namespaces/default/services/left",
            "/apis/networking.istio.io/v1/namespaces/left/virtualservices/left",
            "/apis/networking.istio.io/v1/namespaces/default/virtualservices/left",
            "/apis/coordination.k8s.io/v1/namespaces/left/leases/left",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/left",
        ] {
            let found = read(&api, path).await;
            ensure!(found.is_null(), "{found}");
        }
        let default = read(&api, "/api/v1/namespaces/default").await;
        let label = &default["metadata"]["labels"];
        ensure!(
            label["istio-injection"] == Value::Null && label["kubernetes.io/metadata.name"] == "default",
            "{label}"
        );
        let services = read(&api, "/api/v1/namespaces/default/services/kubernetes").await;
        ensure!(services["spec"]["clusterIP"].is_string(), "{services}");
        ensure!(!read(&api, DEFINITION).await.is_null(), "a kind is missing");
        // The names are free at once.
        leave(&api).await
    });
}
