//! Rules of both variants. Where the variants differ in what they send, the test names both.

use std::time::Duration;

use wire::envoy::config::core::v3::Node;
use xds::{SyncStatus, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy,
};

/// The response of each variant.
fn of<'a>(variant: Variant, sotw: &'a str, delta: &'a str) -> &'a str {
    match variant {
        Variant::Sotw => sotw,
        Variant::Delta => delta,
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_request_without_names_is_a_wildcard() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1, LDS l=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1 b=1");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_explicit_wildcard_gets_everything() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &["*"]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1 b=1");
        harness.mesh.set("CDS c=1");
        assert_eq!(proxy.ack_next().await, of(variant, "CDS a=1 b=1 c=1", "CDS c=1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_pushed_whole_in_sotw_and_alone_in_delta() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        // The ACK has arrived: nothing asks for what comes.
        proxy.expect_silence().await;
        harness.mesh.set("CDS a=2 c=1 -b");
        assert_eq!(proxy.ack_next().await, of(variant, "CDS a=2 c=1", "CDS -b a=2 c=1"));
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_wildcard_gets_an_empty_response() {
    for variant in BOTH {
        let harness = Harness::new("");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Listener, &[]).await;
        assert_eq!(proxy.ack_next().await, "LDS");
        harness.mesh.set("LDS l=1");
        assert_eq!(proxy.ack_next().await, "LDS l=1");
    }
}

#[tokio::test(start_paused = true)]
async fn unsubscribed_changes_send_nothing() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
        assert_eq!(proxy.ack_next().await, "EDS a=1");
        harness.mesh.set("EDS b=2, RDS r=1, CDS c=1");
        proxy.expect_silence().await;
        harness.mesh.set("EDS a=2");
        assert_eq!(proxy.ack_next().await, "EDS a=2");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_assignments_and_routes_are_answered_empty_and_sent_when_they_appear() {
    for variant in BOTH {
        let harness = Harness::new("");
        let mut proxy = harness.proxy(variant).await;
        for (kind, short) in [(TypeUrl::Endpoints, "EDS"), (TypeUrl::Route, "RDS")] {
            proxy.subscribe(kind, &["later"]).await;
            assert_eq!(proxy.ack_next().await.text, format!("{short} later=empty"));
            harness.mesh.set(&format!("{short} later=1"));
            assert_eq!(proxy.ack_next().await.text, format!("{short} later=1"));
            harness.mesh.set(&format!("{short} -later"));
            assert_eq!(proxy.ack_next().await.text, format!("{short} later=empty"), "never removed");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_name_stays_subscribed() {
    for variant in BOTH {
        let harness = Harness::new("");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Secret, &["cert"]).await;
        proxy.expect_silence().await;
        harness.mesh.set("SDS cert=1 other=1");
        assert_eq!(proxy.ack_next().await, "SDS cert=1");
    }
}

#[tokio::test(start_paused = true)]
async fn only_added_names_are_answered() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=1 b=1 c=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
        proxy.ack_next().await;
        proxy.subscribe(TypeUrl::Endpoints, &["b", "c"]).await;
        assert_eq!(proxy.ack_next().await, "EDS b=1 c=1");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn unsubscribed_names_are_not_sent() {
    for variant in BOTH {
        let harness = Harness::new("RDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Route, &["a", "b"]).await;
        proxy.ack_next().await;
        proxy.unsubscribe(TypeUrl::Route, &["a"]).await;
        proxy.expect_silence().await;
        harness.mesh.set("RDS a=2");
        proxy.expect_silence().await;
        proxy.unsubscribe(TypeUrl::Route, &["b"]).await;
        proxy.expect_silence().await;
        harness.mesh.set("RDS b=2");
        proxy.expect_silence().await;
        proxy.subscribe(TypeUrl::Route, &["a"]).await;
        assert_eq!(proxy.ack_next().await, "RDS a=2", "asked for again");
    }
}

#[tokio::test(start_paused = true)]
async fn one_response_is_outstanding_and_the_next_holds_the_newest_content() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let first = proxy.response().await;
        harness.mesh.set("CDS a=2 b=1");
        harness.mesh.set("CDS a=3");
        harness.mesh.set("CDS -b");
        proxy.expect_silence().await;
        proxy.ack(&first).await;
        assert_eq!(proxy.ack_next().await, of(variant, "CDS a=3", "CDS -b a=3"));
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn names_subscribed_while_a_response_is_outstanding_follow_its_ack() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
        let first = proxy.response().await;
        proxy.subscribe(TypeUrl::Endpoints, &["b"]).await;
        proxy.expect_silence().await;
        proxy.ack(&first).await;
        assert_eq!(proxy.ack_next().await, "EDS b=1");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_nacked_version_is_not_sent_again_until_there_is_a_newer_one() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1 b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        harness.mesh.set("CDS a=bad");
        let bad = proxy.response().await;
        proxy.nack(&bad, "cluster a is bad").await;
        proxy.expect_silence().await;
        let watched = harness.watched(TypeUrl::Cluster).expect("watched");
        assert_eq!((watched.status(), watched.last_error.as_deref()), (SyncStatus::Error, Some("cluster a is bad")));
        harness.mesh.set("EDS a=1, LDS l=1");
        proxy.expect_silence().await;
        harness.mesh.set("CDS b=2");
        let next = proxy.response().await;
        assert_eq!(next, of(variant, "CDS a=bad b=2", "CDS a=bad b=2"), "all since the last agreement");
        assert_eq!(harness.watched(TypeUrl::Cluster).expect("watched").status(), SyncStatus::Error);
        proxy.ack(&next).await;
        proxy.expect_silence().await;
        assert_eq!(harness.watched(TypeUrl::Cluster).expect("watched").status(), SyncStatus::Synced);
        assert_eq!(harness.metric("pilot_total_xds_rejects{type=\"cds\"}"), Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_nacked_first_response_is_sent_with_the_next_change() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=bad b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Endpoints, &["a", "b"]).await;
        let bad = proxy.response().await;
        proxy.nack(&bad, "").await;
        harness.mesh.set("EDS c=1");
        proxy.expect_silence().await;
        harness.mesh.set("EDS a=2");
        assert_eq!(proxy.ack_next().await, "EDS a=2 b=1");
        harness.mesh.set("EDS b=2");
        assert_eq!(proxy.ack_next().await, "EDS b=2");
    }
}

#[tokio::test(start_paused = true)]
async fn nacked_names_are_sent_with_the_next_change() {
    for variant in BOTH {
        let harness = Harness::new("RDS a=1 b=bad");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Route, &["a"]).await;
        proxy.ack_next().await;
        proxy.subscribe(TypeUrl::Route, &["b"]).await;
        let bad = proxy.response().await;
        proxy.nack(&bad, "no").await;
        proxy.expect_silence().await;
        harness.mesh.set("RDS a=2");
        assert_eq!(proxy.ack_next().await, "RDS a=2 b=bad");
    }
}

#[tokio::test(start_paused = true)]
async fn the_nonce_of_a_nacked_response_is_no_ack_later() {
    for variant in BOTH {
        let harness = Harness::new("RDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Route, &["a"]).await;
        proxy.ack_next().await;
        harness.mesh.set("RDS a=bad");
        let bad = proxy.response().await;
        proxy.nack(&bad, "no").await;
        proxy.ack(&bad).await;
        proxy.expect_silence().await;
        assert_eq!(harness.watched(TypeUrl::Route).expect("watched").status(), SyncStatus::Error);
    }
}

#[tokio::test(start_paused = true)]
async fn names_subscribed_in_a_nack_are_answered() {
    for variant in BOTH {
        let harness = Harness::new("RDS a=bad b=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Route, &["a"]).await;
        let bad = proxy.response().await;
        let error = Some(wire::google::rpc::Status { code: 13, message: "no".into(), ..Default::default() });
        match variant {
            Variant::Sotw => {
                let mut request = proxy::sotw(TypeUrl::Route);
                request.resource_names = vec!["a".into(), "b".into()];
                (request.response_nonce, request.error_detail) = (bad.nonce, error);
                proxy.sotw(request).await;
            }
            Variant::Delta => {
                let mut request = proxy::delta(TypeUrl::Route);
                request.resource_names_subscribe = vec!["b".into()];
                (request.response_nonce, request.error_detail) = (bad.nonce, error);
                proxy.delta(request).await;
            }
        }
        assert_eq!(proxy.ack_next().await, "RDS b=1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_nonce_is_no_ack_and_is_counted() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, LDS l=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let old = proxy.ack_next().await;
        harness.mesh.set("CDS a=2");
        let new = proxy.response().await;
        proxy.answer(&new, &old.nonce, None).await;
        proxy.answer(&new, "x".repeat(1 << 20).as_str(), None).await;
        proxy.answer(&new, &old.nonce, Some("rejected, but which?")).await;
        harness.mesh.set("CDS a=3");
        proxy.expect_silence().await;
        assert_eq!(harness.metric("pilot_xds_expired_nonce{type=\"cds\"}"), Some(3.0));
        let watched = harness.watched(TypeUrl::Cluster).expect("watched");
        assert_eq!((watched.status(), watched.last_error), (SyncStatus::Stale, None));
        proxy.ack(&new).await;
        assert_eq!(proxy.ack_next().await, "CDS a=3");
    }
}

#[tokio::test(start_paused = true)]
async fn a_nonce_of_another_type_is_stale() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, LDS l=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let clusters = proxy.response().await;
        proxy.subscribe(TypeUrl::Listener, &[]).await;
        let listeners = proxy.response().await;
        proxy.answer(&clusters, &listeners.nonce, None).await;
        harness.mesh.set("CDS a=2");
        proxy.expect_silence().await;
        assert_eq!(harness.metric("pilot_xds_expired_nonce{type=\"cds\"}"), Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_nonce_of_another_stream_starts_from_scratch() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        match variant {
            Variant::Sotw => {
                let mut request = proxy::sotw(TypeUrl::Cluster);
                request.response_nonce = "of another instance".into();
                proxy.sotw(request).await;
            }
            Variant::Delta => {
                let mut request = proxy::delta(TypeUrl::Cluster);
                request.response_nonce = "of another instance".into();
                proxy.delta(request).await;
            }
        }
        assert_eq!(proxy.ack_next().await, "CDS a=1");
        assert_eq!(harness.metric("pilot_xds_expired_nonce{type=\"cds\"}"), Some(0.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_push_is_sent_in_order_of_its_types() {
    for variant in BOTH {
        let harness = Harness::new("");
        let mut proxy = harness.proxy(variant).await;
        for kind in TypeUrl::ALL.into_iter().rev() {
            let names: &[&str] = if kind.wildcard() { &[] } else { &["x"] };
            proxy.subscribe(kind, names).await;
            if kind.wildcard() || names_have_empty(kind) {
                proxy.ack_next().await;
            }
        }
        let all = TypeUrl::ALL.map(|kind| format!("{} x=1", kind.short()));
        proxy.expect_silence().await;
        harness.mesh.set(&all.join(","));
        let mut got = Vec::new();
        for _ in &all {
            got.push(proxy.ack_next().await.text);
        }
        // Listeners and routes wait for the clusters that came with them; the types that name none do not.
        let waits = |text: &String| text.starts_with("LDS") || text.starts_with("RDS");
        let parted = |all: &[String]| all.iter().cloned().partition::<Vec<_>, _>(waits);
        assert_eq!(parted(&got), parted(&all));
        assert!(got.iter().position(waits) > got.iter().position(|text| text.starts_with("EDS")), "{got:?}");
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn routes_wait_until_their_new_clusters_can_be_used() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, EDS a=1, LDS l=1, RDS r=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        for (kind, names) in [(TypeUrl::Endpoints, &["a"][..]), (TypeUrl::Listener, &[]), (TypeUrl::Route, &["r"])] {
            proxy.subscribe(kind, names).await;
            proxy.ack_next().await;
        }
        harness.mesh.set("CDS b=1, EDS b=1, RDS r=2");
        assert!(proxy.ack_next().await.text.contains("b=1"));
        proxy.subscribe(TypeUrl::Endpoints, &["a", "b"]).await;
        let endpoints = proxy.response().await;
        assert!(endpoints.text.contains("b=1"), "{endpoints:?}");
        proxy.expect_silence().await;
        proxy.ack(&endpoints).await;
        assert_eq!(proxy.ack_next().await, "RDS r=2");
        // A change of known clusters delays routes no longer than until its ACK.
        harness.mesh.set("CDS b=2, RDS r=3");
        assert!(proxy.ack_next().await.text.contains("b=2"));
        assert!(proxy.ack_next().await.text.starts_with("EDS"), "a cluster that is warmed waits for its endpoints");
        assert_eq!(proxy.ack_next().await, "RDS r=3");
    }
}

fn names_have_empty(kind: TypeUrl) -> bool {
    matches!(kind, TypeUrl::Endpoints | TypeUrl::Route)
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_later_type_wait_for_those_of_an_earlier_one() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, LDS l=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        proxy.subscribe(TypeUrl::Listener, &[]).await;
        proxy.ack_next().await;
        harness.mesh.set("CDS a=2");
        let clusters = proxy.response().await;
        harness.mesh.set("CDS a=3, LDS l=2");
        tokio::time::timeout(Duration::from_millis(100), proxy.response()).await.expect_err("listeners came first");
        proxy.ack(&clusters).await;
        let clusters = proxy.response().await;
        assert_eq!(clusters, "CDS a=3");
        proxy.expect_silence().await;
        proxy.ack(&clusters).await;
        assert_eq!(proxy.ack_next().await, "LDS l=2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_without_ack_delays_others_for_one_second() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, LDS l=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.response().await;
        proxy.subscribe(TypeUrl::Listener, &[]).await;
        proxy.ack_next().await;
        harness.mesh.set("CDS a=2, LDS l=2");
        proxy.expect_silence().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(proxy.ack_next().await, "LDS l=2");
    }
}

#[tokio::test(start_paused = true)]
async fn versions_are_sequences_and_nonces_differ() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let (mut one, mut two) = (harness.proxy(variant).await, harness.proxy(variant).await);
        one.subscribe(TypeUrl::Cluster, &[]).await;
        two.subscribe(TypeUrl::Cluster, &[]).await;
        let (first, second) = (one.ack_next().await, two.ack_next().await);
        assert_eq!((&*first.version, &*second.version), ("1", "1"));
        assert_eq!(first.nonce, second.nonce, "one response for both");
        harness.mesh.set("CDS a=2");
        let third = one.ack_next().await;
        assert_eq!(third.version, "2");
        assert_ne!(third.nonce, first.nonce);
    }
}

#[tokio::test(start_paused = true)]
async fn the_node_of_a_later_message_is_ignored() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, LDS l=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        let mut proxy = proxy.with_node(Some(Node { id: "router~1.1.1.1~other.else~x".into(), ..Node::default() }));
        proxy.subscribe(TypeUrl::Listener, &[]).await;
        proxy.ack_next().await;
        let connections = harness.connections.snapshot();
        assert_eq!(connections.len(), 1);
        assert_eq!(connections[0].proxy.id, "cart-1.shop");
        assert_eq!(connections[0].node_id, proxy::NODE_ID);
    }
}

#[tokio::test(start_paused = true)]
async fn with_strict_nodes_another_node_ends_the_stream() {
    for variant in BOTH {
        let harness = Harness::with("CDS a=1, LDS l=1", xds::Options { strict_nodes: true, ..xds::Options::default() });
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        let mut proxy = proxy.with_node(Some(Node { id: "router~1.1.1.1~other.else~x".into(), ..Node::default() }));
        proxy.subscribe(TypeUrl::Listener, &[]).await;
        let (code, text) = proxy.status().await;
        assert!(code == 3 && text.contains("may not change"), "{code} {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_table_and_the_metrics_show_acks_and_nacks() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1, EDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let first = proxy.response().await;
        proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
        proxy.ack_next().await;
        proxy.expect_silence().await;
        let watched = harness.watched(TypeUrl::Cluster).expect("watched");
        assert_eq!(watched.status(), SyncStatus::Stale);
        assert_eq!(watched.sent.map(|sent| sent.nonce.to_string()), Some(first.nonce.clone()));
        let endpoints = harness.watched(TypeUrl::Endpoints).expect("watched");
        assert_eq!((endpoints.status(), endpoints.wildcard, endpoints.names.len()), (SyncStatus::Synced, false, 1));
        proxy.ack(&first).await;
        harness.mesh.set("EDS a=2");
        proxy.ack_next().await;
        proxy.expect_silence().await;
        assert_eq!(harness.watched(TypeUrl::Cluster).expect("watched").acked.as_deref(), Some(&*first.nonce));
        assert_eq!(harness.connections.snapshot()[0].id, "cart-1.shop-1");
        assert_eq!(harness.connections.find("cart-1.shop").map(|found| found.variant), Some(variant));
        assert_eq!(harness.metric("pilot_xds{version=\"1.30.0\"}"), Some(1.0));
        assert_eq!(harness.metric("pilot_xds_pushes{type=\"eds\"}"), Some(2.0));
        assert_eq!(harness.metric("pilot_proxy_convergence_time_count"), Some(1.0), "only the push, not the answers");
        assert_eq!(harness.metric("pilot_xds_send_time_count"), Some(3.0));
        assert_eq!(harness.metric("pilot_xds_push_time_count{type=\"eds\"}"), Some(2.0));
        for stage in ["push_queue", "delta", "serialization", "send", "ack"] {
            let spent = harness.metric(&format!("meltemi_stage_cpu_seconds_total{{stage=\"{stage}\"}}"));
            assert!(spent > Some(0.0), "{stage}: {spent:?}");
        }
        for part in ["delta", "serialization", "send", "ack"] {
            let bytes = harness.metric(&format!("meltemi_memory_bytes{{part=\"{part}\"}}"));
            assert!(bytes > Some(0.0), "{part}: {bytes:?}");
        }
        drop(proxy);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(harness.connections.is_empty());
        assert_eq!(harness.metric("pilot_xds{version=\"1.30.0\"}"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_nack_of_one_proxy_does_not_affect_others() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let (mut good, mut bad) = (harness.proxy(variant).await, harness.proxy(variant).await);
        good.subscribe(TypeUrl::Cluster, &[]).await;
        good.ack_next().await;
        bad.subscribe(TypeUrl::Cluster, &[]).await;
        let got = bad.response().await;
        bad.nack(&got, "no").await;
        harness.mesh.set("CDS a=2");
        assert_eq!(good.ack_next().await, "CDS a=2");
        assert_eq!(bad.response().await, "CDS a=2");
    }
}
