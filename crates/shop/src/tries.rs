//! The things to try: printed for a person, or done here (`--check`) with the same effect.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::app::CALLERS;
use crate::http;
use crate::open_shop::{OpenShop, output};
use crate::pods::{CART_V1, CART_V2, FRONT, PODS, Pod, STOCK};
use crate::step::step;
use crate::traffic::Traffic;

/// Requests that show a canary's share: with 20 % of them asked for, less than 10 % or more than 30 % is no accident.
const CANARY: usize = 300;

pub(crate) fn print(mesh: &OpenShop) {
    let (live, later, logs) = (mesh.live.display(), mesh.later.display(), mesh.logs());
    let (meltemi, front, cart, proxy) = (mesh.meltemi.display(), FRONT.ingress(), CART_V1.ingress(), FRONT.proxy());
    println!(
        "
The shop is open: front calls cart, cart calls stock, and stock calls a supplier outside the mesh. Each of the three has an
Envoy, started by an agent that got it a certificate; between them there is mutual TLS only. Meltemi serves them from
  {live}
Logs: {}

1. Send a request through all proxies:
     curl http://{front}/

2. Who calls whom, by the certificates? And what does cart say to somebody without one? (It closes the connection.)
     curl http://{front}{CALLERS}
     curl http://{cart}/

3. Move traffic by editing files. A second version of cart appears and takes half; as a canary a fifth; then all, and the
   first one becomes unready:
     cp {later}/cart-v2.yaml {live}/
     cp {later}/cart-versions.yaml {live}/
     cp {later}/cart-canary.yaml {live}/
     sed -i 's/weight: 80/weight: 0/; s/weight: 20/weight: 100/' {live}/cart-canary.yaml
     sed -i 's/\"True\"/\"False\"/' {live}/cart-v1.yaml
   and after each:
     for i in $(seq 20); do curl -s http://{front}/; done | sort | uniq -c

4. Who is connected, and has everybody the current configuration?
     {meltemi} proxies --server http://{}

5. What does the front's proxy get, and would get if you changed a file? (No server needed.)
     {meltemi} render {live} --proxy {proxy} --type eds --derive-endpoints

6. Look at all of it: pushes as you edit files, who is behind, why a proxy has what it has, what an edit would do.
     http://{}/console/

Ctrl-C stops everything and removes the folder.",
        logs.display(),
        mesh.monitoring,
        mesh.monitoring,
    );
}

pub(crate) fn run(mesh: &mut OpenShop) -> Result<()> {
    step("1 a request through all proxies", || request(mesh))?;
    step("2 mutual TLS by name; plaintext is refused", || mutual_tls(mesh))?;
    let traffic = Traffic::start(FRONT.ingress(), "front");
    let appeared = second_version(mesh)?;
    let share = canary(mesh)?;
    let left = unready_pod(mesh)?;
    let sent = traffic.end()?;
    println!("{sent} requests during the edits, none failed");
    step("4 meltemi proxies: everybody is synced", || proxies(mesh))?;
    step("5 meltemi render: the same without a server", || render(mesh))?;
    println!("a canary of 20 % got {share} of {CANARY} requests");
    println!(
        "from the edit of a file to the change in Envoy: {} ms (a pod appears), {} ms (a pod becomes unready)",
        appeared.as_millis(),
        left.as_millis()
    );
    Ok(())
}

fn request(mesh: &mut OpenShop) -> Result<()> {
    let answer = mesh.until("an answer of the whole chain", || http::get(FRONT.ingress(), "front", "/"))?;
    ensure!(answer == "front v1 -> cart v1 -> stock v1 -> supplier outside\n", "the shop answered {answer:?}");
    Ok(())
}

