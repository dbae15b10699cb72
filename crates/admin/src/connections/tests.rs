//! One fake stream, on every page that shows it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;
use xds::{Changes, Class, ProxyInfo, Resource, SentInfo, Seq, SyncStatus, Variant};

use super::*;
use crate::config_dump::{self, Endpoints};

/// Holds one resource of each of some types.
struct FakeClass;

impl Class for FakeClass {
    fn since(&self, kind: TypeUrl, _: Seq) -> Arc<Changes> {
        let resources: &[(TypeUrl, &str)] = &[
            (TypeUrl::Cluster, "outbound|80||a.b"),
            (TypeUrl::Endpoints, "outbound|80||a.b"),
            (TypeUrl::Listener, "virtualOutbound"),
            (TypeUrl::Secret, "default"),
            (TypeUrl::Extension, "plugin"),
        ];
        let mut changes = Changes { seq: 1, full: true, ..Changes::default() };
        changes.changed =
            resources.iter().filter(|(of, _)| *of == kind).map(|(kind, name)| resource(*kind, name)).collect();
        Arc::new(changes)
    }

    fn named(&self, _: TypeUrl, _: &str) -> Option<Arc<Resource>> {
        None
    }
}

fn resource(kind: TypeUrl, name: &str) -> Arc<Resource> {
    let key = if kind == TypeUrl::Endpoints { "clusterName" } else { "name" };
    let mut message = json!({"@type": kind.url(), key: name});
    // An EnvoyFilter can put a key anywhere.
    let certificate = json!({"certificateChain": {"inlineString": "public"}, "privateKey": {"inlineString": "hush"}});
    let tls = |kind: &str| {
        let keys = json!({"keys": [{"inlineString": "hush"}]});
        let context = json!({"commonTlsContext": {"tlsCertificates": [certificate]}});
        let mut config =
            json!({"@type": format!("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.{kind}TlsContext")});
        config["commonTlsContext"] = context["commonTlsContext"].clone();
        if kind == "Downstream" {
            config["sessionTicketKeys"] = keys;
        }
        json!({"name": "tls", "typedConfig": config})
    };
    match kind {
        TypeUrl::Secret => message["tlsCertificate"] = certificate,
        TypeUrl::Cluster => message["transportSocket"] = tls("Upstream"),
        TypeUrl::Listener => message["filterChains"] = json!([{"transportSocket": tls("Downstream")}]),
        TypeUrl::Extension => {
            let kind = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
            let variables = json!({"keyValues": {"ISTIO_META_WASM_IMAGE_PULL_SECRET": "hush", "A": "public"}});
            message["typedConfig"] =
                json!({"@type": kind, "config": {"vmConfig": {"environmentVariables": variables}}});
        }
        _ => {}
    }
    let any = wire::json::from_value(&message).unwrap();
    Arc::new(Resource::new(name.into(), format!("v-{name}").into(), &any, Vec::new()))
}

fn watched(kind: TypeUrl, sent: Option<&str>, acked: Option<&str>, error: Option<&str>) -> WatchInfo {
    let sent =
        sent.map(|nonce| SentInfo { nonce: nonce.into(), version: 1, at: UNIX_EPOCH + Duration::from_millis(1500) });
    WatchInfo {
        kind,
        wildcard: kind.wildcard(),
        names: if kind.wildcard() { Default::default() } else { ["80"].into_iter().collect() },
        sent,
        resumed: false,
        position: 0,
        acked: acked.map(Arc::from),
        last_error: error.map(Arc::from),
    }
}

