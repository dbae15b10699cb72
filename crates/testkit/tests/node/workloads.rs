//! Pods that our webhook injects, with the real init container and iptables, Istio's agent and a stock Envoy.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use testkit::http_client::{HttpRequest, send_one};
use tokio::runtime::Runtime;

use crate::mesh::{Mesh, Namespace, in_turn};
use crate::shop::Shop;

fn cart(mesh: &Mesh) -> Result<Value> {
    mesh.pods("shop", "app=cart,version=v1")?.into_iter().next().context("there is a pod of cart")
}

fn named<'a>(containers: &'a Value, name: &str) -> Option<&'a Value> {
    containers.as_array()?.iter().find(|container| container["name"] == name)
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn a_pod_of_a_labelled_namespace_gets_a_sidecar_and_its_redirection() {
    in_turn(|mesh| {
        Shop::open(mesh)?;
        let pod = cart(mesh)?;
        let sidecar = named(&pod["spec"]["initContainers"], "istio-proxy").context("a native sidecar")?;
        ensure!(sidecar["restartPolicy"] == "Always", "{sidecar}");
        ensure!(sidecar["image"] == "docker.io/library/proxyv2:local", "{sidecar}");
        let ended = named(&pod["status"]["initContainerStatuses"], "istio-init").context("the init container ran")?;
        ensure!(ended["state"]["terminated"]["exitCode"] == 0, "{ended}");
        Ok(())
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn workloads_know_each_other_by_certificate_and_refuse_plaintext() {
    in_turn(|mesh| {
        let shop = Shop::open(mesh)?;
        let name = |account: &str| format!("spiffe://cluster.local/ns/shop/sa/{account}");
        let (gateway, front, cart_name) = (name("ingress"), name("front"), name("cart"));
        let expected = format!(
            "front v1 (called by {gateway}) -> cart v1 (called by {front}) -> stock v1 (called by {cart_name})\n"
        );
        let answer = shop.ask("/callers")?;
        ensure!(answer == expected, "expected {expected:?}, got {answer:?}");
        let address = cart(mesh)?["status"]["podIP"].as_str().context("an address")?.parse()?;
        let plain = HttpRequest::new(SocketAddr::new(address, 8080), "cart", "/");
        match Runtime::new()?.block_on(send_one(&plain)) {
            Ok(answer) => bail!("plaintext was answered under STRICT: {answer:?}"),
            Err(_) => Ok(()),
        }
    });
}

/// Under STRICT the kubelet's own request would be refused: the sidecar asks the app in its place.
#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn probes_are_rewritten_and_answered() {
    in_turn(|mesh| {
        Shop::open(mesh)?;
        let pod = cart(mesh)?;
        let app = named(&pod["spec"]["containers"], "app").context("the app")?;
        ensure!(app["readinessProbe"]["httpGet"]["path"] == "/app-health/app/readyz", "{}", app["readinessProbe"]);
        ensure!(app["readinessProbe"]["httpGet"]["port"] == 15020, "{}", app["readinessProbe"]);
        let ready = named(&pod["status"]["containerStatuses"], "app").context("its status")?;
        ensure!(ready["ready"] == true && ready["restartCount"] == 0, "{ready}");
        Ok(())
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn a_job_ends_although_its_pod_has_a_sidecar() {
    in_turn(|mesh| {
        Shop::open(mesh)?;
        job_ends(mesh, "")
    });
}

/// A Job whose pod has these annotations, and asks the shop through its sidecar.
fn job_ends(mesh: &Mesh, annotations: &str) -> Result<()> {
    let job = format!(
        "
apiVersion: batch/v1
kind: Job
metadata: {{name: buyer, namespace: shop}}
spec:
  backoffLimit: 0
  template:
    metadata: {{labels: {{app: buyer}}, annotations: {{{annotations}}}}}
    spec:
      restartPolicy: Never
      containers:
      - {{name: buyer, image: 'app:local', command: [wget, -q, -O, '-', 'http://front/callers']}}"
    );
    mesh.kubectl(&["-n", "shop", "delete", "job", "buyer", "--ignore-not-found"])?;
    mesh.apply(&job)?;
    mesh.kubectl(&["-n", "shop", "wait", "--for=condition=Complete", "job/buyer", "--timeout=150s"])?;
    let log = mesh.kubectl(&["-n", "shop", "logs", "job/buyer", "-c", "buyer"])?;
    ensure!(log.contains("front v1 (called by spiffe://cluster.local/ns/shop/sa/default)"), "{log}");
    Ok(())
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn a_namespace_without_label_is_left_alone() {
    in_turn(|mesh| {
        let namespace = Namespace::new(mesh, "plain", "")?;
        mesh.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: plain, namespace: {}}}, spec: {{containers: [{{name: app, image: 'app:local', args: [plain, v1]}}]}}}}",
            namespace.name
        ))?;
        let pod = mesh.get(&["pod", "plain", "-n", namespace.name])?;
        ensure!(pod["spec"]["initContainers"].is_null(), "{}", pod["spec"]);
        Ok(())
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn our_own_agent_runs_the_envoy_of_a_pod_that_asks_for_it() {
    in_turn(|mesh| {
        let shop = Shop::open(mesh)?;
        mesh.apply(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart-agent, namespace: shop}
spec:
  selector: {matchLabels: {app: cart, version: agent}}
  template:
    metadata:
      labels: {app: cart, version: agent}
      annotations: {inject.istio.io/templates: 'sidecar,meltemi-agent'}
    spec:
      serviceAccountName: cart
      containers:
      - name: app
        image: app:local
        args: [cart, agent, --next, 'stock:80']
        readinessProbe: {httpGet: {path: /health, port: 8080}, periodSeconds: 1}
        livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}",
        )?;
        mesh.rolled_out("shop", "cart-agent")?;
        let pod = mesh.pods("shop", "version=agent")?.into_iter().next().context("its pod")?;
        let app = named(&pod["spec"]["containers"], "app").context("the app")?;
        ensure!(app["readinessProbe"]["httpGet"]["path"] == "/app-health/app/readyz", "{}", app["readinessProbe"]);
        ensure!(app["livenessProbe"]["httpGet"]["path"] == "/app-health/app/livez", "{}", app["livenessProbe"]);
        let name = |account: &str| format!("spiffe://cluster.local/ns/shop/sa/{account}");
        let chain = format!("cart agent (called by {}) -> stock v1 (called by {})", name("front"), name("cart"));
        let answered = mesh.until("an answer of cart with our agent", |_| {
            Ok(shop.ask("/callers").is_ok_and(|answer| answer.contains(&chain)))
        });
        mesh.kubectl(&["-n", "shop", "delete", "deployment", "cart-agent"])?;
        answered?;
        job_ends(mesh, "inject.istio.io/templates: 'sidecar,meltemi-agent'")?;
        mesh.until("its pod to go", |mesh| Ok(mesh.pods("shop", "version=agent")?.is_empty()))
    });
}