/// Each knows its caller by name, and cart and stock speak with nobody who has none.
fn mutual_tls(mesh: &mut OpenShop) -> Result<()> {
    let answer = mesh.until("the names of the callers", || http::get(FRONT.ingress(), "front", CALLERS))?;
    let name = |account: &str| format!("spiffe://cluster.local/ns/shop/sa/{account}");
    let (front, cart) = (name("front"), name("cart"));
    let expected = format!(
        "front v1 (called by plaintext) -> cart v1 (called by {front}) -> stock v1 (called by {cart}) -> \
         supplier outside (called by plaintext)\n"
    );
    ensure!(answer == expected, "expected {expected:?}, the shop answered {answer:?}");
    for pod in [CART_V1, STOCK] {
        ensure!(http::hangs_up(pod.ingress())?, "{} serves plaintext under STRICT", pod.proxy());
    }
    ensure!(!http::hangs_up(FRONT.ingress())?, "front takes plaintext, and hung up");
    Ok(())
}

fn second_version(mesh: &mut OpenShop) -> Result<Duration> {
    let text = fs::read_to_string(mesh.later.join("cart-v2.yaml"))?;
    let took = timed("3 a second version appears", || {
        let start = Instant::now();
        replace(&mesh.live.join("cart-v2.yaml"), &text)?;
        mesh.until("front's Envoy to know cart v2", || knows(CART_V2, true))?;
        Ok(start.elapsed())
    })?;
    mesh.until("both versions of cart to answer", || match versions_of_cart(10)? {
        seen if seen.len() == 2 => Ok(()),
        seen => bail!("only {seen:?} answered"),
    })?;
    Ok(took)
}

/// How many of the requests went to the second version while it was to have a fifth. It has all of them in the end.
fn canary(mesh: &mut OpenShop) -> Result<usize> {
    let text = fs::read_to_string(mesh.later.join("cart-canary.yaml"))?;
    let file = mesh.live.join("cart-canary.yaml");
    let mut share = 0;
    step("3 a canary takes a fifth, then all", || {
        fs::copy(mesh.later.join("cart-versions.yaml"), mesh.live.join("cart-versions.yaml"))?;
        mesh.until("front's Envoy to know the versions", || knows_version("v2"))?;
        replace(&file, &text)?;
        mesh.until("front's Envoy to route by version", || routes_to("v2", true))?;
        share = answers_of_cart(CANARY)?.iter().filter(|version| *version == "v2").count();
        ensure!((CANARY / 10..=CANARY * 3 / 10).contains(&share), "a fifth of {CANARY} requests for v2, got {share}");
        let all = text.replace("weight: 80", "weight: 0").replace("weight: 20", "weight: 100");
        replace(&file, &all)?;
        mesh.until("front's Envoy to send all to v2", || routes_to("v1", false))?;
        let seen = versions_of_cart(20)?;
        ensure!(seen == BTreeSet::from(["v2".to_owned()]), "with all weight on v2, {seen:?} answered");
        Ok(())
    })?;
    Ok(share)
}

/// That front's Envoy holds endpoints of this version of cart.
fn knows_version(version: &str) -> Result<()> {
    let clusters = http::get(FRONT.admin(), "admin", "/clusters")?;
    let warm = clusters
        .lines()
        .any(|line| line.contains(&format!("|{version}|cart.shop")) && line.contains("::health_flags::"));
    ensure!(warm, "front's Envoy: no endpoint of cart {version}");
    Ok(())
}

/// Whether front's Envoy routes to this version of cart by name, as its admin page tells.
fn routes_to(version: &str, expected: bool) -> Result<()> {
    let routes = http::get(FRONT.admin(), "admin", "/config_dump?resource=dynamic_route_configs")?;
    let cluster = format!("|{version}|cart.shop");
    ensure!(routes.contains(&cluster) == expected, "front's Envoy: a route to {cluster}: {}", !expected);
    Ok(())
}

fn unready_pod(mesh: &mut OpenShop) -> Result<Duration> {
    let file = mesh.live.join("cart-v1.yaml");
    let text = fs::read_to_string(&file)?;
    let unready = text.replace("{type: Ready, status: \"True\"}", "{type: Ready, status: \"False\"}");
    ensure!(text != unready, "{} has no Ready condition to change", file.display());
    let took = timed("3 a pod becomes unready", || {
        let start = Instant::now();
        replace(&file, &unready)?;
        mesh.until("front's Envoy to forget cart v1", || knows(CART_V1, false))?;
        Ok(start.elapsed())
    })?;
    let seen = versions_of_cart(20)?;
    ensure!(seen == BTreeSet::from(["v2".to_owned()]), "after cart v1 became unready, {seen:?} answered");
    Ok(took)
}

