//! Proxies that are slow, silent or NACK everything: no other proxy is delayed.

use std::time::Duration;

use tokio::time::Instant;
use wire::envoy::config::core::v3::Node;
use xds::{SyncStatus, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy::Proxy,
};

async fn named(harness: &Harness, variant: Variant, pod: usize) -> Proxy {
    let id = format!("sidecar~10.0.0.1~p{pod}.ns{pod}~x");
    let mut proxy = harness.proxy(variant).await.with_node(Some(Node { id, ..Node::default() }));
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy
}

/// Row F-12: 200 proxies that read a kilobyte and then stop.
#[tokio::test(start_paused = true)]
async fn slow_proxies_delay_no_other_get_the_newest_and_time_out() {
    for variant in BOTH {
        let large = "x".repeat(300_000);
        let harness = Harness::new(&format!("CDS a={large}"));
        let mut slow = Vec::new();
        for _ in 0..200 {
            let mut proxy = Proxy::open_with(harness.io(), variant, Some(1024)).await;
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            slow.push(proxy);
        }
        let mut quick = Vec::new();
        for pod in 0..5 {
            let mut proxy = named(&harness, variant, pod).await;
            proxy.ack_next().await;
            quick.push(proxy);
        }
        for n in 0..10 {
            let begin = Instant::now();
            harness.mesh.set(&format!("CDS b={n}"));
            for proxy in &mut quick {
                proxy.ack_next().await;
            }
            assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
        }
        assert_eq!(harness.metric("pilot_xds_pushes{type=\"cds\"}"), Some(255.0), "one to each slow one");
        let mut reading = slow.pop().expect("one of them");
        assert_eq!(reading.ack_next().await.version, "1");
        assert!(reading.ack_next().await.text.contains("b=9"), "the newest, and nothing between");
        assert_eq!(harness.connections.len(), 205);
        // Pings are answered: the connections are read, the streams are not.
        tokio::time::sleep(Duration::from_secs(299)).await;
        assert_eq!(harness.connections.len(), 205);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(harness.connections.len(), 6, "after five minutes with one response");
    }
}

/// Row F-13: one of twenty proxies never ACKs.
#[tokio::test(start_paused = true)]
async fn proxies_that_never_ack_are_sent_one_response_and_counted() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut silent = Vec::new();
        let mut good = Vec::new();
        for pod in 0..40 {
            let mut proxy = named(&harness, variant, pod).await;
            if pod % 20 == 0 {
                proxy.response().await;
                silent.push(proxy);
            } else {
                proxy.ack_next().await;
                good.push(proxy);
            }
        }
        for n in 0..20 {
            harness.mesh.set(&format!("CDS b={n}"));
            for proxy in &mut good {
                proxy.ack_next().await;
            }
        }
        for proxy in &mut silent {
            proxy.expect_silence().await;
        }
        assert_eq!(harness.metric("pilot_xds_pushes{type=\"cds\"}"), Some(40.0 + 20.0 * 38.0));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(harness.metric("pilot_xds_expired_nonce{type=\"cds\"}"), Some(2.0));
        let stale =
            harness.connections.snapshot().iter().filter(|it| it.watched[0].status() == SyncStatus::Stale).count();
        assert_eq!(stale, 2);
    }
}

/// Row F-14: every proxy NACKs everything.
#[tokio::test(start_paused = true)]
async fn nacks_of_every_response_cause_no_push_loop() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxies = Vec::new();
        for pod in 0..20 {
            proxies.push(named(&harness, variant, pod).await);
        }
        for n in 0..10 {
            for proxy in &mut proxies {
                let got = proxy.response().await;
                proxy.nack(&got, "no").await;
            }
            // Without a change nothing is sent again.
            tokio::time::sleep(Duration::from_secs(30)).await;
            harness.mesh.set(&format!("CDS b={n}"));
        }
        for proxy in &mut proxies {
            let got = proxy.ack_next().await;
            assert_eq!(got, "CDS a=1 b=9", "what was never accepted comes again, once there is something newer");
            proxy.expect_silence().await;
        }
        assert_eq!(harness.metric("pilot_xds_pushes{type=\"cds\"}"), Some(20.0 * 11.0));
        assert_eq!(harness.metric("pilot_total_xds_rejects{type=\"cds\"}"), Some(20.0 * 10.0));
    }
}

/// Row P-19: a proxy that connects during a change gets that change.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_during_a_reconnect_is_not_lost() {
    const CHANGES: usize = 2000;
    for variant in BOTH {
        let harness = Harness::new("CDS a=0");
        let mesh = harness.mesh.clone();
        let edits = tokio::spawn(async move {
            for n in 1..=CHANGES {
                mesh.set(&format!("CDS a={n}"));
                tokio::task::yield_now().await;
            }
        });
        let want = format!("CDS a={CHANGES}");
        let mut proxies = Vec::new();
        while !edits.is_finished() || proxies.is_empty() {
            let mut proxy = harness.proxy(variant).await;
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            proxies.push(proxy);
        }
        edits.await.expect("all changes");
        for proxy in &mut proxies {
            while proxy.ack_next().await.text != want {}
        }
    }
}
