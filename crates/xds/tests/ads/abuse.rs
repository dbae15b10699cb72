//! Bad input: each is rejected with a reason, and other streams are not affected.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use wire::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    },
    google::protobuf::{Struct, Value, value},
};
use xds::{Options, SyncStatus, TypeUrl, Variant};

use crate::{
    harness::{BOTH, Harness},
    proxy::{self, Proxy, with_grpc_prefix},
};

async fn first_with(harness: &Harness, variant: Variant, node: Option<Node>) -> Proxy {
    let mut proxy = harness.proxy(variant).await.with_node(node);
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    proxy
}

fn node(id: &str) -> Option<Node> {
    Some(Node { id: id.into(), ..Node::default() })
}

#[tokio::test(start_paused = true)]
async fn rejects_first_requests_without_a_node() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        for (bad, want) in
            [(None, "missing node information"), (node(""), "missing node information"), (node("a~b"), "four parts")]
        {
            let (code, text) = first_with(&harness, variant, bad).await.status().await;
            assert_eq!(code, 3);
            assert!(text.contains(want), "{text}");
        }
        assert!(harness.connections.is_empty());
        let mut good = harness.proxy(variant).await;
        good.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(good.ack_next().await, "CDS a=1");
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_nodes_over_1_mib() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let text = Value { kind: Some(value::Kind::StringValue("x".repeat(2 << 20))) };
        let metadata = Some(Struct { fields: [("LABELS".to_owned(), text)].into() }.encode_to_vec().into());
        let giant = Node { id: proxy::NODE_ID.into(), metadata, ..Node::default() };
        let (code, text) = first_with(&harness, variant, Some(giant)).await.status().await;
        assert_eq!(code, 3);
        assert!(text.contains("the limit is 1048576"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_deeply_nested_metadata() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        // A Struct in a Value in a Struct ..., written by hand from the inside: field 5 (struct), field 2 (value), field 1 (map entry).
        let mut deep = Vec::new();
        for tag in [0x2a_u8, 0x12, 0x0a].into_iter().cycle().take(3000) {
            let mut outer = vec![tag];
            prost::encode_length_delimiter(deep.len(), &mut outer).expect("a Vec grows");
            outer.extend(deep);
            deep = outer;
        }
        let (code, text) = first_with(&harness, variant, with_metadata(deep)).await.status().await;
        assert_eq!(code, 3, "{text}");
        assert!(text.contains("levels deep"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_malformed_metadata() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        for bad in [&b"\xff"[..], b"\x0a\x7f", b"\x0a\x03\x0a\x01\xff"] {
            let (code, text) = first_with(&harness, variant, with_metadata(bad.to_vec())).await.status().await;
            assert_eq!(code, 3, "{text}");
            assert!(text.contains("cannot read the metadata of the node"), "{text}");
        }
        assert!(harness.connections.is_empty());
    }
}

fn with_metadata(metadata: Vec<u8>) -> Option<Node> {
    Some(Node { id: proxy::NODE_ID.into(), metadata: Some(metadata.into()), ..Node::default() })
}

#[tokio::test(start_paused = true)]
async fn rejects_a_hundred_thousand_labels() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let text = Value { kind: Some(value::Kind::StringValue("v".into())) };
        let labels = (0..100_000).map(|n| (format!("label-{n}"), text.clone())).collect();
        let labels = Value { kind: Some(value::Kind::StructValue(Struct { fields: labels })) };
        let metadata = Some(Struct { fields: [("LABELS".to_owned(), labels)].into() }.encode_to_vec().into());
        let node = Node { id: proxy::NODE_ID.into(), metadata, ..Node::default() };
        let (code, text) = first_with(&harness, variant, Some(node)).await.status().await;
        assert_eq!(code, 3);
        assert!(text.contains("the limit is 1048576"), "{text}");
        assert!(harness.connections.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_oversized_messages_before_reading_them() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.bytes(Bytes::from_static(b"\0\x00\x50\x00\x00")).await;
        let (code, text) = proxy.status().await;
        assert_eq!(code, 8);
        assert!(text.contains("the limit is 4194304"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_messages_end_the_stream() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        for (bytes, want) in [(&b"\0\0\0\0\x02\xff\xff"[..], 3), (b"\x01\0\0\0\x01a", 12)] {
            let mut proxy = harness.proxy(variant).await;
            proxy.bytes(Bytes::from_static(bytes)).await;
            assert_eq!(proxy.status().await.0, want);
        }
        let mut proxy = harness.proxy(variant).await;
        proxy.bytes(Bytes::from_static(b"\0\0\0\0\x09abc")).await;
        proxy.finish();
        assert_eq!(proxy.status().await.0, 3, "cut off");
        assert!(harness.connections.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_types_are_not_answered() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        for url in ["", "type.googleapis.com/made.up.Type", &"x".repeat(1 << 20)] {
            match variant {
                Variant::Sotw => proxy.sotw(DiscoveryRequest { type_url: url.into(), ..Default::default() }).await,
                Variant::Delta => {
                    proxy.delta(DeltaDiscoveryRequest { type_url: url.into(), ..Default::default() }).await;
                }
            }
        }
        proxy.expect_silence().await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1", "the first message had the node");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_types_create_no_metric_labels() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        let lines = |harness: &Harness| harness.metrics().lines().count();
        let before = lines(&harness);
        for n in 0..200 {
            let type_url = format!("type.googleapis.com/made.up.Type{n}");
            match variant {
                Variant::Sotw => proxy.sotw(DiscoveryRequest { type_url, ..Default::default() }).await,
                Variant::Delta => proxy.delta(DeltaDiscoveryRequest { type_url, ..Default::default() }).await,
            }
        }
        proxy.expect_silence().await;
        assert_eq!(lines(&harness), before);
    }
}

/// Row A-08: debug requests are rejected without authentication and on the stream of a proxy.
#[tokio::test(start_paused = true)]
async fn debug_types_are_denied() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        for url in ["istio.io/debug", "istio.io/debug/syncz"] {
            let mut stranger = harness.proxy(variant).await;
            request_type(&mut stranger, variant, url).await;
            let (code, text) = stranger.status().await;
            assert_eq!(code, 16, "{text}");
            let mut proxy = harness.proxy(variant).await;
            proxy.subscribe(TypeUrl::Cluster, &[]).await;
            proxy.response().await;
            request_type(&mut proxy, variant, url).await;
            let (code, text) = proxy.status().await;
            assert_eq!(code, 7);
            assert!(text.starts_with(url), "{text}");
        }
    }
}

async fn request_type(proxy: &mut Proxy, variant: Variant, url: &str) {
    match variant {
        Variant::Sotw => proxy.sotw(DiscoveryRequest { type_url: url.into(), ..Default::default() }).await,
        Variant::Delta => proxy.delta(DeltaDiscoveryRequest { type_url: url.into(), ..Default::default() }).await,
    }
}

#[tokio::test(start_paused = true)]
async fn a_health_report_is_not_the_first_request() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        let type_url = "type.googleapis.com/istio.v1.HealthInformation".to_owned();
        let report = match variant {
            Variant::Sotw => DiscoveryRequest { type_url, ..Default::default() }.encode_to_vec(),
            Variant::Delta => DeltaDiscoveryRequest { type_url, ..Default::default() }.encode_to_vec(),
        };
        proxy.bytes(with_grpc_prefix(&report)).await;
        proxy.expect_silence().await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1");
        proxy.bytes(with_grpc_prefix(&report)).await;
        proxy.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_names_end_the_stream() {
    for variant in BOTH {
        let harness = Harness::with("EDS n0=1", Options { max_names: 10, ..Options::default() });
        let mut proxy = harness.proxy(variant).await;
        let names: Vec<String> = (0..11).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        proxy.subscribe(TypeUrl::Endpoints, &names[..10]).await;
        proxy.ack_next().await;
        proxy.subscribe(TypeUrl::Endpoints, &names[10..]).await;
        let (code, text) = proxy.status().await;
        assert_eq!((code, text.as_str()), (8, "11 names on one stream; the limit is 10"));
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_65536_names_end_the_stream() {
    for variant in BOTH {
        let harness = Harness::new("EDS n0=1");
        let mut proxy = harness.proxy(variant).await;
        let names: Vec<String> = (0..65_537).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        proxy.subscribe(TypeUrl::Endpoints, &names).await;
        let (code, text) = proxy.status().await;
        assert_eq!((code, text.as_str()), (8, "65537 names on one stream; the limit is 65536"));
        assert!(harness.connections.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_resource_names_over_1_kib() {
    for variant in BOTH {
        let harness = Harness::new("EDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Endpoints, &[&"x".repeat(5000)]).await;
        assert_eq!(proxy.status().await.0, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn invented_initial_versions_affect_only_their_own_proxy() {
    let harness = Harness::new("CDS a=1, LDS l=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    let fake = (0..20_000).map(|n| (format!("fake{n}"), "v9".to_owned())).collect();
    let request = proxy::delta(TypeUrl::Cluster);
    proxy.delta(DeltaDiscoveryRequest { initial_resource_versions: fake, ..request }).await;
    let got = proxy.ack_next().await;
    assert!(got.text.ends_with(" a=1"));
    assert_eq!(got.text.matches(" -fake").count(), 20_000);
    proxy.subscribe(TypeUrl::Listener, &[]).await;
    assert_eq!(proxy.ack_next().await, "LDS l=1");
}

#[tokio::test(start_paused = true)]
async fn truncates_nack_reasons() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let got = proxy.response().await;
        proxy.nack(&got, &"no ".repeat(1 << 20)).await;
        proxy.expect_silence().await;
        let watched = harness.watched(TypeUrl::Cluster).expect("watched");
        assert_eq!(watched.status(), SyncStatus::Error);
        assert_eq!(watched.last_error.map(|error| error.len()), Some(4096));
        let gauge = "pilot_xds_cds_reject{err=\"Internal\",node=\"cart-1.shop\"}";
        assert_eq!(harness.metric(gauge), Some(1.0));
        harness.mesh.set("CDS a=2");
        proxy.ack_next().await;
        proxy.expect_silence().await;
        assert_eq!(harness.metric(gauge), None, "accepted since");
    }
}

/// The rejected change is undone, and the proxy holds the current content: the gauge ends.
#[tokio::test(start_paused = true)]
async fn a_reject_gauge_ends_when_the_rejected_change_is_undone() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        proxy.ack_next().await;
        harness.mesh.set("CDS a=2");
        let got = proxy.response().await;
        proxy.nack(&got, "no").await;
        proxy.expect_silence().await;
        let gauge = "pilot_xds_cds_reject{err=\"Internal\",node=\"cart-1.shop\"}";
        assert_eq!(harness.metric(gauge), Some(1.0));
        harness.mesh.set("CDS a=1");
        proxy.ack_next().await;
        proxy.expect_silence().await;
        assert_eq!(harness.metric(gauge), None, "{variant:?}");
        // The same for a new resource: nothing is left to send.
        harness.mesh.set("CDS b=1");
        let got = proxy.response().await;
        proxy.nack(&got, "no").await;
        proxy.expect_silence().await;
        assert_eq!(harness.metric(gauge), Some(1.0));
        harness.mesh.set("CDS -b");
        proxy.ack_next().await;
        proxy.expect_silence().await;
        assert_eq!(harness.metric(gauge), None, "{variant:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_nack_without_a_response_is_only_counted() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        let error_detail = Some(wire::google::rpc::Status { code: 3, message: "no".into(), ..Default::default() });
        match variant {
            Variant::Sotw => proxy.sotw(DiscoveryRequest { error_detail, ..proxy::sotw(TypeUrl::Cluster) }).await,
            Variant::Delta => {
                proxy.delta(DeltaDiscoveryRequest { error_detail, ..proxy::delta(TypeUrl::Cluster) }).await;
            }
        }
        proxy.expect_silence().await;
        assert_eq!(harness.metric("pilot_total_xds_rejects{type=\"cds\"}"), Some(1.0));
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        assert_eq!(proxy.ack_next().await, "CDS a=1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_nack_without_code_or_reason_counts() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let response_nonce = proxy.response().await.nonce;
        let error_detail = Some(wire::google::rpc::Status::default());
        match variant {
            Variant::Sotw => {
                let request = DiscoveryRequest { error_detail, response_nonce, ..proxy::sotw(TypeUrl::Cluster) };
                proxy.sotw(request).await;
            }
            Variant::Delta => {
                let request = DeltaDiscoveryRequest { error_detail, response_nonce, ..proxy::delta(TypeUrl::Cluster) };
                proxy.delta(request).await;
            }
        }
        proxy.expect_silence().await;
        let watched = harness.watched(TypeUrl::Cluster).expect("watched");
        assert_eq!(watched.last_error.as_deref(), Some("no reason given (code 0)"));
        assert_eq!(harness.metric("pilot_total_xds_rejects{type=\"cds\"}"), Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_oversized_nonce_is_stale() {
    for variant in BOTH {
        let harness = Harness::new("CDS a=1");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        let got = proxy.response().await;
        proxy.answer(&got, &"x".repeat(1 << 20), None).await;
        proxy.expect_silence().await;
        assert_eq!(harness.metric("pilot_xds_expired_nonce{type=\"cds\"}"), Some(1.0));
        assert_eq!(
            harness.watched(TypeUrl::Cluster).expect("watched").status(),
            SyncStatus::Stale,
            "still not answered"
        );
        proxy.ack(&got).await;
        proxy.expect_silence().await;
        proxy.ack(&got).await;
        proxy.expect_silence().await;
        assert_eq!(harness.metric("pilot_xds_expired_nonce{type=\"cds\"}"), Some(1.0), "a repeated nonce is not stale");
        assert_eq!(harness.watched(TypeUrl::Cluster).expect("watched").status(), SyncStatus::Synced);
    }
}

#[tokio::test(start_paused = true)]
async fn ignores_versions_that_were_never_sent() {
    let harness = Harness::new("CDS a=1");
    let mut proxy = harness.proxy(Variant::Sotw).await;
    proxy.subscribe(TypeUrl::Cluster, &[]).await;
    let mut got = proxy.response().await;
    got.version = "99999999".into();
    proxy.ack(&got).await;
    proxy.expect_silence().await;
    harness.mesh.set("CDS a=2");
    assert_eq!(proxy.ack_next().await, "CDS a=2");
}

#[tokio::test(start_paused = true)]
async fn an_ack_without_a_subscription_is_not_answered() {
    let harness = Harness::new("CDS a=1, EDS a=1");
    let mut proxy = harness.proxy(Variant::Delta).await;
    proxy.subscribe(TypeUrl::Endpoints, &["a"]).await;
    proxy.ack_next().await;
    for _ in 0..100 {
        proxy.delta(proxy::delta(TypeUrl::Endpoints)).await;
    }
    proxy.expect_silence().await;
    harness.mesh.set("EDS a=2");
    assert_eq!(proxy.ack_next().await, "EDS a=2");
    proxy.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_never_reads_blocks_no_other() {
    for variant in BOTH {
        let large = "x".repeat(300_000);
        let harness = Harness::new(&format!("CDS a={large} b={large}, LDS l=1"));
        let mut slow = Proxy::open(harness.io_of(1024), variant).await;
        slow.subscribe(TypeUrl::Cluster, &[]).await;
        let mut quick = harness.proxy(variant).await;
        quick.subscribe(TypeUrl::Cluster, &[]).await;
        quick.ack_next().await;
        for n in 0..50 {
            harness.mesh.set(&format!("CDS c={n}"));
            quick.ack_next().await;
        }
        assert_eq!(harness.metric("pilot_xds_pushes{type=\"cds\"}"), Some(52.0), "one to the slow one");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(slow.ack_next().await.version, "1");
        assert!(slow.ack_next().await.text.contains("c=49"), "and then the newest");
    }
}
