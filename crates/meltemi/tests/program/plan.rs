//! `meltemi plan`: of a running server and of a folder.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::ads::AdsClient;
use testkit::wait::DEADLINE;

use crate::run::{SHOP, folder, path, run};
use crate::serve::{Server, node};

const ROUTE: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cart, namespace: shop}
spec: {hosts: [cart], http: [{timeout: 7s, route: [{destination: {host: cart}}]}]}
";

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

fn file_of(dir: &tempfile::TempDir) -> String {
    format!("{}/change.yaml", path(dir))
}

#[test]
fn a_folder_is_planned_for_its_pods() {
    let (mesh, change) = (folder(&[("shop.yaml", SHOP)]), folder(&[("change.yaml", ROUTE)]));
    let ran = run(&["plan", path(&mesh), "-f", &file_of(&change)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in [
        "VirtualService shop/cart: created\n",
        "1 of 1 proxies in 1 namespace change; ",
        "1 proxy of cart-1 in shop, ",
        "~ rds 80\n",
        "route.timeout: \"0s\" -> \"7s\"",
    ] {
        assert!(ran.stdout.contains(part), "{part} is not in {}", ran.stdout);
    }
    let checked = run(&["plan", path(&mesh), "-f", &file_of(&change), "--check"]);
    assert_eq!((checked.code, checked.stdout), (Some(1), ran.stdout));
}

#[test]
fn what_is_in_force_changes_nothing() {
    let mesh = folder(&[("shop.yaml", SHOP), ("change.yaml", ROUTE)]);
    let ran = run(&["plan", path(&mesh), "-f", &file_of(&mesh), "--check"]);
    let expected = "VirtualService shop/cart: unchanged\nnothing changes for the only proxy\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{ran:?}");
}

#[test]
fn an_invalid_object_changes_nothing_and_exits_with_1() {
    let mesh = folder(&[("shop.yaml", SHOP)]);
    let change = folder(&[("change.yaml", &ROUTE.replace("7s", "soon"))]);
    let ran = run(&["plan", path(&mesh), "-f", path(&change)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let place = format!("error: {}:5:", file_of(&change));
    assert!(ran.stdout.contains("VirtualService shop/cart: rejected\n") && ran.stdout.contains(&place), "{ran:?}");
    assert!(ran.stdout.ends_with("nothing changes for the only proxy\n"), "{ran:?}");
}

#[test]
fn deletions_are_planned_too() {
    let mesh = folder(&[("shop.yaml", SHOP), ("change.yaml", ROUTE)]);
    let ran = run(&["plan", path(&mesh), "-f", &file_of(&mesh), "--delete"]);
    assert!(ran.stdout.contains("VirtualService shop/cart: deleted\n"), "{ran:?}");
    assert!(ran.stdout.contains("route.timeout: \"7s\" -> \"0s\""), "{ran:?}");
}

/// The server answers for the proxies that are connected, and puts nothing in force.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_plans_for_its_proxies() {
    let (mesh, change) = (folder(&[("shop.yaml", SHOP)]), folder(&[("change.yaml", ROUTE)]));
    let server = Server::start(&mesh, &[]);
    let mut proxy = AdsClient::new(server.port("--grpcAddr").parse().expect("an address"), node());
    proxy.ask(LISTENER, &BTreeSet::new(), DEADLINE).await.expect("listeners");
    let url = format!("http://{}", server.port("--monitoringAddr"));
    let file = file_of(&change);
    let plan = || run(&["plan", "-f", &file, "-o", "json", "--server", &url]);
    let first = plan();
    assert_eq!(first.code, Some(0), "{first:?}");
    let report: Value = serde_json::from_str(&first.stdout).expect("JSON");
    assert_eq!((&report["affected"], &report["objects"][0]["effect"]), (&1.into(), &"created".into()), "{report:#}");
    assert_eq!(report["groups"][0]["workloads"][0]["names"][0], "cart-1.shop");
    assert_eq!(report["groups"][0]["resources"][0]["name"], "80");
    assert_eq!(plan().stdout, first.stdout, "the first one put nothing in force");
    assert_eq!(server.metric("pilot_virt_services").as_deref(), Some("0"));
    assert_eq!(run(&["plan", "-f", &file, "--server", "http://127.0.0.1:1"]).code, Some(2));
}
