//! Leases belong to the chart's service account, with which Kubernetes deletes them.

use anyhow::ensure;
use serde_json::json;
use testkit::wait::eventually;

use super::chart::{self, rendered};
use super::instance::Instance;
use super::{namespace, read, with_cluster};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases";
const ACCOUNT: &str = "/api/v1/namespaces/istio-system/serviceaccounts/istiod";

#[test]
fn every_lease_goes_with_the_service_account_of_the_release() {
    with_cluster(async |cluster| {
        let Some(objects) = rendered(None)? else { return Ok(()) };
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let kubeconfig = chart::account(cluster, &api, &objects).await?;
        let uid = read(&api, ACCOUNT).await["metadata"]["uid"].clone();
        let expected = json!([{ "apiVersion": "v1", "kind": "ServiceAccount", "name": "istiod", "uid": uid }]);
        let instance = Instance::start(&kubeconfig, &[], &[("POD_NAME", "owned")]).await?;
        for name in ["meltemi-leader", "meltemi-status", "meltemi-replicas"] {
            let path = format!("{LEASES}/{name}");
            let owned = async || Ok(read(&api, &path).await["metadata"]["ownerReferences"] == expected);
            eventually(&format!("{name} has an owner"), owned).await?;
        }
        // A renewal replaces the whole Lease.
        let path = format!("{LEASES}/meltemi-leader");
        let first = read(&api, &path).await;
        let renewed = async || Ok(read(&api, &path).await["spec"]["renewTime"] != first["spec"]["renewTime"]);
        eventually("the Lease is renewed", renewed).await?;
        ensure!(read(&api, &path).await["metadata"]["ownerReferences"] == expected, "{first}");
        drop(instance);
        Ok(())
    });
}
