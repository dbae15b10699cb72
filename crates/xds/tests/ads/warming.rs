//! A proxy that gets a cluster waits for its load assignment, even if it holds an equal one.

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
        proxy.ask(TypeUrl::Cluster, &[]).await;
        proxy.take().await;
        proxy.ask(TypeUrl::Endpoints, &["a", "b"]).await;
        assert_eq!(proxy.take().await, "EDS a=1 b=1");
        proxy.quiet().await;
        harness.mesh.set("CDS a=2 passthrough=2");
        assert_eq!(proxy.take().await.kind, TypeUrl::Cluster);
        assert_eq!(proxy.take().await, "EDS a=1", "and only that");
        proxy.quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn clusters_asked_for_after_assignments_bring_them_again() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, EDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.ask(TypeUrl::Endpoints, &["a"]).await;
        proxy.take().await;
        proxy.ask(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.take().await, "CDS a=1");
        assert_eq!(proxy.take().await, "EDS a=1");
        proxy.quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outstanding_assignment_is_followed_by_the_warming_one() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, EDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.ask(TypeUrl::Endpoints, &["a"]).await;
        let early = proxy.got().await;
        proxy.ask(TypeUrl::Cluster, &[]).await;
        proxy.take().await;
        proxy.quiet().await;
        proxy.ack(&early).await;
        assert_eq!(proxy.take().await, "EDS a=1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_cluster_brings_nothing() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, EDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.ask(TypeUrl::Cluster, &[]).await;
        proxy.take().await;
        proxy.ask(TypeUrl::Endpoints, &["a", "b"]).await;
        proxy.take().await;
        harness.mesh.set("CDS -a");
        proxy.take().await;
        proxy.quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_proxy_gets_the_assignments_of_clusters_that_changed() {
    let harness = Harness::new("CDS a=2 b=1, EDS a=1 b=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    let held = |a: &str| [("a".to_owned(), a.to_owned()), ("b".to_owned(), "v1".to_owned())].into();
    proxy.delta(DeltaDiscoveryRequest { initial_resource_versions: held("v1"), ..delta(TypeUrl::Cluster) }).await;
    assert_eq!(proxy.take().await, "CDS a=2");
    let subscribe = vec!["a".into(), "b".into()];
    proxy
        .delta(DeltaDiscoveryRequest {
            initial_resource_versions: held("v1"),
            resource_names_subscribe: subscribe,
            ..delta(TypeUrl::Endpoints)
        })
        .await;
    assert_eq!(proxy.take().await, "EDS a=1");
    proxy.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_asks_again_after_clusters_is_answered_once() {
    let harness = Harness::new("CDS a=1, EDS a=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    proxy.ask(TypeUrl::Endpoints, &["a"]).await;
    proxy.take().await;
    proxy.ask(TypeUrl::Cluster, &[]).await;
    proxy.take().await;
    let warmed = proxy.take().await;
    let again =
        DiscoveryRequest { resource_names: vec!["a".into()], response_nonce: warmed.nonce, ..sotw(TypeUrl::Endpoints) };
    proxy.sotw(again.clone()).await;
    let answer = proxy.take().await;
    assert_eq!(answer, "EDS a=1");
    proxy.sotw(DiscoveryRequest { response_nonce: answer.nonce, ..again }).await;
    proxy.quiet().await;
}
