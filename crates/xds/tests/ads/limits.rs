//! How many may come, how often they may ask, and what happens to those who do not answer.

use std::time::Duration;

use tokio::time::Instant;
use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use xds::{Options, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy,
};

#[tokio::test(start_paused = true)]
async fn streams_of_one_address_are_limited() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_streams_per_address: 2, ..Options::default() });
        let mut first = harness.proxy(variant).await;
        let _second = harness.proxy(variant).await;
        let (code, text) = harness.proxy(variant).await.ended().await;
        assert_eq!(code, 8);
        assert!(text.starts_with("more than 2 streams from one address"), "{text}");
        first.ask(TypeUrl::Cluster, &[]).await;
        first.take().await;
        first.finish();
        assert_eq!(first.ended().await.0, 0);
        let mut third = harness.proxy(variant).await;
        third.ask(TypeUrl::Cluster, &[]).await;
        assert_eq!(third.take().await, "CDS a=1", "there is room again");
    }
}

#[tokio::test(start_paused = true)]
async fn new_streams_are_admitted_at_a_rate_if_there_is_one() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1", Options { max_requests_per_second: 2, ..Options::default() });
        let begin = Instant::now();
        let mut proxies = Vec::new();
        for _ in 0..4 {
            let mut proxy = harness.proxy(variant).await;
            proxy.ask(TypeUrl::Cluster, &[]).await;
            proxies.push(proxy);
        }
        let mut late = proxies.pop().expect("the last one");
        assert_eq!(late.ended().await.0, 8, "it would have to wait for more than a second");
        for proxy in &mut proxies {
            while proxy.maybe().await.is_none() {}
        }
        assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_flaps_is_read_slowly_and_still_hears_of_changes() {
    for variant in BOTH {
        let options = Options { subscription_changes_per_second: 1, ..Options::default() };
        let harness = Harness::with("CDS a=1, EDS a=1", options);
        let mut proxy = harness.proxy(variant).await;
        proxy.ask(TypeUrl::Cluster, &[]).await;
        proxy.take().await;
        let begin = Instant::now();
        for n in 0..20 {
            proxy.ask(TypeUrl::Endpoints, &[&format!("n{n}")]).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let known = |harness: &Harness| harness.watched(TypeUrl::Endpoints).expect("watched").names.len();
        assert!(known(&harness) < 14, "{} of 20 were read", known(&harness));
        harness.mesh.set("CDS a=2");
        while proxy.got().await.kind != TypeUrl::Cluster {}
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(known(&harness), 20, "after {:?}", begin.elapsed());
    }
}

/// Each change is worked into a set of all names: with many of them it is limited sooner.
#[tokio::test(start_paused = true)]
async fn changes_of_a_large_subscription_are_read_more_slowly() {
    let options = Options { subscription_changes_per_second: 1, ..Options::default() };
    let harness = Harness::with("CDS a=1", options);
    let mut proxy = harness.proxy(Variant::Delta).await;
    let names: Vec<String> = (0..30_000).map(|n| format!("n{n}")).collect();
    proxy.ask(TypeUrl::Cluster, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    proxy.take().await;
    for n in 0..10 {
        proxy.ask(TypeUrl::Cluster, &[&format!("more{n}")]).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let known = |harness: &Harness| harness.watched(TypeUrl::Cluster).expect("watched").names.len() - names.len();
    assert!((1..6).contains(&known(&harness)), "{} of 10 were read", known(&harness));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(known(&harness), 10);
}

/// Load assignments of clusters that do not exist are made for whoever asks: a thousand with each response.
#[tokio::test(start_paused = true)]
async fn what_is_made_on_demand_comes_in_parts() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=1");
        let mut proxy = harness.proxy(variant).await;
        let names: Vec<String> = (0..2_500).map(|n| format!("n{n:04}")).chain(["a".to_owned()]).collect();
        proxy.ask(TypeUrl::Endpoints, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut parts = Vec::new();
        while let Some(got) = proxy.maybe().await {
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

/// All that a proxy holds is compared, in parts, also where nothing is to be sent for the first of them.
#[tokio::test(start_paused = true)]
async fn held_versions_of_what_is_made_on_demand_are_all_compared() {
    let harness = Harness::new("EDS a=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    let version = |n: usize| if n < 2_400 { "vempty" } else { "old" }.to_owned();
    let held = (0..2_500).map(|n| (format!("n{n:04}"), version(n))).collect();
    let first = DeltaDiscoveryRequest { initial_resource_versions: held, ..proxy::delta(TypeUrl::Endpoints) };
    proxy.delta(DeltaDiscoveryRequest { resource_names_subscribe: vec!["a".into()], ..first }).await;
    let mut sent = 0;
    while let Some(got) = proxy.maybe().await {
        proxy.ack(&got).await;
        sent += got.text.split(' ').count() - 1;
    }
    assert_eq!(sent, 101, "a, and what is old");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_answered_is_counted_once() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.ask(TypeUrl::Cluster, &[]).await;
        let got = proxy.got().await;
        let expired = "pilot_xds_expired_nonce{type=\"cds\"}";
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(harness.metric(expired), Some(0.0));
        assert!(harness.metric("meltemi_unacked_oldest_seconds") > Some(0.0));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(harness.metric(expired), Some(1.0));
        proxy.ack(&got).await;
        harness.mesh.set("CDS a=2");
        proxy.take().await;
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
            proxy.ask(TypeUrl::Cluster, &[]).await;
            proxy.take().await;
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
async fn a_proxy_whose_workload_is_gone_for_a_minute_is_dropped() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.ask(TypeUrl::Cluster, &[]).await;
        proxy.take().await;
        harness.mesh.set_gone(true);
        tokio::time::sleep(Duration::from_secs(59)).await;
        harness.mesh.set_gone(false);
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(harness.connections.len(), 1, "it came back");
        harness.mesh.set_gone(true);
        tokio::time::sleep(Duration::from_secs(59)).await;
        harness.mesh.set("CDS a=2");
        proxy.take().await;
        let (code, text) = proxy.ended().await;
        assert_eq!(code, 14);
        assert!(text.contains("workload of this proxy is gone"), "{text}");
        assert!(harness.connections.is_empty());
        assert_eq!(harness.metric("meltemi_xds_zombies_total"), Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_memory_keeps_whom_it_has_and_lets_nobody_in() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.ask(TypeUrl::Cluster, &[]).await;
        proxy.take().await;
        harness.server.relieve();
        harness.server.shut(true);
        let mut other = harness.proxy(variant).await;
        let (code, text) = other.ended().await;
        assert_eq!(
            (code, text.as_str()),
            (14, "this instance has hardly any memory left; try another, or this one later")
        );
        harness.mesh.set("CDS a=2");
        assert_eq!(proxy.take().await, "CDS a=2");
        harness.server.shut(false);
        let mut other = harness.proxy(variant).await;
        other.ask(TypeUrl::Cluster, &[]).await;
        assert_eq!(other.take().await, "CDS a=2");
    }
}
