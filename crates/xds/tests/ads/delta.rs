//! Rules of the delta variant only.

use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use xds::{SyncStatus, TypeUrl, Variant};

use crate::{
    harness::Harness,
    proxy::{Proxy, delta},
};

/// `+name` subscribes, `-name` unsubscribes, `name=version` is an initial version.
fn request(kind: TypeUrl, words: &str) -> DeltaDiscoveryRequest {
    let mut request = delta(kind);
    for word in words.split_whitespace() {
        if let Some(name) = word.strip_prefix('+') {
            request.resource_names_subscribe.push(name.into());
        } else if let Some(name) = word.strip_prefix('-') {
            request.resource_names_unsubscribe.push(name.into());
        } else {
            let (name, version) = word.split_once('=').expect("name=version");
            request.initial_resource_versions.insert(name.into(), version.into());
        }
    }
    request
}

/// Requests without nonces, each with the response it gets; `-`: none.
async fn check(resources: &str, kind: TypeUrl, steps: &[(&str, &str)]) -> (Harness, Proxy) {
    let harness = Harness::new(resources);
    let mut proxy = harness.proxy(Variant::Delta).await;
    for (words, want) in steps {
        proxy.delta(request(kind, words)).await;
        if *want == "-" {
            proxy.expect_silence().await;
        } else {
            assert_eq!(proxy.ack_next().await, *want, "after {words:?} of {steps:?}");
        }
    }
    proxy.expect_silence().await;
    (harness, proxy)
}

#[tokio::test(start_paused = true)]
async fn equal_versions_are_not_sent_again() {
    check("CDS a=1 b=2", TypeUrl::Cluster, &[("a=v1 b=v1", "CDS b=2")]).await;
    check("EDS a=1 b=2 c=1", TypeUrl::Endpoints, &[("+a +b +c a=v1 b=v1", "EDS b=2 c=1")]).await;
    check("EDS a=1", TypeUrl::Endpoints, &[("+a a=v1", "-")]).await;
}