fn timed(what: &str, work: impl FnOnce() -> Result<Duration>) -> Result<Duration> {
    let mut took = Duration::ZERO;
    step(what, || {
        took = work()?;
        Ok(())
    })?;
    Ok(took)
}

/// Written aside and renamed, as editors do.
fn replace(file: &Path, text: &str) -> Result<()> {
    let aside = file.with_extension("new");
    fs::write(&aside, text)?;
    fs::rename(&aside, file).with_context(|| format!("replace {}", file.display()))
}

/// Whether front's Envoy sends to this pod, as its admin page tells.
fn knows(pod: Pod, expected: bool) -> Result<()> {
    let clusters = http::get(FRONT.admin(), "admin", "/clusters")?;
    let endpoint = format!("::{}::health_flags::", pod.ingress());
    ensure!(clusters.contains(&endpoint) == expected, "front's Envoy: {} known: {}", pod.proxy(), !expected);
    Ok(())
}

fn versions_of_cart(requests: usize) -> Result<BTreeSet<String>> {
    Ok(answers_of_cart(requests)?.into_iter().collect())
}

fn answers_of_cart(requests: usize) -> Result<Vec<String>> {
    let ask = || {
        let answer = http::get(FRONT.ingress(), "front", "/")?;
        let version = answer.split(" -> ").find_map(|hop| hop.strip_prefix("cart "));
        Ok(version.with_context(|| format!("no cart in {answer:?}"))?.to_owned())
    };
    (0..requests).map(|_| ask()).collect()
}

fn proxies(mesh: &mut OpenShop) -> Result<()> {
    let (meltemi, server) = (mesh.meltemi.clone(), format!("http://{}", mesh.monitoring));
    mesh.until("all proxies to be synced", || {
        let text = output(Command::new(&meltemi).args(["proxies", "--output", "json", "--server", &server]))?;
        all_synced(&serde_json::from_str(&text).context("read the list of proxies")?)
    })
}

fn all_synced(list: &serde_json::Value) -> Result<()> {
    let list = list.as_array().context("the list of proxies is not a list")?;
    for pod in PODS {
        let entry = list.iter().find(|p| p["proxy"] == pod.proxy().as_str());
        let types =
            entry.and_then(|p| p["types"].as_object()).with_context(|| format!("{} is not listed", pod.proxy()))?;
        for kind in ["CDS", "LDS"] {
            ensure!(types.contains_key(kind), "{} did not ask for {kind}", pod.proxy());
        }
        let behind = types.iter().find(|(_, status)| status["state"] != "SYNCED");
        if let Some((kind, status)) = behind {
            bail!("{} {kind}: {} {}", pod.proxy(), status["state"], status["reason"]);
        }
    }
    Ok(())
}

fn render(mesh: &OpenShop) -> Result<()> {
    let mut command = Command::new(&mesh.meltemi);
    command.arg("render").arg(&mesh.live).args(["--proxy", &FRONT.proxy(), "--type", "eds", "--derive-endpoints"]);
    let text = output(&mut command)?;
    for (pod, expected) in [(CART_V1, false), (CART_V2, true)] {
        let address = pod.ingress().ip().to_string();
        ensure!(text.contains(&address) == expected, "expected {address} in the answer: {expected}; it is\n{text}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_proxy_behind_is_noticed() {
        let list = |state: &str| {
            let types = json!({"CDS": {"state": "SYNCED"}, "LDS": {"state": state, "reason": "bad"}});
            json!(PODS.map(|pod| json!({"proxy": pod.proxy(), "types": types})))
        };
        assert!(all_synced(&list("SYNCED")).is_ok());
        assert!(all_synced(&list("ERROR")).unwrap_err().to_string().contains("front-v1.shop LDS: \"ERROR\" \"bad\""));
        assert!(all_synced(&json!([])).is_err());
    }
}
