//! `meltemi explain`, `meltemi nacks` and `meltemi wait`: of a folder, of a server without proxies, and without a server.

use crate::run::{SHOP, folder, path, run};
use crate::serve::Server;

const ROUTE: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cart, namespace: shop}
spec: {hosts: [cart], http: [{timeout: 7s, route: [{destination: {host: cart}}]}]}
";

#[test]
fn an_object_is_found_by_its_kind_in_any_form() {
    let mesh = folder(&[("shop.yaml", SHOP), ("route.yaml", ROUTE)]);
    for kind in ["VirtualService", "virtualservice", "virtualservices"] {
        let ran = run(&["explain", "object", kind, "shop/cart", "--config", path(&mesh)]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.starts_with("VirtualService shop/cart (route.yaml:2:1)\n"), "{ran:?}");
        assert!(
            ran.stdout.contains("RDS 80  1 proxy\n") && ran.stdout.contains("\nOf 1 proxy:\n  cart-1.shop\n"),
            "{ran:?}"
        );
    }
}

#[test]
fn an_object_that_is_not_there_exits_with_2_and_says_why() {
    let mesh = folder(&[("shop.yaml", SHOP)]);
    for (kind, name, why) in [
        ("VirtualService", "shop/none", "there is no VirtualService shop/none"),
        ("Foo", "shop/cart", "\"Foo\" is not a kind that is read"),
        ("VirtualService", "cart", "write it as NAMESPACE/NAME"),
    ] {
        let ran = run(&["explain", "object", kind, name, "--config", path(&mesh)]);
        assert!(ran.code == Some(2) && ran.stdout.is_empty() && ran.stderr.contains(why), "{ran:?}");
    }
}

#[test]
fn an_invalid_object_is_explained_by_its_errors() {
    let mesh = folder(&[("shop.yaml", SHOP), ("route.yaml", &ROUTE.replace("7s", "soon"))]);
    let ran = run(&["explain", "object", "VirtualService", "shop/cart", "--config", path(&mesh)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains("  it is not in use\n") && ran.stdout.contains("  error: spec.http[0].timeout: "),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("`meltemi check` says why"), "{ran:?}");
}

#[test]
fn parts_of_a_resource_are_grouped_by_what_they_come_from() {
    let mesh = folder(&[("shop.yaml", SHOP), ("route.yaml", ROUTE)]);
    let ran = run(&["explain", "proxy", "cart-1.shop", "rds/80", "--config", path(&mesh)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stdout.matches("they come with the resource (default):\n").count(), 1, "{ran:?}");
    assert!(ran.stdout.contains("spec.http[0].timeout (route.yaml:5:"), "{ran:?}");
    for (resource, why) in [("rds/81", "has no resource rds/81"), ("rds", "is not TYPE/NAME")] {
        let ran = run(&["explain", "proxy", "cart-1.shop", resource, "--config", path(&mesh)]);
        assert!(ran.code == Some(2) && ran.stderr.contains(why), "{ran:?}");
    }
    let ran = run(&["explain", "proxy", "nobody.shop", "--config", path(&mesh)]);
    assert!(ran.code == Some(2) && ran.stderr.contains("there are cart-1.shop"), "{ran:?}");
}

/// Kubernetes gives a Service its endpoints; a folder may not have them.
#[test]
fn a_request_without_endpoints_hints_at_deriving_them() {
    let mesh = folder(&[("shop.yaml", SHOP)]);
    let request = ["explain", "request", "--from", "cart-1.shop", "--to", "cart.shop.svc.cluster.local:80"];
    let without = run(&[&request[..], &["--config", path(&mesh)]].concat());
    assert!(without.code == Some(1) && without.stdout.contains("503: no healthy endpoint of cart.shop"), "{without:?}");
    assert!(without.stderr.contains("--derive-endpoints"), "{without:?}");
    let with = run(&[&request[..], &["--config", path(&mesh), "--derive-endpoints"]].concat());
    assert!(with.code == Some(0) && with.stderr.is_empty(), "{with:?}");
}

#[test]
fn a_server_without_proxies_rejects_nothing_and_knows_its_objects() {
    let mesh = folder(&[("shop.yaml", SHOP), ("route.yaml", ROUTE)]);
    let server = Server::start(&mesh, &[]);
    let url = format!("http://{}", server.port("--monitoringAddr"));
    let ask = |words: &[&str]| run(&[words, &["--server", &url]].concat());
    let (text, json) = (ask(&["nacks"]), ask(&["nacks", "-o", "json"]));
    assert_eq!((text.code, &*text.stdout), (Some(0), "no proxy rejects anything\n"), "{text:?}");
    assert_eq!((json.code, &*json.stdout), (Some(0), "[]\n"), "{json:?}");
    let known = ask(&["explain", "object", "VirtualService", "shop/cart"]);
    assert!(
        known.code == Some(0) && known.stdout.contains("No proxy has a resource that is made from it.\n"),
        "{known:?}"
    );
    let unknown = ask(&["explain", "object", "VirtualService", "shop/none"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("at this server"), "{unknown:?}");
    let absent = ask(&["explain", "proxy", "cart-1.shop"]);
    assert!(absent.code == Some(2) && absent.stderr.contains("cart-1.shop is not connected"), "{absent:?}");
    let waited = ask(&["wait", "VirtualService", "shop/none", "--timeout", "1s"]);
    assert!(waited.code == Some(1) && waited.stdout.contains("  there is no such object\n"), "{waited:?}");
}

#[test]
fn without_a_server_each_command_exits_with_2_and_names_it() {
    for words in [
        &["nacks"][..],
        &["explain", "proxy", "cart-1.shop"],
        &["explain", "object", "VirtualService", "shop/cart"],
        &["explain", "request", "--from", "cart-1.shop", "--to", "cart:80"],
        &["wait", "VirtualService", "shop/cart"],
    ] {
        let ran = run(&[words, &["--server", "http://127.0.0.1:1"]].concat());
        assert!(ran.code == Some(2) && ran.stdout.is_empty(), "{ran:?}");
        assert!(ran.stderr.contains("cannot reach http://127.0.0.1:1; is `meltemi serve` running"), "{ran:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_not_waited_for() {
    let files = folder(&[("broken.yaml", "a: ["), ("empty.yaml", "")]);
    let wait = |name: &str| run(&["wait", "-f", &format!("{}/{name}", path(&files)), "--server", "http://127.0.0.1:1"]);
    let broken = wait("broken.yaml");
    assert!(broken.code == Some(2) && broken.stderr.contains("broken.yaml:2:1: not valid YAML"), "{broken:?}");
    let empty = wait("empty.yaml");
    assert!(empty.code == Some(2) && empty.stderr.contains("there are no Istio objects in it"), "{empty:?}");
}
