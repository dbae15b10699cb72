//! Rules of the state-of-the-world variant only.

use xds::{TypeUrl, Variant};

use crate::{
    harness::Harness,
    proxy::{Proxy, sotw},
};

async fn list(proxy: &mut Proxy, kind: TypeUrl, names: &str, nonce: &str) {
    let mut request = sotw(kind);
    request.resource_names = names.split_whitespace().map(String::from).collect();
    request.response_nonce = nonce.into();
    proxy.sotw(request).await;
}

/// Requests with the newest nonce, each with the response it gets; `-`: none.
async fn check(resources: &str, kind: TypeUrl, steps: &[(&str, &str)]) {
    let harness = Harness::new(resources);
    let mut proxy = harness.proxy(Variant::Sotw).await;
    let mut nonce = String::new();
    for (names, want) in steps {
        list(&mut proxy, kind, names, &nonce).await;
        if *want == "-" {
            proxy.expect_silence().await;
        } else {
            let got = proxy.response().await;
            assert_eq!(got, *want, "after {names:?} of {steps:?}");
            nonce = got.nonce;
            list(&mut proxy, kind, names, &nonce).await;
        }
    }
    proxy.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_a_wildcard_until_names_were_sent() {
    let steps = [("", "CDS a=1 b=1"), ("* a", "CDS a=1 b=1"), ("a", "-"), ("", "-"), ("b", "CDS b=1")];
    check("CDS a=1 b=1", TypeUrl::Cluster, &steps).await;
    check("CDS a=1 b=1", TypeUrl::Cluster, &[("a", "CDS a=1"), ("*", "CDS a=1 b=1"), ("", "-")]).await;
}

#[tokio::test(start_paused = true)]
async fn clusters_and_listeners_are_always_complete() {
    check("LDS a=1 b=1", TypeUrl::Listener, &[("a", "LDS a=1"), ("a b", "LDS a=1 b=1"), ("a b x", "LDS a=1 b=1")])
        .await;
    check("LDS a=1", TypeUrl::Listener, &[("x", "LDS")]).await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_of_a_type_without_wildcard_unsubscribes() {
    let steps = [("", "-"), ("a", "EDS a=1"), ("", "-"), ("a", "EDS a=1"), ("a b", "EDS b=1"), ("b", "-")];
    check("EDS a=1 b=1", TypeUrl::Endpoints, &steps).await;
}

#[tokio::test(start_paused = true)]
async fn after_unsubscribing_nothing_is_pushed() {
    let harness = Harness::new("RDS a=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    list(&mut proxy, TypeUrl::Route, "a", "").await;
    let first = proxy.ack_next().await;
    list(&mut proxy, TypeUrl::Route, "", &first.nonce).await;
    harness.mesh.set("RDS a=2");
    proxy.expect_silence().await;
    assert_eq!(harness.watched(TypeUrl::Route), None);
    list(&mut proxy, TypeUrl::Route, "a", &first.nonce).await;
    assert_eq!(proxy.ack_next().await, "RDS a=2", "an old nonce and no watch: from the start");
}

#[tokio::test(start_paused = true)]
async fn unsubscribing_keeps_the_outstanding_response() {
    let harness = Harness::new("RDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    list(&mut proxy, TypeUrl::Route, "a", "").await;
    let first = proxy.response().await;
    list(&mut proxy, TypeUrl::Route, "", "").await;
    list(&mut proxy, TypeUrl::Route, "b", "").await;
    proxy.expect_silence().await;
    list(&mut proxy, TypeUrl::Route, "b", &first.nonce).await;
    assert_eq!(proxy.ack_next().await, "RDS b=1");
}

#[tokio::test(start_paused = true)]
async fn a_second_request_before_the_first_response_adds_names() {
    let harness = Harness::new("EDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    list(&mut proxy, TypeUrl::Endpoints, "a", "").await;
    let first = proxy.response().await;
    // Sent before the proxy read the response.
    list(&mut proxy, TypeUrl::Endpoints, "a b", "").await;
    proxy.expect_silence().await;
    list(&mut proxy, TypeUrl::Endpoints, "a b", &first.nonce).await;
    assert_eq!(proxy.response().await, "EDS b=1");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_nonce_starts_again() {
    let harness = Harness::new("EDS a=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    list(&mut proxy, TypeUrl::Endpoints, "a", "").await;
    proxy.ack_next().await;
    list(&mut proxy, TypeUrl::Endpoints, "a", "").await;
    assert_eq!(proxy.ack_next().await, "EDS a=1");
    proxy.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_of_a_subscribed_name_sends_nothing() {
    let harness = Harness::new("SDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    list(&mut proxy, TypeUrl::Secret, "a b", "").await;
    assert_eq!(proxy.response().await, "SDS a=1 b=1");
    list(&mut proxy, TypeUrl::Secret, "a b", "").await;
    harness.mesh.set("SDS -a");
    proxy.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn the_removal_of_the_last_cluster_sends_an_empty_response() {
    let harness = Harness::new("CDS a=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy.ack_next().await;
    harness.mesh.set("CDS -a");
    assert_eq!(proxy.ack_next().await, "CDS");
}

#[tokio::test(start_paused = true)]
async fn a_proxyless_client_gets_all_its_names() {
    let harness = Harness::new("EDS a=1 b=1");
    harness.mesh.set_proxyless();
    let mut proxy = harness.proxy(Variant::Sotw).await;
    proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
    proxy.ack_next().await;
    proxy.subscribe(TypeUrl::Endpoints, &["b"]).await;
    assert_eq!(proxy.ack_next().await, "EDS a=1 b=1");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_behind_the_history_gets_everything() {
    let harness = Harness::new("CDS a=1 b=1, EDS a=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    let first = proxy.response().await;
    proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
    let second = proxy.response().await;
    harness.mesh.set("CDS -b, EDS a=2");
    harness.mesh.truncate_history();
    proxy.expect_silence().await;
    proxy.ack(&first).await;
    assert_eq!(proxy.ack_next().await, "CDS a=1");
    proxy.ack(&second).await;
    assert_eq!(proxy.ack_next().await, "EDS a=2");
    proxy.expect_silence().await;
}
