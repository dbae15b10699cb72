//! A gateway that the injector completes, behind a load balancer's address.

use anyhow::{Context, ensure};

use crate::mesh::in_turn;
use crate::shop::{CHAIN, Shop};

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn image_auto_becomes_the_proxys_image_and_is_reached_from_outside() {
    in_turn(|mesh| {
        let shop = Shop::open(mesh)?;
        let pods = mesh.pods("shop", "istio=ingress,agent!=ours")?;
        let gateway = pods.first().context("a pod of the gateway")?;
        let containers = gateway["spec"]["containers"].as_array().context("containers")?;
        ensure!(containers.len() == 1 && containers[0]["image"] == "docker.io/library/proxyv2:local", "{containers:?}");
        // It must pull: the node's own registry has it.
        ensure!(containers[0]["imagePullPolicy"] == "Always", "{containers:?}");
        ensure!(shop.ask("/")? == CHAIN, "{:?}", shop.ask("/"));
        Ok(())
    });
}

/// The gateway of the shop with another Service, whose pod runs our own agent.
const WITH_OUR_AGENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: ingress-agent, namespace: shop}
spec:
  selector: {matchLabels: {istio: ingress, agent: ours}}
  template:
    metadata:
      labels: {istio: ingress, agent: ours, sidecar.istio.io/inject: 'true'}
      annotations: {inject.istio.io/templates: 'gateway,meltemi-agent'}
    spec:
      serviceAccountName: ingress
      containers:
      - {name: istio-proxy, image: auto, resources: {requests: {cpu: 10m, memory: 64Mi}}}
---
apiVersion: v1
kind: Service
metadata: {name: ingress-agent, namespace: shop}
spec:
  type: LoadBalancer
  selector: {agent: ours}
  ports:
  - {name: http, port: 80, targetPort: 8080}";

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn a_gateway_may_run_our_own_agent() {
    in_turn(|mesh| {
        Shop::open(mesh)?;
        mesh.apply(WITH_OUR_AGENT)?;
        mesh.rolled_out("shop", "ingress-agent")?;
        let asked = Shop::behind(mesh, "ingress-agent").map(|_| ());
        mesh.kubectl(&["-n", "shop", "delete", "deployment,service", "ingress-agent"])?;
        asked
    });
}