fn connection() -> Connection {
    let metadata = json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"CLUSTER_ID": "c1", "LABELS": {"app": "cart"}, "NAMESPACE": "shop"}});
    Connection {
        id: "cart-1.shop-7".into(),
        node_id: "sidecar~10.0.0.7~cart-1.shop~shop.svc.cluster.local".into(),
        proxy: Arc::new(ProxyInfo {
            id: "cart-1.shop".into(),
            kind: "sidecar".into(),
            namespace: "shop".into(),
            version: "1.32.0".into(),
            locality: "r1/z1".into(),
            ..ProxyInfo::default()
        }),
        metadata: wire::json::from_value(&metadata).unwrap().value,
        connected_at: UNIX_EPOCH,
        caller: None,
        address: "10.0.0.7:4711".parse().unwrap(),
        variant: Variant::Delta,
        class: Arc::new(FakeClass),
        watched: vec![
            watched(TypeUrl::Cluster, Some("n2"), Some("n2"), None),
            watched(TypeUrl::Endpoints, None, None, None),
            watched(TypeUrl::Listener, Some("n2"), Some("n1"), Some("no such filter")),
            watched(TypeUrl::Route, Some("n2"), None, None),
        ],
    }
}

#[test]
fn finds_a_string_of_the_metadata() {
    let metadata = json!({"@type": "type.googleapis.com/google.protobuf.Struct",
        "value": {"A": {"CLUSTER_ID": "inner"}, "B": ["CLUSTER_ID", 7], "CLUSTER_ID": "c1", "CLUSTER_ID2": "other", "N": 3}});
    let with = |metadata: bytes::Bytes| Connection { metadata, ..connection() };
    let known = with(wire::json::from_value(&metadata).unwrap().value);
    for (key, text) in [("CLUSTER_ID", "c1"), ("CLUSTER_ID2", "other"), ("N", ""), ("CLUSTER", "")] {
        assert_eq!(metadata_text(&known, key), text, "{key}");
    }
    // The value before the key, which protobuf allows; and invalid bytes.
    let turned = [0x0a, 0x09, 0x12, 0x04, 0x1a, 0x02, b'c', b'2', 0x0a, 0x01, b'K'];
    assert_eq!(metadata_text(&with(bytes::Bytes::copy_from_slice(&turned)), "K"), "c2");
    assert_eq!(metadata_text(&with(bytes::Bytes::from_static(&[0x0a, 0xff, 0x01])), "K"), "");
}

#[test]
fn syncz_has_istiods_keys() {
    let expected = json!([{
        "cluster_id": "c1", "proxy": "cart-1.shop", "proxy_type": "sidecar", "proxy_version": "1.32.0", "istio_version": "1.32.0",
        "cluster_sent": "n2", "cluster_acked": "n2", "listener_sent": "n2", "listener_acked": "n1", "route_sent": "n2",
        "resources": {
            TypeUrl::Cluster.url(): {"sent": "n2", "acked": "n2", "sentTime": "1970-01-01T00:00:01.500Z"},
            TypeUrl::Endpoints.url(): {"sent": "", "acked": "", "sentTime": ""},
            TypeUrl::Listener.url(): {"sent": "n2", "acked": "n1", "sentTime": "1970-01-01T00:00:01.500Z", "lastError": "no such filter"},
            TypeUrl::Route.url(): {"sent": "n2", "acked": "", "sentTime": "1970-01-01T00:00:01.500Z"},
        },
    }]);
    let shown = |namespace| json!(syncz(&[connection()], namespace));
    assert_eq!(shown(None), expected);
    assert_eq!(shown(Some("shop")), expected);
    assert_eq!(shown(Some("bank")), json!([]));
}

#[test]
fn resources_known_at_reconnection_are_synced() {
    let resumed = WatchInfo { resumed: true, ..watched(TypeUrl::Cluster, None, None, None) };
    let connection = Connection { watched: vec![resumed], ..connection() };
    let item = &json!(syncz(std::slice::from_ref(&connection), None))[0];
    assert_eq!((&item["cluster_sent"], &item["cluster_acked"]), (&json!("resumed"), &json!("resumed")));
    assert_eq!(proxies(&[connection])[0].types["CDS"].state, SyncState::Synced);
}

