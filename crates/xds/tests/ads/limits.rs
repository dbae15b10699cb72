//! Limits of streams and requests, and timeouts of proxies that do not answer.

use std::time::Duration;

use tokio::time::Instant;
use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use xds::{Options, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy,
};

#[tokio::test(start_paused = true)]
async fn limits_streams_per_address() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_streams_per_address: 2, ..Options::default() });
        let mut first = harness.proxy(variant).await;
        let _second = harness.proxy(variant).await;
        let (code, text) = harness.proxy(variant).await.status().await;
        assert_eq!(code, 8);
        assert!(text.starts_with("more than 2 streams from one address"), "{text}");
        first.subscribe(TypeUrl::Cluster, &[]).await;
        first.ack_next().await;
        first.finish();
        assert_eq!(first.status().await.0, 0);
        let mut third = harness.proxy(variant).await;
        third.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(third.ack_next().await, "CDS a=1", "there is room again");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_the_rate_of_new_streams() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_requests_per_second: 2, ..Options::default() });
        let begin = Instant::now();
        let mut proxies = Vec::new();
        for _ in 0..4 {
            let mut proxy = harness.proxy(variant).await;
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            proxies.push(proxy);
        }
        let mut late = proxies.pop().expect("the last one");
        assert_eq!(late.status().await.0, 8, "it would have to wait for more than a second");
        for proxy in &mut proxies {
            while proxy.try_response().await.is_none() {}
        }
        assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_flapping_subscription_is_rate_limited_and_still_pushed_to() {
    for variant in BOTH {
        let options = Options { subscription_changes_per_second: 1, ..Options::default() };
        let harness = Harness::with("CDS a=1, EDS a=1", options);
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        let begin = Instant::now();
        for n in 0..20 {
            proxy.subscribe(TypeUrl::Endpoints, &[&format!("n{n}")]).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let known = |harness: &Harness| harness.watched(TypeUrl::Endpoints).expect("watched").names.len();
        assert!(known(&harness) < 14, "{} of 20 were read", known(&harness));
        harness.mesh.set("CDS a=2");
        while proxy.response().await.kind != TypeUrl::Cluster {}
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(known(&harness), 20, "after {:?}", begin.elapsed());
    }
}

/// Each change copies the set of all names: with many of them the rate limit is reached sooner.
#[tokio::test(start_paused = true)]
async fn changes_of_large_subscriptions_cost_more_of_the_rate_limit() {
    let options = Options { subscription_changes_per_second: 1, ..Options::default() };
    let harness = Harness::with("CDS a=1", options);
    let mut proxy = harness.proxy(Variant::Delta).await;
    let names: Vec<String> = (0..30_000).map(|n| format!("n{n}")).collect();
    proxy.subscribe(TypeUrl::Cluster, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    proxy.ack_next().await;
    for n in 0..10 {
        proxy.subscribe(TypeUrl::Cluster, &[&format!("more{n}")]).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let known = |harness: &Harness| harness.watched(TypeUrl::Cluster).expect("watched").names.len() - names.len();
    assert!((1..6).contains(&known(&harness)), "{} of 10 were read", known(&harness));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(known(&harness), 10);
}

/// Load assignments of clusters that do not exist are computed on demand: a thousand with each response.
#[tokio::test(start_paused = true)]
async fn resources_computed_on_demand_are_split_over_responses() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=1");
        let mut proxy = harness.proxy(variant).await;
        let names: Vec<String> = (0..2_500).map(|n| format!("n{n:04}")).chain(["a".to_owned()]).collect();
        proxy.subscribe(TypeUrl::Endpoints, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut parts = Vec::new();
        while let Some(got) = proxy.try_response().await {
            proxy.ack(&got).await;
            parts.push(got.text.split(' ').skip(1).map(str::to_owned).collect::<Vec<_>>());
        }
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [1_001, 1_000, 500], "{variant:?}");
        assert!(parts[0].contains(&"a=1".to_owned()));
        let mut all = parts.concat();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2_501);
    }
}

