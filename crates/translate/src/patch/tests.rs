//! Patches applied to small messages, and hostile values.

use std::sync::Arc;

use config::kinds::envoy_filter::ApplyTo;
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Environment, Mesh, NodeInfo, Placement, Proxy};
use wire::envoy::config::cluster::v3::{Cluster, cluster::TransportSocketMatch};
use wire::envoy::config::core::v3::{TransportSocket, transport_socket::ConfigType};
use wire::envoy::config::listener::v3::{Filter, FilterChain, Listener, ListenerFilter};
use wire::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use wire::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use wire::google::protobuf::{Any, StringValue};

use super::*;
use crate::translated::Translated;

/// A sidecar and the patches that apply to it.
fn placed(patches: &[&str]) -> (Mesh, Placement) {
    let text = format!(
        "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: f, namespace: shop}}, spec: {{configPatches: [{}]}}}}",
        patches.join(", ")
    );
    let parsed = parse_documents("f.yaml", &text);
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    store.apply(parsed.objects.into_iter().map(Update::Put).collect());
    let mesh = Mesh::new(&store.snapshot(), &Arc::new(Environment::default()));
    let info = NodeInfo { id: "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local".into(), ..NodeInfo::default() };
    let placement = mesh.place(&Arc::new(Proxy::new(&info).expect("well-formed")));
    (mesh, placement)
}

fn patched_cluster(patches: &[&str], cluster: Cluster) -> Option<Cluster> {
    let (_, placement) = placed(patches);
    ClusterPatches::outbound(&placement.patches.outbound).patch(Translated::built_in(cluster)).map(|made| made.value)
}

fn socket(name: &str, config: &UpstreamTlsContext) -> TransportSocket {
    TransportSocket { name: name.into(), config_type: Some(ConfigType::TypedConfig(wire::any::pack(config))) }
}

fn tls(sni: &str) -> UpstreamTlsContext {
    UpstreamTlsContext { sni: sni.into(), ..UpstreamTlsContext::default() }
}

const SOCKET: &str = "{applyTo: CLUSTER, patch: {operation: MERGE, value: {alt_stat_name: left-out, transport_socket: {name: tls, typed_config: {'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, allow_renegotiation: true}}}}}";

#[test]
fn a_patch_with_a_transport_socket_merges_nothing_else() {
    let opened = |socket: &TransportSocket| match &socket.config_type {
        Some(ConfigType::TypedConfig(any)) => wire::any::unpack::<UpstreamTlsContext>(any).expect("TLS"),
        None => panic!("no configuration"),
    };
    let plain = Cluster { transport_socket: Some(socket("tls", &tls("a"))), ..Cluster::default() };
    let merged = patched_cluster(&[SOCKET], plain).expect("kept");
    let own = opened(merged.transport_socket.as_ref().expect("a socket"));
    assert!(merged.alt_stat_name.is_empty() && own.sni == "a" && own.allow_renegotiation);

    let choice = |name: &str| TransportSocketMatch {
        transport_socket: Some(socket(name, &tls("b"))),
        ..TransportSocketMatch::default()
    };
    let several = Cluster { transport_socket_matches: vec![choice("raw"), choice("tls")], ..Cluster::default() };
    let merged = patched_cluster(&[SOCKET], several).expect("kept");
    let renegotiates =
        |one: &TransportSocketMatch| opened(one.transport_socket.as_ref().expect("set")).allow_renegotiation;
    assert_eq!(merged.transport_socket_matches.iter().map(renegotiates).collect::<Vec<_>>(), [false, true]);
    assert_eq!(merged.transport_socket, None, "Envoy rejects it beside socket matches");

    let bare = patched_cluster(&[SOCKET], Cluster::default()).expect("kept");
    assert_eq!(opened(bare.transport_socket.as_ref().expect("set")).sni, "");
}

