//! Content that a proxy rejects is held back: other changes flow, and the stream is in agreement again.

use xds::{Options, SyncStatus, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy::{Proxy, Received},
};

/// A proxy that has ACKed `CDS a=1 b=1` and got `CDS a=bad`.
async fn with_bad_cluster(harness: &Harness, variant: Variant) -> (Proxy, Received) {
    let mut proxy = harness.proxy(variant).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy.ack_next().await;
    harness.mesh.set("CDS a=bad");
    let bad = proxy.response().await;
    (proxy, bad)
}

fn of(variant: Variant, sotw: &'static str, delta: &'static str) -> &'static str {
    if variant == Variant::Sotw { sotw } else { delta }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_resource_goes_back_and_other_changes_flow() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1");
        let (mut proxy, bad) = with_bad_cluster(&harness, variant).await;
        proxy.nack(&bad, "Error adding/updating cluster(s) a: no").await;
        proxy.expect_silence().await;
        harness.mesh.hold(TypeUrl::Cluster, "a", Some("1"));
        assert_eq!(proxy.ack_next().await, of(variant, "CDS a=1 b=1", "CDS a=1"));
        proxy.expect_silence().await;
        assert_eq!(harness.watched(TypeUrl::Cluster).expect("watched").status(), SyncStatus::Synced);
        harness.mesh.set("CDS b=2");
        assert_eq!(proxy.ack_next().await, of(variant, "CDS a=1 b=2", "CDS b=2"));
        harness.mesh.set("CDS a=3");
        assert_eq!(proxy.ack_next().await, of(variant, "CDS a=3 b=2", "CDS a=3"), "other content is sent");
        proxy.expect_silence().await;
        assert_eq!(harness.metric("pilot_total_xds_rejects{type=\"cds\"}"), Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn changes_between_the_rejection_and_the_hold_are_sent_with_it() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1");
        let (mut proxy, bad) = with_bad_cluster(&harness, variant).await;
        harness.mesh.set("CDS b=2");
        harness.mesh.hold(TypeUrl::Cluster, "a", Some("1"));
        proxy.nack(&bad, "a: no").await;
        assert_eq!(proxy.ack_next().await, "CDS a=1 b=2");
        proxy.expect_silence().await;
        assert_eq!(harness.watched(TypeUrl::Cluster).expect("watched").status(), SyncStatus::Synced);
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_comes_later_gets_the_last_good_one() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=bad b=1, RDS r=bad");
        harness.mesh.hold(TypeUrl::Cluster, "a", Some("1"));
        harness.mesh.hold(TypeUrl::Route, "r", Some("1"));
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1 b=1");
        proxy.subscribe(TypeUrl::Route, &["r"]).await;
        assert_eq!(proxy.ack_next().await, "RDS r=1");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_never_good_is_left_out_and_the_rest_is_sent() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=bad b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let bad = proxy.response().await;
        proxy.nack(&bad, "a: no").await;
        harness.mesh.hold(TypeUrl::Cluster, "a", None);
        assert_eq!(proxy.ack_next().await, "CDS b=1");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_lacks_only_what_is_left_out_is_in_agreement() {
    let harness = Harness::new("CDS a=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy.ack_next().await;
    harness.mesh.set("CDS b=bad");
    let bad = proxy.response().await;
    proxy.nack(&bad, "b: no").await;
    harness.mesh.hold(TypeUrl::Cluster, "b", None);
    proxy.expect_silence().await;
    let watched = harness.watched(TypeUrl::Cluster).expect("watched");
    assert_eq!((watched.status(), watched.last_error), (SyncStatus::Synced, None));
    harness.mesh.set("CDS b=2");
    assert_eq!(proxy.ack_next().await, "CDS b=2");
}

#[tokio::test(start_paused = true)]
async fn only_what_a_rejection_surely_means_is_reported() {
    let harness = Harness::new("RDS 80=1 443=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Route, &["80", "443"]).await;
    let first = proxy.response().await;
    proxy.nack(&first, "duplicate domain a:80").await;
    proxy.expect_silence().await;
    assert!(harness.mesh.rejected().is_empty(), "either may be meant");
    harness.mesh.set("RDS 80=2");
    let second = proxy.response().await;
    proxy.nack(&second, "value is required: name: \"80\"").await;
    proxy.expect_silence().await;
    harness.mesh.set("RDS 443=2");
    proxy.ack_next().await;
    harness.mesh.set("RDS 443=3");
    let only = proxy.response().await;
    proxy.nack(&only, "no").await;
    proxy.expect_silence().await;
    assert_eq!(harness.mesh.rejected(), ["RDS 80: value is required: name: \"80\"", "RDS 443: no"]);
}

/// NACKs what holds a text until there is nothing more to answer; returns the number of responses.
async fn answer_all(proxy: &mut Proxy, bad: &str) -> usize {
    let mut count = 0;
    while let Some(response) = proxy.try_response().await {
        count += 1;
        match response.text.contains(bad) {
            true => proxy.nack(&response, "duplicate domain").await,
            false => proxy.ack(&response).await,
        }
    }
    count
}

#[tokio::test(start_paused = true)]
async fn a_rejection_that_names_nothing_is_bisected() {
    let harness = Harness::with("RDS a=1 b=1 c=bad d=1 e=1", Options { bisect_nacks: true, ..Options::default() });
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Route, &["a", "b", "c", "d", "e"]).await;
    assert_eq!(answer_all(&mut proxy, "=bad").await, 5, "all; a b; c d e; c; d e");
    assert_eq!(harness.mesh.rejected(), ["RDS c: duplicate domain"]);
    harness.mesh.hold(TypeUrl::Route, "c", None);
    // What a proxy asked for by name is answered, as if it did not exist: Envoy keeps a route that is removed.
    assert_eq!(proxy.ack_next().await, "RDS -c a=1 b=1 d=1 e=1");
    proxy.expect_silence().await;
    assert_eq!(harness.watched(TypeUrl::Route).expect("watched").status(), SyncStatus::Synced);
    harness.mesh.set("RDS a=2, RDS c=2");
    assert_eq!(proxy.ack_next().await, "RDS a=2 c=2");
}

#[tokio::test(start_paused = true)]
async fn bisecting_ends_if_everything_is_rejected() {
    let harness = Harness::with("RDS a=1 b=1 c=1 d=1", Options { bisect_nacks: true, ..Options::default() });
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Route, &["a", "b", "c", "d"]).await;
    assert_eq!(answer_all(&mut proxy, "RDS").await, 7);
    assert_eq!(harness.mesh.rejected().len(), 4);
    harness.mesh.set("CDS x=1");
    proxy.expect_silence().await;
}
