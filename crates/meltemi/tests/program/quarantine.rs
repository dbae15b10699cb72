//! Content that proxies reject is held back from them, and from nobody else: rejections by test clients, and by real Envoys.

use std::collections::BTreeSet;
use std::time::Duration;

use prost::Message;
use serde_json::json;
use testkit::ads::AdsClient;
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::parity::CaseProxy;
use testkit::sds::SdsStub;
use testkit::test_ca::TestCa;
use testkit::wait::{DEADLINE, eventually};
use testkit::{environment, skip};
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind};

use crate::insight::{PageWorkspace, serve};
use crate::run::{SHOP, folder, run};
use crate::serve::{Server, put};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const CART: &str = "outbound|80||cart.shop.svc.cluster.local";
const REASON: &str = "Error adding/updating cluster(s) outbound|80||cart.shop.svc.cluster.local: not today";

/// A rule that makes another cluster of the cart, with this timeout.
fn rule(seconds: u8) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: cart, namespace: shop}}, spec: \
         {{host: cart.shop.svc.cluster.local, trafficPolicy: {{connectionPool: {{tcp: {{connectTimeout: {seconds}s}}}}}}}}}}"
    )
}

/// A sidecar of a class that all of them share.
fn node(name: &str, version: &str) -> Node {
    let kind = Some(Kind::StringValue(version.to_owned()));
    let metadata = Struct { fields: [("ISTIO_VERSION".to_owned(), Value { kind })].into() };
    let id = format!("sidecar~10.9.9.9~{name}.shop~shop.svc.cluster.local");
    Node { id, metadata: Some(metadata.encode_to_vec().into()), ..Node::default() }
}

async fn connect(server: &Server, name: &str, version: &str) -> AdsClient {
    let mut client = AdsClient::new(server.port("--grpcAddr").parse().expect("an address"), node(name, version));
    client.ask(CLUSTER, &BTreeSet::new(), DEADLINE).await.expect("clusters");
    client
}

/// The timeout of the cart's cluster that a client has.
fn timeout(client: &AdsClient) -> i64 {
    let cluster = client.resources(CLUSTER).remove(CART).expect("the cart's cluster");
    Cluster::decode(cluster.value).expect("a cluster").connect_timeout.expect("it has one").seconds
}

async fn until_timeout(client: &mut AdsClient, seconds: i64) {
    let what = format!("a timeout of {seconds} s");
    let reached = eventually(&what, async || {
        client.count_responses(Duration::from_millis(50)).await?;
        Ok(timeout(client) == seconds)
    });
    let reached = reached.await;
    reached.unwrap_or_else(|error| panic!("{error:#}; it is {}", timeout(client)));
}

fn nacks(server: &Server) -> String {
    run(&["nacks", "--server", &format!("http://{}", server.port("--monitoringAddr"))]).stdout
}