/// All initial versions are compared, in parts, also if the first part sends nothing.
#[tokio::test(start_paused = true)]
async fn initial_versions_of_resources_computed_on_demand_are_all_compared() {
    let harness = Harness::new("EDS a=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    let version = |n: usize| if n < 2_400 { "vempty" } else { "old" }.to_owned();
    let versions = (0..2_500).map(|n| (format!("n{n:04}"), version(n))).collect();
    let first = DeltaDiscoveryRequest { initial_resource_versions: versions, ..proxy::delta(TypeUrl::Endpoints) };
    proxy.delta(DeltaDiscoveryRequest { resource_names_subscribe: vec!["a".into()], ..first }).await;
    let mut sent = 0;
    while let Some(got) = proxy.try_response().await {
        proxy.ack(&got).await;
        sent += got.text.split(' ').count() - 1;
    }
    assert_eq!(sent, 101, "a, and what is old");
}

#[tokio::test(start_paused = true)]
async fn an_overdue_response_is_counted_once() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let got = proxy.response().await;
        let expired = "pilot_xds_expired_nonce{type=\"cds\"}";
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(harness.metric(expired), Some(0.0));
        assert!(harness.metric("meltemi_unacked_oldest_seconds") > Some(0.0));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(harness.metric(expired), Some(1.0));
        proxy.ack(&got).await;
        harness.mesh.set("CDS a=2");
        proxy.ack_next().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(harness.metric(expired), Some(1.0));
        assert_eq!(harness.metric("meltemi_unacked_oldest_seconds"), Some(0.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_proxies_behind_a_dead_network_are_gone_within_45_seconds() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxies = Vec::new();
        for _ in 0..100 {
            let (mut proxy, cut) = harness.cuttable(variant).await;
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            proxy.ack_next().await;
            proxies.push((proxy, cut));
        }
        assert_eq!(harness.connections.len(), 100);
        let mut cut_off = Vec::new();
        for (proxy, cut) in proxies {
            cut.send(()).expect("it is connected");
            cut_off.push(proxy);
        }
        tokio::time::sleep(Duration::from_secs(45)).await;
        assert!(harness.connections.is_empty());
        assert_eq!(harness.metric("meltemi_xds_zombies_total"), Some(100.0));
        assert_eq!(harness.metric("pilot_destroy_time_seconds_count"), Some(100.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_without_workload_is_disconnected_after_a_minute() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        harness.mesh.set_gone(true);
        tokio::time::sleep(Duration::from_secs(59)).await;
        harness.mesh.set_gone(false);
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(harness.connections.len(), 1, "it came back");
        harness.mesh.set_gone(true);
        tokio::time::sleep(Duration::from_secs(59)).await;
        harness.mesh.set("CDS a=2");
        proxy.ack_next().await;
        let (code, text) = proxy.status().await;
        assert_eq!(code, 14);
        assert!(text.contains("workload of this proxy is gone"), "{text}");
        assert!(harness.connections.is_empty());
        assert_eq!(harness.metric("meltemi_xds_zombies_total"), Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_low_on_memory_keeps_its_streams_and_rejects_new_ones() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        harness.server.drop_caches();
        harness.server.reject_new_streams(true);
        let mut other = harness.proxy(variant).await;
        let (code, text) = other.status().await;
        assert_eq!(
            (code, text.as_str()),
            (14, "this instance has hardly any memory left; try another, or this one later")
        );
        assert_eq!(harness.metric("meltemi_xds_streams_rejected_total{reason=\"memory\"}"), Some(1.0));
        harness.mesh.set("CDS a=2");
        assert_eq!(proxy.ack_next().await, "CDS a=2");
        harness.server.reject_new_streams(false);
        let mut other = harness.proxy(variant).await;
        other.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(other.ack_next().await, "CDS a=2");
    }
}
