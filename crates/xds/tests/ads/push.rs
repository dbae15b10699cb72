//! How a change reaches many streams: shared responses, slots, order of removals, the journal.

use wire::envoy::config::core::v3::Node;
use xds::{Options, Provider, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy::Proxy,
};

#[tokio::test(start_paused = true)]
async fn streams_of_a_class_share_a_response_and_answer_it_each() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, EDS a=1 b=1");
        let mut proxies = Vec::new();
        for _ in 0..3 {
            let mut proxy = harness.proxy(variant).await;
            proxy.ask(TypeUrl::Cluster, &[]).await;
            proxy.take().await;
            proxies.push(proxy);
        }
        harness.mesh.set("CDS a=2 b=1");
        let mut nonces = Vec::new();
        for proxy in &mut proxies {
            let got = proxy.got().await;
            assert_eq!(got, "CDS a=2 b=1");
            nonces.push(got.nonce.clone());
            proxy.ack(&got).await;
        }
        assert!(nonces.iter().all(|nonce| *nonce == nonces[0]), "{nonces:?}");
        proxies[0].quiet().await;
        harness.mesh.set("CDS b=2");
        for proxy in &mut proxies {
            proxy.take().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_names_of_a_class_share_a_response_and_some_do_not() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=1 b=1 c=1");
        let (mut all, mut same, mut some) =
            (harness.proxy(variant).await, harness.proxy(variant).await, harness.proxy(variant).await);
        all.ask(TypeUrl::Endpoints, &["a", "b", "c"]).await;
        same.ask(TypeUrl::Endpoints, &["c", "b", "a"]).await;
        some.ask(TypeUrl::Endpoints, &["a", "b"]).await;
        let first = all.take().await;
        assert_eq!(first, "EDS a=1 b=1 c=1");
        assert_eq!(same.take().await.nonce, first.nonce);
        let other = some.take().await;
        assert_eq!(other, "EDS a=1 b=1");
        assert_ne!(other.nonce, first.nonce);
        harness.mesh.set("EDS a=2 c=2");
        let second = all.take().await;
        assert_eq!(second, "EDS a=2 c=2");
        assert_eq!(same.take().await.nonce, second.nonce);
        assert_eq!(some.take().await, "EDS a=2");
        harness.mesh.set("EDS b=2");
        assert_eq!(all.take().await.nonce, some.take().await.nonce, "here they want the same");
        harness.mesh.set("EDS -c");
        assert_eq!(all.take().await, "EDS c=empty");
        some.quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_answer_twice_on_a_stream_has_two_nonces() {
    let harness = Harness::new("CDS a=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.ask(TypeUrl::Cluster, &["*"]).await;
    let first = proxy.take().await;
    proxy.ask(TypeUrl::Cluster, &["*"]).await;
    let second = proxy.take().await;
    assert_eq!(first.text, second.text);
    assert_ne!(first.nonce, second.nonce);
}

#[tokio::test(start_paused = true)]
async fn with_one_slot_a_stalled_proxy_holds_nobody_up() {
    for variant in BOTH {
        // More than is sent ahead of the reader.
        let large = "x".repeat(4 << 20);
        let options = Options { push_throttle: 1, ..Options::default() };
        let harness = Harness::with(&format!("CDS a={large}"), options);
        let mut stalled = harness.proxy(variant).await;
        stalled.ask(TypeUrl::Cluster, &[]).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!(harness.metric("pilot_xds_send_time_count"), Some(0.0), "it is being written");
        assert_eq!(harness.metric("meltemi_push_slots_in_use"), Some(0.0), "without a slot");
        let mut quick = Vec::new();
        for pod in 0..5 {
            let id = format!("sidecar~10.0.0.1~p{pod}.ns{pod}~x");
            let mut proxy = harness.proxy(variant).await.with_node(Some(Node { id, ..Node::default() }));
            proxy.ask(TypeUrl::Cluster, &[]).await;
            quick.push(proxy);
        }
        for proxy in &mut quick {
            proxy.take().await;
        }
        harness.mesh.set("CDS b=1");
        for proxy in &mut quick {
            assert!(proxy.take().await.text.contains("b=1"));
        }
        assert_eq!(harness.metric("meltemi_push_slots_in_use"), Some(0.0));
        assert_eq!(harness.metric("meltemi_push_queue_depth"), Some(0.0));
        assert_eq!(harness.metric("pilot_proxy_queue_time_count"), Some(5.0));
        assert_eq!(stalled.take().await.version, "1", "it gets its slot again");
        assert!(stalled.take().await.text.contains("b=1"));
    }
}

/// Clusters, then routes that name them, all accepted.
async fn routed(harness: &Harness, variant: Variant) -> Proxy {
    let mut proxy = harness.proxy(variant).await;
    proxy.ask(TypeUrl::Cluster, &[]).await;
    proxy.take().await;
    proxy.ask(TypeUrl::Listener, &[]).await;
    proxy.take().await;
    proxy.ask(TypeUrl::Route, &["r"]).await;
    proxy.take().await;
    proxy.quiet().await;
    proxy
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_removed_after_the_routes_that_named_it() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, LDS l=1, RDS r=a");
        let mut proxy = routed(&harness, variant).await;
        harness.mesh.set("CDS -a, RDS r=b");
        let route = proxy.got().await;
        assert_eq!(route, "RDS r=b");
        proxy.quiet().await;
        proxy.ack(&route).await;
        let want = if variant == Variant::Sotw { "CDS b=1" } else { "CDS -a" };
        assert_eq!(proxy.take().await, want);
        proxy.quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_does_not_wait_for_ever() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, LDS l=1, RDS r=a");
        let mut proxy = routed(&harness, variant).await;
        harness.mesh.set("CDS -a, LDS l=2");
        assert_eq!(proxy.got().await, "LDS l=2");
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let want = if variant == Variant::Sotw { "CDS b=1" } else { "CDS -a" };
        assert_eq!(proxy.take().await, want, "although the listener was not answered");
        proxy.quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn new_clusters_go_first_and_old_ones_last() {
    let harness = Harness::new("CDS a=1, LDS l=1, RDS r=a");
    let mut proxy = routed(&harness, Variant::Delta).await;
    harness.mesh.set("CDS -a b=1, RDS r=b");
    assert_eq!(proxy.take().await, "CDS b=1");
    assert_eq!(proxy.take().await, "RDS r=b");
    assert_eq!(proxy.take().await, "CDS -a");
    harness.mesh.set("CDS -b c=1, RDS r=c");
    assert_eq!(proxy.take().await, "CDS c=1");
    let route = proxy.got().await;
    harness.mesh.set("CDS b=2");
    assert_eq!(proxy.take().await, "CDS b=2");
    proxy.ack(&route).await;
    assert_eq!(proxy.take().await, "CDS b=2", "it came back before it was removed");
    proxy.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_nothing_waits_for_goes_with_the_rest() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, LDS l=1, RDS r=a");
        let mut proxy = routed(&harness, variant).await;
        harness.mesh.set("CDS -b a=2");
        let want = if variant == Variant::Sotw { "CDS a=2" } else { "CDS -b a=2" };
        assert_eq!(proxy.take().await, want);
        proxy.quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_journal_follows_a_push() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let (mut one, mut two) = (harness.proxy(variant).await, harness.proxy(variant).await);
        for proxy in [&mut one, &mut two] {
            proxy.ask(TypeUrl::Cluster, &[]).await;
            proxy.take().await;
        }
        harness.mesh.set("CDS a=2");
        one.take().await;
        let got = two.got().await;
        let journal = harness.mesh.journal().expect("it keeps one");
        one.quiet().await;
        let last = journal.snapshot().pop().expect("a push");
        assert_eq!((last.seq, &*last.cause, last.streams), (2, "CDS a=2", 2));
        assert_eq!((last.sent, last.acked, last.refused, last.done), (2, 1, 0, 1));
        two.nack(&got, "no").await;
        two.quiet().await;
        let last = journal.snapshot().pop().expect("a push");
        assert_eq!((last.sent, last.acked, last.refused, last.done), (2, 1, 1, 1));
        assert!(last.last_answer >= last.last_sent && last.last_sent >= last.first_sent);
        harness.mesh.set("CDS a=3, EDS x=1");
        for proxy in [&mut one, &mut two] {
            proxy.take().await;
            proxy.quiet().await;
        }
        let done: Vec<_> = journal.snapshot().iter().map(|push| (push.seq, push.done)).collect();
        assert_eq!(done, [(1, 0), (2, 2), (3, 2)], "whoever refused one holds it with the next");
    }
}