async fn until_nacks(server: &Server, holds: impl Fn(&str) -> bool) {
    let mut shown = String::new();
    let reached = eventually("other rejections", async || {
        shown = nacks(server);
        Ok(holds(&shown))
    });
    reached.await.unwrap_or_else(|error| panic!("{error:#}:\n{shown}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_of_the_version_that_refuses_keep_the_last_good_one() {
    let dir = folder(&[("shop.yaml", SHOP), ("rule.yaml", &rule(1))]);
    let server = Server::start(&dir, &[]);
    let (mut old, mut new) = (connect(&server, "old", "1.30.0").await, connect(&server, "new", "1.30.1").await);
    put(&dir, "rule.yaml", &rule(2));
    new.reject(CLUSTER, REASON, DEADLINE).await.expect("a response to reject");
    until_timeout(&mut old, 2).await;
    until_nacks(&server, |shown| {
        shown.contains("from all of its class with version 1.30.1: outbound|80||cart.shop.svc.cluster.local; sent instead: the last good version")
            && shown.contains("DestinationRule shop/cart")
    })
    .await;
    assert_eq!(server.metric("meltemi_nack_holds_total{type=\"cds\"}").as_deref(), Some("1"));
    assert_eq!(server.metric("meltemi_held_resources").as_deref(), Some("1"));
    // Who comes later gets what its version takes.
    assert_eq!(timeout(&connect(&server, "late-old", "1.30.0").await), 2);
    assert_eq!(timeout(&connect(&server, "late-new", "1.30.1").await), 1);
    // Everything else flows, also to the proxy that refuses.
    put(
        &dir,
        "more.yaml",
        &SHOP.replace("cart", "bank").replace("10.96.0.1", "10.96.0.2").replace("10.0.0.7", "10.0.0.8"),
    );
    let bank = CART.replace("cart", "bank");
    let reached = eventually("the bank", async || {
        new.count_responses(Duration::from_millis(50)).await?;
        Ok(new.resources(CLUSTER).contains_key(&bank))
    });
    reached.await.expect("other changes flow");
    assert_eq!(timeout(&new), 1);
    // Other content ends the hold.
    put(&dir, "rule.yaml", &rule(3));
    until_timeout(&mut new, 3).await;
    until_timeout(&mut old, 3).await;
    until_nacks(&server, |shown| shown.contains("no proxy rejects anything")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_refuses_alone_keeps_nothing_from_others() {
    let dir = folder(&[("shop.yaml", SHOP), ("rule.yaml", &rule(1))]);
    let server = Server::start(&dir, &[]);
    let (mut good, mut bad) = (connect(&server, "good", "1.30.0").await, connect(&server, "bad", "1.30.0").await);
    put(&dir, "rule.yaml", &rule(2));
    bad.reject(CLUSTER, REASON, DEADLINE).await.expect("a response to reject");
    until_timeout(&mut good, 2).await;
    until_nacks(&server, |shown| shown.contains("from bad.shop: outbound|80||cart.shop")).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!nacks(&server).contains("its class"), "{}", nacks(&server));
    assert_eq!(timeout(&connect(&server, "late", "1.30.0").await), 2);
    assert_eq!(timeout(&connect(&server, "bad", "1.30.0").await), 1, "it reconnects");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_back_is_tried_again_after_a_while() {
    let dir = folder(&[("shop.yaml", SHOP), ("rule.yaml", &rule(1))]);
    let server = Server::start_with(&dir, &[], &[("MELTEMI_QUARANTINE", "2s")]);
    let mut proxy = connect(&server, "one", "1.30.0").await;
    put(&dir, "rule.yaml", &rule(2));
    proxy.reject(CLUSTER, REASON, DEADLINE).await.expect("a response to reject");
    until_nacks(&server, |shown| shown.contains("the last good version")).await;
    until_timeout(&mut proxy, 2).await;
    until_nacks(&server, |shown| shown.contains("no proxy rejects anything")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_turned_off() {
    let dir = folder(&[("shop.yaml", SHOP), ("rule.yaml", &rule(1))]);
    let server = Server::start_with(&dir, &[], &[("MELTEMI_QUARANTINE", "off")]);
    let mut proxy = connect(&server, "one", "1.30.0").await;
    put(&dir, "rule.yaml", &rule(2));
    proxy.reject(CLUSTER, REASON, DEADLINE).await.expect("a response to reject");
    until_nacks(&server, |shown| shown.contains("CDS rejected by one.shop")).await;
    assert!(!nacks(&server).contains("held back"), "{}", nacks(&server));
    assert_eq!(timeout(&connect(&server, "late", "1.30.0").await), 2);
}

const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// Sends requests for one path of a host to that host.
fn routed(name: &str, path: &str) -> String {
    let host = format!("{name}.shop.svc.cluster.local");
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: shop}}, spec: \
         {{hosts: [{host}], http: [{{match: [{{uri: {{exact: {path}}}}}], route: [{{destination: {{host: {host}}}}}]}}]}}}}"
    )
}

/// Until the routes of port 80 have some paths and lack others.
async fn until_routes(client: &mut AdsClient, with: &[&str], without: &[&str]) {
    let mut routes = String::new();
    let reached = eventually("other routes", async || {
        client.count_responses(Duration::from_millis(50)).await?;
        let routes80 = client.resources(ROUTE).remove("80").expect("the routes of port 80");
        routes = String::from_utf8_lossy(&routes80.value).into_owned();
        Ok(with.iter().all(|path| routes.contains(path)) && !without.iter().any(|path| routes.contains(path)))
    });
    reached.await.unwrap_or_else(|error| panic!("{error:#}: with {with:?}, without {without:?}:\n{routes}"));
}

/// The hosts of a port share a route configuration: the last good version of it would keep every other VirtualService as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_service_that_is_refused_keeps_no_other_from_the_same_routes() {
    let bank = SHOP.replace("cart", "bank").replace("10.96.0.1", "10.96.0.2").replace("10.0.0.7", "10.0.0.8");
    let objects = [("cart.yaml", SHOP), ("bank.yaml", &bank)];
    let dir = folder(&[objects[0], objects[1], ("rules.yaml", &routed("cart", "/cart-good"))]);
    let server = Server::start(&dir, &[]);
    let mut client = connect(&server, "one", "1.30.0").await;
    client.ask(ROUTE, &["80".to_owned()].into(), DEADLINE).await.expect("routes");
    until_routes(&mut client, &["/cart-good"], &[]).await;
    let refused = "80: '/cart-bad' is no path of mine";
    // With an edit that is at fault comes one that is not.
    put(&dir, "rules.yaml", &[routed("cart", "/cart-bad"), routed("bank", "/bank-one")].join("\n---\n"));
    client.reject(ROUTE, refused, DEADLINE).await.expect("a response to reject");
    until_routes(&mut client, &["/cart-good", "/bank-one"], &["/cart-bad"]).await;
    let repaired = "sent instead: what it is with VirtualService shop/cart as it was before";
    until_nacks(&server, |shown| shown.contains(repaired) && shown.contains("its class")).await;
    // The fault is still there when the other one is edited again.
    put(&dir, "rules.yaml", &[routed("cart", "/cart-bad"), routed("bank", "/bank-two")].join("\n---\n"));
    client.reject(ROUTE, refused, DEADLINE).await.expect("a response to reject");
    until_routes(&mut client, &["/cart-good", "/bank-two"], &["/cart-bad", "/bank-one"]).await;
    let mut late = connect(&server, "late", "1.30.0").await;
    late.ask(ROUTE, &["80".to_owned()].into(), DEADLINE).await.expect("routes");
    until_routes(&mut late, &["/cart-good", "/bank-two"], &["/cart-bad"]).await;
    put(&dir, "rules.yaml", &[routed("cart", "/cart-new"), routed("bank", "/bank-two")].join("\n---\n"));
    for client in [&mut client, &mut late] {
        until_routes(client, &["/cart-new", "/bank-two"], &["/cart-good"]).await;
    }
    until_nacks(&server, |shown| shown.contains("no proxy rejects anything")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_virtual_service_that_is_refused_is_left_out_of_routes_that_others_change() {
    let dir = folder(&[("cart.yaml", SHOP), ("rules.yaml", &routed("cart", "/cart-one"))]);
    let server = Server::start(&dir, &[]);
    let mut client = connect(&server, "one", "1.30.0").await;
    client.ask(ROUTE, &["80".to_owned()].into(), DEADLINE).await.expect("routes");
    let bank = SHOP.replace("cart", "bank").replace("10.96.0.1", "10.96.0.2").replace("10.0.0.7", "10.0.0.8");
    let more = [bank, routed("bank", "/bank-bad"), routed("cart", "/cart-two")].join("\n---\n");
    put(&dir, "rules.yaml", &more);
    client.reject(ROUTE, "80: '/bank-bad' is no path of mine", DEADLINE).await.expect("a response to reject");
    until_routes(&mut client, &["/cart-two", "bank.shop.svc"], &["/bank-bad"]).await;
    until_nacks(&server, |shown| shown.contains("what it is without VirtualService shop/bank")).await;
}

const POISON: &str = r#"{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: lua, namespace: shop},
    spec: {workloadSelector: {labels: {app: stock}}, configPatches: [{applyTo: HTTP_FILTER,
    match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}},
    patch: {operation: INSERT_BEFORE, value: {name: lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua,
    default_source_code: {inline_string: "function envoy_on_request(handle) handle:oops("}}}}}]}}"#;