#[test]
fn a_cluster_is_matched_by_name_or_by_its_parts() {
    let removed = |wanted: &str, name: &str| {
        let patch = format!("{{applyTo: CLUSTER, match: {{cluster: {wanted}}}, patch: {{operation: REMOVE}}}}");
        patched_cluster(&[&patch], Cluster { name: name.into(), ..Cluster::default() }).is_none()
    };
    let name = "outbound|80|v1|a.b";
    for (wanted, want) in [
        ("{name: 'outbound|80|v1|a.b', portNumber: 9}", true),
        ("{name: a.b}", false),
        ("{service: a.b}", true),
        ("{service: a.b, subset: v2}", false),
        ("{portNumber: 80, subset: v1}", true),
        ("{portNumber: 81}", false),
        ("{}", true),
    ] {
        assert_eq!(removed(wanted, name), want, "{wanted}");
    }
    assert!(!removed("{portNumber: 80}", "PassthroughCluster") && removed("{service: a.b}", "outbound_.80_._.a.b"));
}

fn filters(names: &[&str]) -> Vec<Filter> {
    names.iter().map(|name| Filter { name: (*name).into(), ..Filter::default() }).collect()
}

/// The filter names of a chain with `a`, `b` and `a` after one patch.
fn edited(operation: &str, wanted: Option<&str>) -> String {
    let chain = wanted.map(|name| format!("filterChain: {{filter: {{name: {name}}}}}")).unwrap_or_default();
    let patch = format!(
        "{{applyTo: NETWORK_FILTER, match: {{listener: {{{chain}}}}}, patch: {{operation: {operation}, value: {{name: n}}}}}}"
    );
    let (_, placement) = placed(&[&patch]);
    let chain = FilterChain { filters: filters(&["a", "b", "a"]), ..FilterChain::default() };
    let listener = Listener { name: "l".into(), filter_chains: vec![chain], ..Listener::default() };
    let made = patch_listener(&placement.patches.outbound, Translated::built_in(listener)).expect("kept");
    made.value.filter_chains[0].filters.iter().map(|filter| filter.name.as_str()).collect()
}

#[test]
fn every_operation_on_a_list() {
    for (operation, wanted, want) in [
        ("ADD", None, "aban"),
        ("ADD", Some("b"), "aban"),
        ("INSERT_FIRST", Some("b"), "naba"),
        ("INSERT_BEFORE", None, "naba"),
        ("INSERT_BEFORE", Some("b"), "anba"),
        ("INSERT_AFTER", None, "aban"),
        ("INSERT_AFTER", Some("a"), "anba"),
        ("INSERT_AFTER", Some("c"), "aba"),
        ("REPLACE", None, "aba"),
        ("REPLACE", Some("a"), "nba"),
        ("REMOVE", None, "aba"),
        ("REMOVE", Some("a"), "b"),
    ] {
        assert_eq!(edited(operation, wanted), want, "{operation} {wanted:?}");
    }
}

#[test]
fn listener_filters_of_another_type_are_left_alone() {
    let patch = "{applyTo: LISTENER_FILTER, match: {listener: {listenerFilter: own}}, patch: {operation: MERGE, value: {name: own, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}}}";
    let (_, placement) = placed(&[patch]);
    let config = wire::any::pack(&StringValue { value: "x".into() });
    let typed = |config: Any| wire::envoy::config::listener::v3::listener_filter::ConfigType::TypedConfig(config);
    let own = ListenerFilter { name: "own".into(), config_type: Some(typed(config)), ..ListenerFilter::default() };
    let listener = Listener { name: "l".into(), listener_filters: vec![own], ..Listener::default() };
    let made = patch_listener(&placement.patches.outbound, Translated::built_in(listener.clone())).expect("kept");
    assert_eq!((made.value, made.patched.len()), (listener, 0));
}

