//! What breaks, moves and grows; under traffic without a failed request where the machine can do that.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::mesh::{Mesh, Namespace, in_turn};
use crate::shop::Shop;

/// Requests before and after, so that the change is in between.
const SOME: usize = 20;

fn rolled_to(mesh: &Mesh, image: &str) -> Result<()> {
    mesh.kubectl(&["-n", "istio-system", "set", "image", "deployment/istiod", &format!("discovery={image}")])?;
    mesh.rolled_out("istio-system", "istiod")
}

/// Digests of the images of the control plane's replicas, as the kubelet has them.
fn running_images(mesh: &Mesh) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    // Replicas that are on their way out run the image of before.
    mesh.until("the replicas of before to go", |mesh| {
        let pods = mesh.pods("istio-system", "app=istiod")?;
        found = pods.iter().map(|pod| pod["status"]["containerStatuses"][0]["imageID"].to_string()).collect();
        Ok(found.len() == 1)
    })?;
    Ok(found)
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn another_build_of_the_control_plane_and_back() {
    in_turn(|mesh| {
        let traffic = Shop::open(mesh)?.traffic();
        traffic.more(mesh, SOME)?;
        let before = running_images(mesh)?;
        rolled_to(mesh, "docker.io/library/meltemi:other")?;
        ensure!(running_images(mesh)?.is_disjoint(&before), "{before:?} still run");
        traffic.more(mesh, SOME)?;
        rolled_to(mesh, "docker.io/library/meltemi:local")?;
        traffic.more(mesh, SOME)?;
        traffic.end("rolling update to another build and back")
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn a_replica_is_deleted() {
    in_turn(|mesh| {
        let traffic = Shop::open(mesh)?.traffic();
        let pods = mesh.pods("istio-system", "app=istiod")?;
        let name = pods.first().and_then(|pod| pod["metadata"]["name"].as_str()).context("a replica")?;
        mesh.kubectl(&["-n", "istio-system", "delete", "pod", name])?;
        mesh.rolled_out("istio-system", "istiod")?;
        traffic.more(mesh, SOME)?;
        traffic.end("a replica deleted")
    });
}

/// Whether a part of the node could be ended and started again.
fn restarted(mesh: &Mesh, part: &str) -> Result<bool> {
    let Some(done) = mesh.on_node(&["restart", part]) else {
        testkit::skip(&format!("restart of {part}: the node is none of ours"));
        return Ok(false);
    };
    done.map(|_| true)
}

fn restarts(mesh: &Mesh) -> Result<Vec<(String, i64)>> {
    let pods = [mesh.pods("istio-system", "app=istiod")?, mesh.pods("shop", "app")?].concat();
    let count = |pod: &Value| {
        let statuses =
            ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array().cloned());
        statuses.into_iter().flatten().flatten().filter_map(|status| status["restartCount"].as_i64()).sum()
    };
    Ok(pods.iter().map(|pod| (pod["metadata"]["name"].to_string(), count(pod))).collect())
}

/// A kubelet that starts calls its pods not ready until it has probed them, so that for a moment none of this only node has endpoints: requests
/// that fail then are no fault of the mesh.
#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn a_restarted_kubelet_restarts_no_container_and_requests_flow_again() {
    in_turn(|mesh| {
        let shop = Shop::open(mesh)?;
        let before = restarts(mesh)?;
        if restarted(mesh, "kubelet")? {
            // It answers again: logs come through it.
            mesh.until("the kubelet to answer", |mesh| {
                Ok(mesh.kubectl(&["-n", "istio-system", "logs", "deployment/istiod", "--tail=1"]).is_ok())
            })?;
            mesh.until("the shop to answer", |_| Ok(shop.ask("/").is_ok()))?;
        }
        let after = restarts(mesh)?;
        ensure!(before == after, "before: {before:?}, after: {after:?}");
        Ok(())
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn the_api_server_is_restarted() {
    in_turn(|mesh| {
        let traffic = Shop::open(mesh)?.traffic();
        if restarted(mesh, "kube-apiserver")? {
            mesh.until("the API server to answer", |mesh| Ok(mesh.kubectl(&["get", "--raw", "/readyz"]).is_ok()))?;
            traffic.more(mesh, SOME)?;
            mesh.rolled_out("istio-system", "istiod")?;
            // The leader writes again, with the watch that it has by now.
            let namespace = Namespace::new(mesh, "after-restart", "")?;
            mesh.until("the root certificate in a new namespace", |mesh| {
                Ok(mesh.kubectl(&["-n", namespace.name, "get", "configmap", "istio-ca-root-cert"]).is_ok())
            })?;
        }
        traffic.end("API server restarted")
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn fifty_pods_come_and_go() {
    in_turn(|mesh| {
        let traffic = Shop::open(mesh)?.traffic();
        let namespace = Namespace::new(mesh, "crowd", "istio-injection: enabled")?;
        mesh.apply(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd, namespace: crowd}
spec:
  replicas: 0
  selector: {matchLabels: {app: crowd}}
  template:
    metadata:
      labels: {app: crowd}
      annotations: {sidecar.istio.io/proxyCPU: 1m, sidecar.istio.io/proxyMemory: 16Mi}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: app, image: 'app:local', args: [crowd, v1]}",
        )?;
        mesh.kubectl(&["-n", namespace.name, "scale", "deployment/crowd", "--replicas=50"])?;
        let began = Instant::now();
        mesh.kubectl(&["-n", namespace.name, "rollout", "status", "deployment/crowd", "--timeout=10m"])?;
        testkit::say(&format!("50 pods were ready after {} s", began.elapsed().as_secs()));
        mesh.kubectl(&["-n", namespace.name, "scale", "deployment/crowd", "--replicas=0"])?;
        mesh.until("the pods to go", |mesh| Ok(mesh.pods("crowd", "app=crowd")?.is_empty()))?;
        mesh.until("no stream of them", |mesh| {
            let proxies = ["-n", "istio-system", "exec", "deployment/istiod", "--", "meltemi", "proxies"];
            Ok(!mesh.kubectl(&proxies)?.contains(".crowd"))
        })?;
        traffic.end("50 pods came and went")
    });
}
