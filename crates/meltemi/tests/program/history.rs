//! `meltemi history`, `diff` and `blame`, and `--at` of `explain proxy` and `render`, of a server with a proxy whose configuration changes.

use std::collections::BTreeSet;

use serde_json::Value;
use tempfile::TempDir;
use testkit::ads::AdsClient;
use testkit::wait::{DEADLINE, eventually_blocking};

use crate::run::{Ran, SHOP, folder, path, run};
use crate::serve::{Server, node};

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

fn route(seconds: u32) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: cart, namespace: shop}}
spec: {{hosts: [cart], http: [{{timeout: {seconds}s, route: [{{destination: {{host: cart}}}}]}}]}}
"
    )
}

struct Recorded {
    mesh: TempDir,
    _server: Server,
    url: String,
    _proxy: AdsClient,
}

impl Recorded {
    async fn start(env: &[(&str, &str)]) -> Recorded {
        let mesh = folder(&[("shop.yaml", SHOP)]);
        let server = Server::start_with(&mesh, &[], env);
        let mut proxy = AdsClient::new(server.port("--grpcAddr").parse().expect("an address"), node());
        proxy.ask(LISTENER, &BTreeSet::new(), DEADLINE).await.expect("listeners");
        let url = format!("http://{}", server.port("--monitoringAddr"));
        Recorded { mesh, _server: server, url, _proxy: proxy }
    }

    fn ask(&self, words: &[&str]) -> Ran {
        run(&[words, &["--server", &self.url]].concat())
    }

    /// The pushes that changed the proxy, the newest last.
    fn pushes(&self) -> Vec<Value> {
        let ran = self.ask(&["history", "cart-1.shop", "-o", "json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(report["connected"], true);
        report["pushes"].as_array().expect("a list").clone()
    }

    /// Writes the route. Returns the push of it.
    fn set_timeout(&self, seconds: u32) -> u64 {
        let known = self.pushes().len();
        std::fs::write(format!("{}/route.yaml", path(&self.mesh)), route(seconds)).expect("a file");
        eventually_blocking("another push", || Ok(self.pushes().len() > known)).expect("in time");
        self.pushes().last().expect("a push")["push"].as_u64().expect("a number")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_listed_compared_and_blamed() {
    let mesh = Recorded::start(&[]).await;
    let (first, second) = (mesh.set_timeout(7), mesh.set_timeout(9));
    let pushes = mesh.pushes();
    assert_eq!(
        (&pushes[0]["cause"], &pushes[0]["objects"][0]),
        (&"VirtualService shop/cart".into(), &pushes[0]["cause"])
    );
    assert_eq!((&pushes[0]["resources"][0]["type"], &pushes[0]["resources"][0]["name"]), (&"rds".into(), &"80".into()));
    let all = mesh.ask(&["history"]);
    assert!(all.code == Some(0) && all.stdout.contains("VirtualService shop/cart"), "{all:?}");

    let (from, to) = (first.to_string(), second.to_string());
    let differs = mesh.ask(&["diff", "cart-1.shop", "--from", &from, "--to", &to, "--check"]);
    assert_eq!(differs.code, Some(1), "{differs:?}");
    for part in [
        &format!("1 resource differs for cart-1.shop between push {first} and push {second}\n"),
        &format!("  push {second}  "),
        "  ~ rds 80\n",
        "route.timeout: \"7s\" -> \"9s\"",
    ] {
        assert!(differs.stdout.contains(part), "{part} is not in {}", differs.stdout);
    }
    let same = mesh.ask(&["diff", "cart-1.shop", "--from", &to, "--check"]);
    assert!(same.code == Some(0) && same.stdout.starts_with("nothing differs for cart-1.shop"), "{same:?}");
    let since = mesh.ask(&["diff", "cart-1.shop", "--from", "0s", "-o", "json"]);
    let report: Value = serde_json::from_str(&since.stdout).expect("JSON");
    assert_eq!((&report["from"], &report["resources"]), (&second.into(), &Value::Array(Vec::new())), "{report:#}");

    let blamed = mesh.ask(&["blame", "cart-1.shop", "rds/80"]);
    assert_eq!(blamed.code, Some(0), "{blamed:?}");
    let brought = |text: &str| {
        let line =
            blamed.stdout.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {blamed:?}"));
        line.split_once('|').expect("a line of the resource").0.trim().to_owned()
    };
    assert_eq!((brought("\"timeout\": \"9s\""), brought("virtual-service/cart")), (to.clone(), from.clone()));
    assert_eq!(brought("\"name\": \"cart.shop.svc.cluster.local:80\""), "-");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_shown_as_it_was() {
    let mesh = Recorded::start(&[]).await;
    let (first, second) = (mesh.set_timeout(7).to_string(), mesh.set_timeout(9).to_string());
    let rendered = |at: &str| mesh.ask(&["render", "--proxy", "cart-1.shop", "--type", "rds", "--at", at]);
    let (before, after) = (rendered(&first), rendered(&second));
    assert!(before.code == Some(0) && before.stdout.contains("timeout: \"7s\""), "{before:?}");
    assert!(after.stdout.contains("timeout: \"9s\"") && !after.stdout.contains("CDS:"), "{after:?}");
    let live = run(&["render", path(&mesh.mesh), "--proxy", "cart-1.shop", "--type", "rds"]);
    assert_eq!(rendered("0s").stdout, live.stdout);

    let explained = mesh.ask(&["explain", "proxy", "cart-1.shop", "--at", &first]);
    assert!(explained.code == Some(0) && explained.stdout.contains("VirtualService shop/cart"), "{explained:?}");
    let resource = mesh.ask(&["explain", "proxy", "cart-1.shop", "rds/80", "--at", &first]);
    for part in [
        &format!("RDS 80 of cart-1.shop after push {first}, "),
        &format!("  brought by push {first}  "),
        &format!("  replaced by push {second}  "),
        "\n  VirtualService shop/cart\n",
    ] {
        assert!(resource.stdout.contains(part), "{part} is not in {resource:?}");
    }
    for (words, why) in [
        (&["explain", "proxy", "cart-1.shop", "--at", "999999"][..], "there was no push 999999 yet"),
        (&["explain", "proxy", "cart-1.shop", "--at", "noon"], "nor a duration before now"),
        (&["explain", "proxy", "cart-1.shop", "--at", "2001-01-01T00:00:00Z"], "the history begins after push"),
        (&["explain", "proxy", "none.shop", "--at", "1"], "none.shop is not in the history"),
        (&["blame", "cart-1.shop", "rds/81"], "has and had no resource rds/81"),
        (&["diff", "cart-1.shop", "--from", "999999"], "there was no push"),
    ] {
        let ran = mesh.ask(words);
        assert!(ran.code == Some(2) && ran.stdout.is_empty() && ran.stderr.contains(why), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_can_be_turned_off() {
    let mesh = Recorded::start(&[("MELTEMI_HISTORY_BYTES", "0")]).await;
    let ran = mesh.ask(&["history"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("MELTEMI_HISTORY_BYTES is 0"), "{ran:?}");
}
