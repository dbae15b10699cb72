//! A gateway that the injector completes, behind a load balancer's address.

use anyhow::{Context, ensure};

use crate::mesh::in_turn;
use crate::shop::{CHAIN, Shop};

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn image_auto_becomes_the_proxys_image_and_is_reached_from_outside() {
    in_turn(|mesh| {
        let shop = Shop::open(mesh)?;
        let pods = mesh.pods("shop", "istio=ingress")?;
        let gateway = pods.first().context("a pod of the gateway")?;
        let containers = gateway["spec"]["containers"].as_array().context("containers")?;
        ensure!(containers.len() == 1 && containers[0]["image"] == "docker.io/library/proxyv2:local", "{containers:?}");
        // It must pull: the node's own registry has it.
        ensure!(containers[0]["imagePullPolicy"] == "Always", "{containers:?}");
        ensure!(shop.ask("/")? == CHAIN, "{:?}", shop.ask("/"));
        Ok(())
    });
}
