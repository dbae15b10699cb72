//! Cluster warming: a proxy that is sent a cluster waits for its load assignment, even if it holds an equal one.

use wire::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use xds::{TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy::{delta, sotw},
};

#[tokio::test(start_paused = true)]
async fn the_assignment_of_a_changed_cluster_follows_it() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1 passthrough=1, EDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        proxy.subscribe(TypeUrl::Endpoints, &["a", "b"]).await;
        assert_eq!(proxy.ack_next().await, "EDS a=1 b=1");
        proxy.expect_silence().await;
        harness.mesh.set("CDS a=2 passthrough=2");
        assert_eq!(proxy.ack_next().await.kind, TypeUrl::Cluster);
        assert_eq!(proxy.ack_next().await, "EDS a=1", "and only that");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn clusters_requested_after_assignments_resend_them() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, EDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
        proxy.ack_next().await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1");
        assert_eq!(proxy.ack_next().await, "EDS a=1");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outstanding_assignment_is_followed_by_one_for_warming() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, EDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
        let early = proxy.response().await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        proxy.expect_silence().await;
        proxy.ack(&early).await;
        assert_eq!(proxy.ack_next().await, "EDS a=1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_cluster_resends_no_assignment() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, EDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        proxy.subscribe(TypeUrl::Endpoints, &["a", "b"]).await;
        proxy.ack_next().await;
        harness.mesh.set("CDS -a");
        proxy.ack_next().await;
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_proxy_gets_the_assignments_of_clusters_that_changed() {
    let harness = Harness::new("CDS a=2 b=1, EDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    let versions = |a: &str| [("a".to_owned(), a.to_owned()), ("b".to_owned(), "v1".to_owned())].into();
    proxy.delta(DeltaDiscoveryRequest { initial_resource_versions: versions("v1"), ..delta(TypeUrl::Cluster) }).await;
    assert_eq!(proxy.ack_next().await, "CDS a=2");
    let subscribe = vec!["a".into(), "b".into()];
    proxy
        .delta(DeltaDiscoveryRequest {
            initial_resource_versions: versions("v1"),
            resource_names_subscribe: subscribe,
            ..delta(TypeUrl::Endpoints)
        })
        .await;
    assert_eq!(proxy.ack_next().await, "EDS a=1");
    proxy.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_after_clusters_is_answered_once() {
    let harness = Harness::new("CDS a=1, EDS a=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
    proxy.ack_next().await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy.ack_next().await;
    let warmed = proxy.ack_next().await;
    let again =
        DiscoveryRequest { resource_names: vec!["a".into()], response_nonce: warmed.nonce, ..sotw(TypeUrl::Endpoints) };
    proxy.sotw(again.clone()).await;
    let answer = proxy.ack_next().await;
    assert_eq!(answer, "EDS a=1");
    proxy.sotw(DiscoveryRequest { response_nonce: answer.nonce, ..again }).await;
    proxy.expect_silence().await;
}
