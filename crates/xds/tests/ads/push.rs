//! How a change reaches many streams: shared responses, push permits, order of removals, the journal.

use wire::envoy::config::core::v3::Node;
use xds::{Options, Provider, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy::Proxy,
};

#[tokio::test(start_paused = true)]
async fn streams_of_a_class_share_a_response_and_ack_it_each() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, EDS a=1 b=1");
        let mut proxies = Vec::new();
        for _ in 0..3 {
            let mut proxy = harness.proxy(variant).await;
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            proxy.ack_next().await;
            proxies.push(proxy);
        }
        harness.mesh.set("CDS a=2 b=1");
        let mut nonces = Vec::new();
        for proxy in &mut proxies {
            let got = proxy.response().await;
            assert_eq!(got, "CDS a=2 b=1");
            nonces.push(got.nonce.clone());
            proxy.ack(&got).await;
        }
        assert!(nonces.iter().all(|nonce| *nonce == nonces[0]), "{nonces:?}");
        proxies[0].expect_silence().await;
        harness.mesh.set("CDS b=2");
        for proxy in &mut proxies {
            proxy.ack_next().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_subscriptions_to_all_names_share_a_response() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=1 b=1 c=1");
        let (mut all, mut same, mut some) =
            (harness.proxy(variant).await, harness.proxy(variant).await, harness.proxy(variant).await);
        all.subscribe(TypeUrl::Endpoints, &["a", "b", "c"]).await;
        same.subscribe(TypeUrl::Endpoints, &["c", "b", "a"]).await;
        some.subscribe(TypeUrl::Endpoints, &["a", "b"]).await;
        let first = all.ack_next().await;
        assert_eq!(first, "EDS a=1 b=1 c=1");
        assert_eq!(same.ack_next().await.nonce, first.nonce);
        let other = some.ack_next().await;
        assert_eq!(other, "EDS a=1 b=1");
        assert_ne!(other.nonce, first.nonce);
        harness.mesh.set("EDS a=2 c=2");
        let second = all.ack_next().await;
        assert_eq!(second, "EDS a=2 c=2");
        assert_eq!(same.ack_next().await.nonce, second.nonce);
        assert_eq!(some.ack_next().await, "EDS a=2");
        harness.mesh.set("EDS b=2");
        assert_eq!(all.ack_next().await.nonce, some.ack_next().await.nonce, "here they want the same");
        harness.mesh.set("EDS -c");
        assert_eq!(all.ack_next().await, "EDS c=empty");
        some.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn consecutive_equal_responses_have_different_nonces() {
    let harness = Harness::new("CDS a=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Cluster, &["*"]).await;
    let first = proxy.ack_next().await;
    proxy.subscribe(TypeUrl::Cluster, &["*"]).await;
    let second = proxy.ack_next().await;
    assert_eq!(first.text, second.text);
    assert_ne!(first.nonce, second.nonce);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_proxy_blocks_no_other_with_one_push_permit() {
    for variant in BOTH {
        // More than the flow-control window.
        let large = "x".repeat(4 << 20);
        let options = Options { push_throttle: 1, ..Options::default() };
        let harness = Harness::with(&format!("CDS a={large}"), options);
        let mut stalled = harness.proxy(variant).await;
        stalled.subscribe(TypeUrl::Cluster, &[]).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!(harness.metric("pilot_xds_send_time_count"), Some(0.0), "it is being written");
        assert_eq!(harness.metric("meltemi_push_slots_in_use"), Some(0.0), "without a permit");
        let mut quick = Vec::new();
        for pod in 0..5 {
            let id = format!("sidecar~10.0.0.1~p{pod}.ns{pod}~x");
            let mut proxy = harness.proxy(variant).await.with_node(Some(Node { id, ..Node::default() }));
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            quick.push(proxy);
        }
        for proxy in &mut quick {
            proxy.ack_next().await;
        }
        harness.mesh.set("CDS b=1");
        for proxy in &mut quick {
            assert!(proxy.ack_next().await.text.contains("b=1"));
        }
        assert_eq!(harness.metric("meltemi_push_slots_in_use"), Some(0.0));
        assert_eq!(harness.metric("meltemi_push_queue_depth"), Some(0.0));
        assert_eq!(harness.metric("pilot_proxy_queue_time_count"), Some(5.0));
        assert_eq!(stalled.ack_next().await.version, "1", "it gets its permit again");
        assert!(stalled.ack_next().await.text.contains("b=1"));
    }
}

/// Clusters, then routes that name them, all ACKed.
async fn routed(harness: &Harness, variant: Variant) -> Proxy {
    let mut proxy = harness.proxy(variant).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy.ack_next().await;
    proxy.subscribe(TypeUrl::Listener, &[]).await;
    proxy.ack_next().await;
    proxy.subscribe(TypeUrl::Route, &["r"]).await;
    proxy.ack_next().await;
    proxy.expect_silence().await;
    proxy
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_removed_after_the_routes_that_named_it() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, LDS l=1, RDS r=a");
        let mut proxy = routed(&harness, variant).await;
        harness.mesh.set("CDS -a, RDS r=b");
        let route = proxy.response().await;
        assert_eq!(route, "RDS r=b");
        proxy.expect_silence().await;
        proxy.ack(&route).await;
        let want = if variant == Variant::Sotw { "CDS b=1" } else { "CDS -a" };
        assert_eq!(proxy.ack_next().await, want);
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_waits_no_longer_than_its_grace() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, LDS l=1, RDS r=a");
        let mut proxy = routed(&harness, variant).await;
        harness.mesh.set("CDS -a, LDS l=2");
        assert_eq!(proxy.response().await, "LDS l=2");
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let want = if variant == Variant::Sotw { "CDS b=1" } else { "CDS -a" };
        assert_eq!(proxy.ack_next().await, want, "although the listener was not answered");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn clusters_are_added_first_and_removed_last() {
    let harness = Harness::new("CDS a=1, LDS l=1, RDS r=a");
    let mut proxy = routed(&harness, Variant::Delta).await;
    harness.mesh.set("CDS -a b=1, RDS r=b");
    assert_eq!(proxy.ack_next().await, "CDS b=1");
    assert_eq!(proxy.ack_next().await, "RDS r=b");
    assert_eq!(proxy.ack_next().await, "CDS -a");
    harness.mesh.set("CDS -b c=1, RDS r=c");
    assert_eq!(proxy.ack_next().await, "CDS c=1");
    let route = proxy.response().await;
    harness.mesh.set("CDS b=2");
    assert_eq!(proxy.ack_next().await, "CDS b=2");
    proxy.ack(&route).await;
    assert_eq!(proxy.ack_next().await, "CDS b=2", "it came back before it was removed");
    proxy.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_without_dependents_is_not_deferred() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, LDS l=1, RDS r=a");
        let mut proxy = routed(&harness, variant).await;
        harness.mesh.set("CDS -b a=2");
        let want = if variant == Variant::Sotw { "CDS a=2" } else { "CDS -b a=2" };
        assert_eq!(proxy.ack_next().await, want);
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_journal_records_the_progress_of_a_push() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let (mut one, mut two) = (harness.proxy(variant).await, harness.proxy(variant).await);
        for proxy in [&mut one, &mut two] {
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            proxy.ack_next().await;
        }
        harness.mesh.set("CDS a=2");
        one.ack_next().await;
        let got = two.response().await;
        let journal = harness.mesh.journal().expect("it keeps one");
        one.expect_silence().await;
        let last = journal.snapshot().pop().expect("a push");
        assert_eq!((last.seq, &*last.cause, last.streams), (2, "CDS a=2", 2));
        assert_eq!((last.sent, last.acked, last.rejected, last.done), (2, 1, 0, 1));
        two.nack(&got, "no").await;
        two.expect_silence().await;
        let last = journal.snapshot().pop().expect("a push");
        assert_eq!((last.sent, last.acked, last.rejected, last.done), (2, 1, 1, 1));
        assert!(last.last_answer >= last.last_sent && last.last_sent >= last.first_sent);
        harness.mesh.set("CDS a=3, EDS x=1");
        for proxy in [&mut one, &mut two] {
            proxy.ack_next().await;
            proxy.expect_silence().await;
        }
        let done: Vec<_> = journal.snapshot().iter().map(|push| (push.seq, push.done)).collect();
        assert_eq!(done, [(1, 0), (2, 2), (3, 2)], "a proxy that NACKed a push completes it with the next");
    }
}