#[test]
fn routes_are_merged_and_removed_before_insertions() {
    let on = |route: &str, operation: &str, value: &str| {
        format!(
            "{{applyTo: HTTP_ROUTE, match: {{routeConfiguration: {{vhost: {{name: h{route}}}}}}}, patch: {{operation: {operation}, value: {{{value}}}}}}}"
        )
    };
    let patches = [
        on("", "INSERT_FIRST", "name: first"),
        on(", route: {name: b}", "INSERT_BEFORE", "name: before"),
        on(", route: {name: a}", "REMOVE", ""),
        on(", route: {name: first}", "REMOVE", ""),
        on(", route: {name: gone}", "INSERT_AFTER", "name: never"),
        on(", route: {name: b}", "MERGE", "name: c"),
    ];
    let (_, placement) = placed(&patches.each_ref().map(String::as_str));
    let route = |name: &str| Route { name: name.into(), ..Route::default() };
    let host = VirtualHost { name: "h".into(), routes: vec![route("a"), route("b")], ..VirtualHost::default() };
    let routes = RouteConfiguration { name: "80".into(), virtual_hosts: vec![host], ..RouteConfiguration::default() };
    let made = patch_configuration(&placement, Translated::built_in(routes));
    let names: Vec<_> = made.value.virtual_hosts[0].routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["first", "c"], "b has another name by the time that something is put before it");
    assert_eq!(made.patched.iter().map(|id| id.index).collect::<Vec<_>>(), [0, 2, 5]);
}

/// Each value is too large, too deep, or not a message.
#[test]
fn hostile_values_become_diagnostics_and_affect_no_other_patch() {
    let deep = format!("{}1{}", "{a: ".repeat(85), "}".repeat(85));
    let large = "x".repeat(1 << 20);
    let wide = "{name: a}, ".repeat(80_000);
    let values = [
        format!("metadata: {{filter_metadata: {{k: {deep}}}}}"),
        format!("alt_stat_name: {large}"),
        format!("filters: [{wide}]"),
        "connect_timeout: soon".to_owned(),
        "name: {a: b}".to_owned(),
        "filters: [{typed_config: {'@type': type.googleapis.com/example.NoSuchType}}]".to_owned(),
        "filters: [{typed_config: {a: b}}]".to_owned(),
        "type: EDS, cluster_type: {name: x}".to_owned(),
        "lb_policy: [1]".to_owned(),
    ];
    let patch = |value: &String| format!("{{applyTo: CLUSTER, patch: {{operation: MERGE, value: {{{value}}}}}}}");
    let mut patches: Vec<_> = values.iter().map(patch).collect();
    patches.push(patch(&"alt_stat_name: good".to_owned()));
    let (mesh, placement) = placed(&patches.iter().map(String::as_str).collect::<Vec<_>>());
    read_patches(&mesh);
    let made = ClusterPatches::outbound(&placement.patches.outbound).patch(Translated::built_in(Cluster::default()));
    assert_eq!(made.expect("kept").value.alt_stat_name, "good");
    let diagnostics = mesh.diagnostics();
    let fields: Vec<_> = diagnostics.iter().map(|diagnostic| diagnostic.field.clone()).collect();
    let want: Vec<_> = (0..values.len()).map(|index| format!("spec.configPatches[{index}].patch.value")).collect();
    assert_eq!(fields, want, "{diagnostics:#?}");
    assert!(
        diagnostics
            .iter()
            .all(|diagnostic| diagnostic.what.len() < 400 && diagnostic.what.ends_with("the patch is left out")),
        "{diagnostics:#?}"
    );
}

#[test]
fn a_patch_without_a_match_applies_to_its_whole_kind() {
    let (_, placement) = placed(&["{applyTo: CLUSTER, patch: {operation: MERGE, value: {alt_stat_name: x}}}"]);
    let set = &placement.patches.outbound;
    assert!(
        ClusterPatches::outbound(set).concern("any") && set.has(&[ApplyTo::Cluster]) && !set.has(LISTENER_PATCH_KINDS)
    );
}
