//! `meltemi plan --envoy`: what a real Envoy says to a plan, of a folder and of a running server.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::ads::AdsClient;
use testkit::wait::DEADLINE;
use testkit::{environment, skip};
use wire::envoy::config::core::v3::{Extension, Node};

use crate::run::{Ran, SHOP, folder, path, run};
use crate::serve::{Server, node};

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// Envoy reads the script when it loads the listener.
const LUA: &str = r#"
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: lua, namespace: shop}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match:
      context: SIDECAR_OUTBOUND
      listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: lua
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code: {inline_string: "function envoy_on_request(handle) SCRIPT end"}
"#;

/// Envoy knows no such operator. The rule is innocent.
const ROUTE: &str = r#"
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cart, namespace: shop}
spec: {hosts: [cart], http: [{headers: {request: {set: {x-caller: "%NOPE%"}}}, route: [{destination: {host: cart}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec: {host: cart, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}
"#;

fn stock_node() -> Node {
    let extensions = vec![Extension { name: "envoy.filters.http.router".to_owned(), ..Extension::default() }];
    Node { extensions, ..node() }
}

fn planned(change: &str, more: &[&str]) -> Option<Ran> {
    let Some(envoy) = environment::envoy() else {
        skip("predictions of a real Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
        return None;
    };
    let dir = folder(&[("change.yaml", change)]);
    let file = format!("{}/change.yaml", path(&dir));
    let envoy = envoy.to_str().expect("a path").to_owned();
    Some(run(&[&["plan", "-f", &file, "--envoy", &envoy], more].concat()))
}

#[test]
fn a_filter_that_envoy_rejects_is_predicted_with_the_object() {
    let mesh = folder(&[("shop.yaml", SHOP)]);
    let Some(ran) = planned(&LUA.replace("SCRIPT", "oops("), &[path(&mesh)]) else { return };
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for part in [" would reject lds ", "  script load error: ", "  from EnvoyFilter shop/lua configPatches[0]\n"] {
        assert!(ran.stdout.contains(part), "{part} is not in {}", ran.stdout);
    }
    assert!(ran.stderr.contains("cart-1.shop, 1 of 1 groups of proxies\n"), "{ran:?}");
}

#[test]
fn what_envoy_accepts_ends_with_0() {
    let mesh = folder(&[("shop.yaml", SHOP)]);
    let Some(ran) = planned(&LUA.replace("SCRIPT", ""), &[path(&mesh)]) else { return };
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains(" accepts what changes for 1 group of proxies\n"), "{ran:?}");
}

/// Of two objects, only the one whose change is rejected is named.
#[test]
fn routes_are_judged_where_listeners_name_them() {
    let mesh = folder(&[("shop.yaml", SHOP)]);
    let Some(ran) = planned(ROUTE, &[path(&mesh), "-o", "json"]) else { return };
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let rejected = &report["validation"]["rejected"][0];
    assert_eq!((ran.code, &rejected["resources"][0]["type"]), (Some(1), &"rds".into()), "{report:#}");
    assert_eq!(rejected["objects"], serde_json::json!(["VirtualService shop/cart"]), "{report:#}");
}

#[test]
fn what_is_rejected_already_is_no_prediction() {
    let mesh = folder(&[("shop.yaml", SHOP), ("lua.yaml", &LUA.replace("SCRIPT", "oops("))]);
    let Some(ran) = planned(ROUTE, &[path(&mesh)]) else { return };
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let expected =
        "not known for cart-1.shop and its group: this Envoy rejects what the proxy has now, too: script load error";
    assert!(ran.stdout.contains(expected), "{ran:?}");
}

#[test]
fn envoy_is_started_as_often_as_allowed() {
    let mesh = folder(&[("shop.yaml", SHOP)]);
    let Some(ran) = planned(LUA, &[path(&mesh), "--validations", "1"]) else { return };
    assert!(ran.stdout.contains("the limit of --validations is reached\n") && ran.code == Some(0), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_predictions_are_judged_here() {
    let mesh = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start(&mesh, &[]);
    let mut proxy = AdsClient::new(server.port("--grpcAddr").parse().expect("an address"), stock_node());
    proxy.ask(LISTENER, &BTreeSet::new(), DEADLINE).await.expect("listeners");
    let url = format!("http://{}", server.port("--monitoringAddr"));
    let Some(ran) = planned(&LUA.replace("SCRIPT", "oops("), &["--server", &url]) else { return };
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("  from EnvoyFilter shop/lua configPatches[0]\n"), "{ran:?}");
    let Some(ran) = planned(&LUA.replace("SCRIPT", ""), &["--server", &url]) else { return };
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