#[tokio::test(start_paused = true)]
async fn initial_versions_of_missing_resources_are_removed() {
    check("CDS a=1", TypeUrl::Cluster, &[("a=v1 old=v7", "CDS -old")]).await;
    // A secret may be withheld, and Envoy ignores such a removal.
    check("SDS a=1", TypeUrl::Secret, &[("+a +old a=v1 old=v7", "-")]).await;
    check("EDS a=1", TypeUrl::Endpoints, &[("+a +old a=v1 old=v7", "EDS old=empty")]).await;
    check("ECDS a=1", TypeUrl::Extension, &[("+a +old a=v1 old=v7", "-")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_wildcard_gets_an_empty_response_and_then_changes() {
    let (harness, mut proxy) = check("CDS a=1 b=1", TypeUrl::Cluster, &[("a=v1 b=v1", "CDS")]).await;
    assert_eq!(harness.watched(TypeUrl::Cluster).expect("watched").status(), SyncStatus::Synced);
    harness.mesh.set("CDS b=2");
    assert_eq!(proxy.ack_next().await, "CDS b=2");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_name_gets_its_next_change() {
    let (harness, mut proxy) = check("RDS a=1", TypeUrl::Route, &[("+a a=v1", "-")]).await;
    assert_eq!(harness.watched(TypeUrl::Route).expect("watched").status(), SyncStatus::Synced);
    harness.mesh.set("RDS a=2");
    assert_eq!(proxy.ack_next().await, "RDS a=2");
}

#[tokio::test(start_paused = true)]
async fn initial_versions_count_only_in_the_first_request() {
    check("CDS a=1", TypeUrl::Cluster, &[("", "CDS a=1"), ("a=v0 x=v1", "-")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_nack_of_a_resumption_forgets_initial_versions() {
    let harness = Harness::new("CDS a=1 b=bad");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.delta(request(TypeUrl::Cluster, "a=v1 b=v0 old=v0")).await;
    let bad = proxy.response().await;
    assert_eq!(bad, "CDS -old b=bad");
    proxy.nack(&bad, "no").await;
    harness.mesh.set("CDS b=2");
    assert_eq!(proxy.ack_next().await, "CDS -old a=1 b=2", "it may have taken a part");
}

#[tokio::test(start_paused = true)]
async fn a_legacy_wildcard_stays_when_names_are_added() {
    let steps = [("", "CDS a=1 b=1"), ("+a", "CDS a=1"), ("-*", "-"), ("-a", "-"), ("", "-")];
    let (harness, mut proxy) = check("CDS a=1 b=1", TypeUrl::Cluster, &steps).await;
    harness.mesh.set("CDS a=2 b=2");
    proxy.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn on_demand_subscriptions_start_empty() {
    let steps = [("+* -*", "-"), ("+a", "WDS a=1"), ("+a", "WDS a=1"), ("+x", "WDS -x"), ("-a", "-")];
    let (harness, mut proxy) = check("WDS a=1 b=1", TypeUrl::Address, &steps).await;
    harness.mesh.set("WDS a=2 b=2");
    proxy.expect_silence().await;
    harness.mesh.set("WDS x=1");
    assert_eq!(proxy.ack_next().await, "WDS x=1");
}

#[tokio::test(start_paused = true)]
async fn a_name_unsubscribed_under_a_wildcard_is_answered() {
    check("CDS a=1", TypeUrl::Cluster, &[("+* +a +x", "CDS -x a=1"), ("-a", "CDS a=1"), ("-x", "CDS -x")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_type_without_wildcard_and_names_is_not_answered() {
    let (harness, mut proxy) = check("EDS a=1", TypeUrl::Endpoints, &[("", "-"), ("-unknown", "-")]).await;
    harness.mesh.set("EDS a=2");
    proxy.expect_silence().await;
    proxy.delta(request(TypeUrl::Endpoints, "+a")).await;
    assert_eq!(proxy.ack_next().await, "EDS a=2");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_nonce_is_no_ack() {
    let harness = Harness::new("RDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.delta(request(TypeUrl::Route, "+a")).await;
    let first = proxy.response().await;
    proxy.delta(request(TypeUrl::Route, "+b")).await;
    proxy.expect_silence().await;
    assert_eq!(harness.watched(TypeUrl::Route).expect("watched").acked, None);
    proxy.ack(&first).await;
    assert_eq!(proxy.ack_next().await, "RDS b=1");
}

#[tokio::test(start_paused = true)]
async fn a_name_unsubscribed_before_its_response_and_subscribed_again_is_pushed() {
    let harness = Harness::new("EDS a=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    for words in ["+a", "-a", "+a"] {
        proxy.delta(request(TypeUrl::Endpoints, words)).await;
    }
    assert_eq!(proxy.ack_next().await, "EDS a=1");
    proxy.expect_silence().await;
    harness.mesh.set("EDS a=2");
    assert_eq!(proxy.ack_next().await, "EDS a=2");
}

#[tokio::test(start_paused = true)]
async fn an_ack_may_change_the_subscription() {
    let harness = Harness::new("RDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.delta(request(TypeUrl::Route, "+a")).await;
    let first = proxy.response().await;
    proxy.delta(DeltaDiscoveryRequest { response_nonce: first.nonce, ..request(TypeUrl::Route, "+b -a") }).await;
    assert_eq!(proxy.ack_next().await, "RDS b=1");
    harness.mesh.set("RDS a=2");
    proxy.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_counts_even_with_a_stale_nonce() {
    let harness = Harness::new("RDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.delta(request(TypeUrl::Route, "+a")).await;
    proxy.ack_next().await;
    proxy.delta(DeltaDiscoveryRequest { response_nonce: "old".into(), ..request(TypeUrl::Route, "+b") }).await;
    assert_eq!(proxy.ack_next().await, "RDS b=1");
    assert_eq!(harness.metric("pilot_xds_expired_nonce{type=\"rds\"}"), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn extensions_are_never_removed() {
    let (harness, mut proxy) = check("ECDS a=1", TypeUrl::Extension, &[("+a +x", "ECDS a=1")]).await;
    harness.mesh.set("ECDS -a");
    proxy.expect_silence().await;
    harness.mesh.set("ECDS a=2 x=1");
    assert_eq!(proxy.ack_next().await, "ECDS a=2 x=1");
}

#[tokio::test(start_paused = true)]
async fn a_nacked_removal_is_sent_again_with_the_next_change() {
    let (harness, mut proxy) = check("CDS a=1 b=1", TypeUrl::Cluster, &[("", "CDS a=1 b=1")]).await;
    harness.mesh.set("CDS -b a=bad");
    let bad = proxy.response().await;
    assert_eq!(bad, "CDS -b a=bad");
    proxy.nack(&bad, "no").await;
    proxy.expect_silence().await;
    harness.mesh.set("CDS a=2");
    assert_eq!(proxy.ack_next().await, "CDS -b a=2");
}

#[tokio::test(start_paused = true)]
async fn a_wildcard_behind_the_history_has_to_reconnect() {
    let harness = Harness::new("CDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.delta(request(TypeUrl::Cluster, "")).await;
    let first = proxy.response().await;
    harness.mesh.set("CDS -b");
    harness.mesh.truncate_history();
    proxy.ack(&first).await;
    let (code, text) = proxy.status().await;
    assert_eq!(code, 14);
    assert!(text.contains("reconnect"), "{text}");

    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.delta(request(TypeUrl::Cluster, "a=v1 b=v1")).await;
    assert_eq!(proxy.ack_next().await, "CDS -b");
}

#[tokio::test(start_paused = true)]
async fn names_behind_the_history_are_sent_again() {
    let harness = Harness::new("EDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.delta(request(TypeUrl::Endpoints, "+a +b")).await;
    let first = proxy.response().await;
    harness.mesh.set("EDS -b");
    harness.mesh.truncate_history();
    proxy.ack(&first).await;
    assert_eq!(proxy.ack_next().await, "EDS a=1 b=empty");
}