const HEADERS: &str = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: supplier, namespace: shop}, spec: \
     {hosts: [supplier.example.com], http: [{headers: {request: {set: {x-caller: '%NOPE%'}}}, route: [{destination: {host: supplier.example.com}}]}]}}";

/// The certificates of all proxies.
fn secrets(workspace: &PageWorkspace) -> SdsStub {
    let authority = TestCa::new().expect("an authority");
    SdsStub::start(&workspace.file("sds"), &authority, "spiffe://cluster.local/ns/shop/sa/stock").expect("a socket")
}

/// An Envoy of stock, whose proxies share their address.
fn stock(workspace: &PageWorkspace, server: &Server, name: &str) -> Envoy {
    let proxy = CaseProxy::new(&json!({
        "name": name, "namespace": "shop", "ip": "127.0.10.3", "labels": { "app": "stock", "version": "v1" },
        "metadata": { "INTERCEPTION_MODE": "NONE" },
    }));
    let ads = ServerAddress::Tcp(server.port("--grpcAddr").parse().expect("an address"));
    let bootstrap = Bootstrap { proxy: &proxy.expect("a node"), ads, sds: workspace.file("sds") };
    Envoy::start(&environment::envoy().expect("it was found"), &[], &bootstrap).expect("Envoy starts")
}

