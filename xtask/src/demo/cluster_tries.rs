//! The things to try with the shop on a cluster: printed for a person, or done here (`--check`) with the same effect.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use super::kubernetes::{HOST, ShopCluster};
use crate::{progress, project};
use shop::app::CALLERS;
use shop::traffic::Traffic;
use shop::{http, output};

/// Requests that show a canary's share: with 20 % of them asked for, less than 10 % or more than 30 % is no accident.
const CANARY: usize = 300;
const LATER: &str = "examples/shop-kubernetes-later";

pub(super) fn print(shop: &ShopCluster) {
    let (kubeconfig, address) = (shop.kubeconfig.display(), shop.ingress.ip());
    println!(
        "
The shop is open on a real cluster: a gateway, front, cart and stock, each pod with a sidecar that Meltemi injected.

  export KUBECONFIG={kubeconfig}      (and `cargo xtask cluster kubectl` in the place of kubectl, if there is none)

1. Send a request through all proxies:
     curl -H 'Host: {HOST}' http://{address}/

2. Who calls whom, by the certificates?
     curl -H 'Host: {HOST}' http://{address}{CALLERS}

3. A second version of cart, and a canary that sends it a fifth of the requests:
     kubectl apply -f {LATER}/cart-v2.yaml
     kubectl apply -f {LATER}/canary.yaml
     for i in $(seq 20); do curl -s -H 'Host: {HOST}' http://{address}/; done | sort | uniq -c

4. Who is connected, and has everybody the current configuration?
     kubectl -n istio-system exec deployment/istiod -- meltemi proxies

5. Replace the control plane while requests flow:
     kubectl -n istio-system rollout restart deployment/istiod

Ctrl-C removes everything."
    );
}

pub(super) fn run(shop: &ShopCluster) -> Result<()> {
    progress::own_step("1 a request through all proxies", || {
        let answer = shop.ask("/")?;
        ensure!(answer == "front v1 -> cart v1 -> stock v1\n", "the shop answered {answer:?}");
        Ok(())
    })?;
    progress::own_step("2 mutual TLS by name; plaintext is refused", || mutual_tls(shop))?;
    let traffic = Traffic::start(shop.ingress, HOST);
    let share = canary(shop)?;
    progress::own_step("4 meltemi proxies: all are listed", || proxies(shop))?;
    progress::own_step("5 another control plane under traffic", || restart(shop))?;
    let sent = traffic.end()?;
    println!("a canary of 20 % got {share} of {CANARY} requests");
    println!("{sent} requests during the changes, none failed");
    Ok(())
}

fn mutual_tls(shop: &ShopCluster) -> Result<()> {
    let answer = shop.ask(CALLERS)?;
    let name = |account: &str| format!("spiffe://cluster.local/ns/shop/sa/{account}");
    let expected = format!(
        "front v1 (called by {}) -> cart v1 (called by {}) -> stock v1 (called by {})\n",
        name("ingress"),
        name("front"),
        name("cart")
    );
    ensure!(answer == expected, "expected {expected:?}, the shop answered {answer:?}");
    let pod = "jsonpath={.items[0].status.podIP}";
    let address = output(shop.kubectl()?.args(["-n", "shop", "get", "pods", "-l", "app=cart", "-o", pod]))?;
    let pod = SocketAddr::new(address.parse().context("read a pod's address")?, 8080);
    ensure!(http::hangs_up(pod)?, "cart serves plaintext under STRICT");
    Ok(())
}

/// How many of the requests went to the second version while it was to have a fifth.
fn canary(shop: &ShopCluster) -> Result<usize> {
    let mut share = 0;
    let later = project::root().join(LATER);
    progress::own_step("3 a second version appears", || {
        shop.apply(&later.join("cart-v2.yaml"))?;
        shop.until("cart v2 to answer", || match shop.ask("/")? {
            answer if answer.contains("cart v2") => Ok(()),
            answer => bail!("only {answer:?} answered"),
        })
    })?;
    progress::own_step("3 a canary takes a fifth", || {
        shop.apply(&later.join("canary.yaml"))?;
        shop.until("a fifth of the requests at cart v2", || {
            let answers: Result<Vec<String>> = (0..CANARY).map(|_| shop.ask("/")).collect();
            share = answers?.iter().filter(|answer| answer.contains("cart v2")).count();
            ensure!(
                (CANARY / 10..=CANARY * 3 / 10).contains(&share),
                "a fifth of {CANARY} requests for v2, got {share}"
            );
            Ok(())
        })
    })?;
    Ok(share)
}

fn proxies(shop: &ShopCluster) -> Result<()> {
    let words = ["-n", "istio-system", "exec", "deployment/istiod", "--", "meltemi", "proxies"];
    let list = output(shop.kubectl()?.args(words))?;
    ensure!(list.contains(".shop"), "no proxy of the shop is connected:\n{list}");
    Ok(())
}

fn restart(shop: &ShopCluster) -> Result<()> {
    for words in [
        ["-n", "istio-system", "rollout", "restart", "deployment/istiod"].as_slice(),
        &["-n", "istio-system", "rollout", "status", "deployment/istiod", "--timeout=3m"],
    ] {
        output(shop.kubectl()?.args(words))?;
    }
    Ok(())
}