#[test]
fn adsz_has_istiods_keys() {
    let expected = json!({"totalClients": 1, "clients": [{
        "connectionId": "cart-1.shop-7", "connectedAt": "1970-01-01T00:00:00.000Z", "address": "10.0.0.7:4711",
        "labels": {"app": "cart"}, "metadata": {"CLUSTER_ID": "c1", "LABELS": {"app": "cart"}, "NAMESPACE": "shop"}, "locality": {"region": "r1", "zone": "z1"},
        "watches": {"CDS": ["*"], "EDS": ["80"], "LDS": ["*"], "RDS": ["80"]},
    }]});
    assert_eq!(adsz(&[connection()]), expected);
}

#[test]
fn connections_have_three_keys() {
    let expected = json!({"totalClients": 1, "clients": [
        {"connectionId": "cart-1.shop-7", "connectedAt": "1970-01-01T00:00:00.000Z", "address": "10.0.0.7:4711"},
    ]});
    assert_eq!(connections(&[connection()]), expected);
}

#[test]
fn the_state_follows_from_nonces_and_errors() {
    let states: Vec<_> = proxies(&[connection()])[0]
        .types
        .iter()
        .map(|(kind, it)| (kind.clone(), it.state, it.reason.clone()))
        .collect();
    let state = |kind: &str, state, reason: &str| (kind.to_owned(), state, reason.to_owned());
    assert_eq!(
        states,
        [
            state("CDS", SyncState::Synced, ""),
            state("EDS", SyncState::NotSent, ""),
            state("LDS", SyncState::Error, "no such filter"),
            state("RDS", SyncState::Stale, ""),
        ]
    );
    assert_eq!(watched(TypeUrl::Cluster, Some("n2"), Some("n1"), None).status(), SyncStatus::Stale);
}

#[test]
fn proxies_are_sorted_by_namespace_and_name() {
    let named = |id: &str, namespace: &str| {
        let proxy = ProxyInfo { id: id.into(), namespace: namespace.into(), ..ProxyInfo::default() };
        Connection { proxy: Arc::new(proxy), ..connection() }
    };
    let listed = proxies(&[named("b.shop", "shop"), named("z.bank", "bank"), named("a.shop", "shop")]);
    assert_eq!(listed.iter().map(|it| it.proxy.as_str()).collect::<Vec<_>>(), ["z.bank", "a.shop", "b.shop"]);
}

#[test]
fn a_dump_has_its_sections_in_order_and_hides_keys() {
    let sections = |endpoints| {
        let dump = config_dump::document(&FakeClass, endpoints, None);
        let configs = dump["configs"].as_array().unwrap().clone();
        configs
            .iter()
            .map(|it| it["@type"].as_str().unwrap().rsplit('.').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let all = ["Bootstrap", "Clusters", "Endpoints", "Listeners", "ScopedRoutes", "Routes", "Secrets", "Ecds"];
    assert_eq!(sections(Endpoints::Included), all.map(|name| format!("{name}ConfigDump")));
    assert_eq!(sections(Endpoints::Excluded).len(), 7);
    let dump = config_dump::document(&FakeClass, Endpoints::Included, None);
    assert_eq!(dump["configs"][1]["dynamicActiveClusters"][0]["versionInfo"], "v-outbound|80||a.b");
    assert_eq!(dump["configs"][1]["dynamicActiveClusters"][0]["cluster"]["name"], "outbound|80||a.b");
    assert_eq!(dump["configs"][3]["dynamicListeners"][0]["activeState"]["listener"]["name"], "virtualOutbound");
    let extensions = config_dump::resources(&FakeClass, TypeUrl::Extension);
    for shown in [1, 3, 6, 7].map(|section| &dump["configs"][section]).into_iter().chain([&extensions]) {
        let text = shown.to_string();
        assert!(text.contains("public") && !text.contains("hush"), "{text}");
    }
}

/// The dump must decode as Envoy's own types.
#[test]
fn a_dump_is_an_envoy_message() {
    let dump = config_dump::document(&FakeClass, Endpoints::Included, None);
    for section in dump["configs"].as_array().unwrap() {
        wire::json::from_value(section).unwrap();
    }
}