/// Until the configuration in use holds a text, or no longer.
async fn until_has(envoy: &Envoy, text: &str, has: bool) {
    let mut dump = String::new();
    let reached = eventually(text, async || {
        dump = active(envoy).await?;
        Ok(dump.contains(text) == has)
    });
    reached.await.unwrap_or_else(|error| panic!("{error:#}\n{}\n{dump}", envoy.log()));
}

/// Its configuration, without what it rejected.
async fn active(envoy: &Envoy) -> anyhow::Result<String> {
    let mut dump = envoy.config_dump().await?;
    for section in dump["configs"].as_array_mut().into_iter().flatten() {
        for listener in section["dynamic_listeners"].as_array_mut().into_iter().flatten() {
            listener["error_state"].take();
        }
        for route in section["dynamic_route_configs"].as_array_mut().into_iter().flatten() {
            route["error_state"].take();
        }
    }
    Ok(dump.to_string())
}

/// A route that only proxies with a higher limit of regular expressions than Envoy's own take.
const REGEX: &str = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: supplier, namespace: shop}, spec: \
     {hosts: [supplier.example.com], http: [{match: [{uri: {regex: '/[a-z]{900}REST'}}], route: [{destination: {host: supplier.example.com}}]}]}}";

/// A stock Envoy of this version; `limit`: what it takes of regular expressions.
fn of_version(workspace: &PageWorkspace, server: &Server, version: &str, limit: u32) -> Envoy {
    let proxy = CaseProxy::new(&json!({
        "name": format!("stock-{version}"), "namespace": "shop", "ip": "127.0.10.3", "labels": { "app": "stock", "version": "v1" },
        "metadata": { "INTERCEPTION_MODE": "NONE", "ISTIO_VERSION": version },
    }));
    let ads = ServerAddress::Tcp(server.port("--grpcAddr").parse().expect("an address"));
    let bootstrap = Bootstrap { proxy: &proxy.expect("a node"), ads, sds: workspace.file("sds") };
    let layer = json!({ "name": "limits", "static_layer": { "re2.max_program_size.error_level": limit } });
    let more = json!({ "layered_runtime": { "layers": [layer] } });
    let script = format!("exec \"$0\" \"$@\" --config-yaml '{more}'");
    Envoy::start(&environment::envoy().expect("it was found"), &["sh", "-c", &script], &bootstrap)
        .expect("Envoy starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_of_the_version_that_refuses_go_on_beside_those_that_accept() {
    if environment::envoy().is_none() {
        return skip("rejections by a live Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    let workspace = PageWorkspace::new();
    let _secrets = secrets(&workspace);
    let (server, _) = serve(&workspace);
    let (mut old, mut new) =
        (of_version(&workspace, &server, "1.31.0", 100), of_version(&workspace, &server, "1.32.0", 30_000));
    for envoy in [&mut old, &mut new] {
        envoy.wait_live().await.expect("it is live");
    }
    put(workspace.mesh(), "regex.yaml", REGEX);
    until_has(&new, "{900}REST", true).await;
    until_nacks(&server, |shown| {
        shown.contains("from all of its class with version 1.31.0: 7083; sent instead: the last good version")
            && shown.contains("VirtualService shop/supplier")
            && shown.contains("spec.http[0].match[0].uri")
            && !shown.contains("with version 1.32.0")
    })
    .await;
    let (mut later_old, mut later_new) =
        (of_version(&workspace, &server, "1.31.0", 100), of_version(&workspace, &server, "1.32.0", 30_000));
    for envoy in [&mut later_old, &mut later_new] {
        envoy.wait_live().await.expect("the later one is live");
    }
    slower(&workspace, 19);
    for (envoy, accepts) in [(&old, false), (&later_old, false), (&new, true), (&later_new, true)] {
        until_has(envoy, "19s", true).await;
        until_has(envoy, "\"dynamic_route_configs\"", true).await;
        until_has(envoy, "{900}REST", accepts).await;
    }
    put(workspace.mesh(), "regex.yaml", &REGEX.replace("{900}", "{9}"));
    for envoy in [&old, &later_old, &new, &later_new] {
        until_has(envoy, "{9}REST", true).await;
    }
    until_nacks(&server, |shown| shown.contains("no proxy rejects anything")).await;
}

/// A change of a cluster that every proxy of stock has.
fn slower(workspace: &PageWorkspace, seconds: u8) {
    let rule = format!(
        "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: supplier, namespace: shop}}, spec: \
         {{host: supplier.example.com, trafficPolicy: {{connectionPool: {{tcp: {{connectTimeout: {seconds}s}}}}}}}}}}"
    );
    put(workspace.mesh(), "slower.yaml", &rule);
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_go_on_beside_a_filter_that_they_refuse() {
    if environment::envoy().is_none() {
        return skip("rejections by a live Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    let workspace = PageWorkspace::new();
    let _secrets = secrets(&workspace);
    let (server, _) = serve(&workspace);
    let mut first = stock(&workspace, &server, "stock-v1");
    first.wait_live().await.expect("the first is live");
    put(workspace.mesh(), "lua.yaml", POISON);
    until_nacks(&server, |shown| {
        let held = "from all of its class with version 1.32.0: 127.0.10.3_7080; sent instead: the last good version";
        shown.contains(held) && shown.contains("EnvoyFilter shop/lua") && shown.contains("patch.value.typed_config")
    })
    .await;
    slower(&workspace, 17);
    until_has(&first, "17s", true).await;
    // One that comes later is never sent what the first refused.
    let mut later = stock(&workspace, &server, "stock-v1");
    later.wait_live().await.expect("the later one is live");
    until_has(&later, "127.0.10.3_7080", true).await;
    assert_eq!(server.metric("pilot_total_xds_rejects{type=\"lds\"}").as_deref(), Some("1"));
    put(workspace.mesh(), "lua.yaml", &POISON.replace("handle:oops(", "end"));
    for envoy in [&first, &later] {
        until_has(envoy, "function envoy_on_request(handle) end", true).await;
    }
    until_nacks(&server, |shown| shown.contains("no proxy rejects anything")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_go_on_without_a_virtual_service_that_was_never_good() {
    if environment::envoy().is_none() {
        return skip("rejections by a live Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    let workspace = PageWorkspace::new();
    put(workspace.mesh(), "headers.yaml", HEADERS);
    put(workspace.mesh(), "lua.yaml", POISON);
    let _secrets = secrets(&workspace);
    let (server, url) = serve(&workspace);
    let first = stock(&workspace, &server, "stock-v1");
    until_nacks(&server, |shown| {
        shown.contains("sent instead: what it is without VirtualService shop/supplier")
            && shown.contains("sent instead: what it is without EnvoyFilter shop/lua")
            && shown.contains("spec.http[0].headers.request.set")
    })
    .await;
    // It routes to the supplier, and listens, although both came with what it refuses.
    until_has(&first, "\"dynamic_route_configs\"", true).await;
    until_has(&first, "127.0.10.3_7080", true).await;
    let explained = run(&["explain", "object", "VirtualService", "shop/supplier", "--server", &url]);
    assert!(explained.code == Some(1) && explained.stdout.contains("stock-v1.shop  REJECTED"), "{explained:?}");
    let explained = run(&["explain", "proxy", "stock-v1.shop", "--server", &url]);
    assert!(explained.stdout.contains("Held back: the newest LDS/127.0.10.3_7080"), "{explained:?}");
    let waited = run(&["wait", "EnvoyFilter", "shop/lua", "--server", &url]);
    assert!(waited.code == Some(1) && waited.stdout.contains("stock-v1.shop: rejected:"), "{waited:?}");
    let mut later = stock(&workspace, &server, "stock-later");
    later.wait_live().await.expect("the later one is live");
    slower(&workspace, 18);
    for envoy in [&first, &later] {
        until_has(envoy, "18s", true).await;
    }
    put(workspace.mesh(), "headers.yaml", &HEADERS.replace("%NOPE%", "yes"));
    put(workspace.mesh(), "lua.yaml", &POISON.replace("handle:oops(", "end"));
    for envoy in [&first, &later] {
        until_has(envoy, "x-caller", true).await;
        until_has(envoy, "function envoy_on_request(handle) end", true).await;
    }
    until_nacks(&server, |shown| shown.contains("no proxy rejects anything")).await;
}
