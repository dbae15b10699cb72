//! Edits of EnvoyFilters and WasmPlugins: patches that interact with each other and with edits of what they patch.

use proptest::prelude::*;

/// The name of an object, its workload selector, and its variant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectVariant {
    pub(crate) ns: u8,
    pub(crate) name: u8,
    app: u8,
    shape: u8,
}

impl ObjectVariant {
    /// Renames a cluster of `bank`, both outbound and inbound.
    pub(crate) fn renaming(name: u8) -> Self {
        Self { ns: 1, name, app: 3, shape: 14 }
    }
}

pub(crate) fn variant() -> impl Strategy<Value = ObjectVariant> {
    (0..3u8, 0..3u8, 0..6u8, 0..19u8).prop_map(|(ns, name, app, shape)| ObjectVariant { ns, name, app, shape })
}

pub(crate) fn filter(ObjectVariant { name, app, shape, .. }: ObjectVariant, ns: &str) -> String {
    let selector = if app < 3 { format!("workloadSelector: {{labels: {{app: a{app}}}}}, ") } else { String::new() };
    let lua = "name: lua, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: 'x'}}";
    let router = "filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}";
    let patch = match shape {
        0 => format!(
            "applyTo: HTTP_FILTER, match: {{listener: {{{router}}}}}, patch: {{operation: INSERT_BEFORE, value: {{{lua}}}}}"
        ),
        1 => format!(
            "applyTo: HTTP_FILTER, match: {{context: SIDECAR_INBOUND, listener: {{{router}}}}}, patch: {{operation: INSERT_BEFORE, value: {{{lua}}}}}"
        ),
        2 => format!(
            "applyTo: CLUSTER, match: {{cluster: {{service: s{name}.shop.svc.cluster.local}}}}, patch: {{operation: MERGE, value: {{connect_timeout: {app}.5s}}}}"
        ),
        3 => format!(
            "applyTo: CLUSTER, match: {{context: SIDECAR_OUTBOUND, cluster: {{name: 'outbound|80||s{name}.shop.svc.cluster.local'}}}}, patch: {{operation: REMOVE}}"
        ),
        4 => format!(
            "applyTo: CLUSTER, match: {{context: SIDECAR_INBOUND}}, patch: {{operation: ADD, value: {{name: extra{name}}}}}"
        ),
        5 => format!(
            "applyTo: CLUSTER, patch: {{operation: ADD, value: {{name: 'outbound|80||s{name}.shop.svc.cluster.local', connect_timeout: {app}s}}}}"
        ),
        6 => format!(
            "applyTo: ROUTE_CONFIGURATION, match: {{routeConfiguration: {{portNumber: 80}}}}, patch: {{operation: MERGE, value: {{request_headers_to_remove: [x{app}]}}}}"
        ),
        7 => format!(
            "applyTo: VIRTUAL_HOST, match: {{routeConfiguration: {{vhost: {{name: 's{name}.shop.svc.cluster.local:80'}}}}}}, patch: {{operation: MERGE, value: {{request_headers_to_remove: [y{app}]}}}}"
        ),
        8 => format!(
            "applyTo: HTTP_ROUTE, match: {{context: SIDECAR_OUTBOUND}}, patch: {{operation: INSERT_FIRST, value: {{name: r{app}, direct_response: {{status: 200}}}}}}"
        ),
        9 => format!(
            "applyTo: LISTENER, match: {{listener: {{portNumber: 80}}}}, patch: {{operation: MERGE, value: {{per_connection_buffer_limit_bytes: 1{app}}}}}"
        ),
        10 => format!("applyTo: LISTENER, patch: {{operation: ADD, value: {{name: '0.0.0.0_8{app}'}}}}"),
        11 => format!(
            "applyTo: EXTENSION_CONFIG, patch: {{operation: ADD, value: {{name: x{name}, typed_config: {{'@type': type.googleapis.com/google.protobuf.StringValue, value: '{app}'}}}}}}"
        ),
        12 => "applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: soon}}".to_owned(),
        13 => format!(
            "applyTo: CLUSTER, match: {{context: SIDECAR_INBOUND}}, patch: {{operation: MERGE, value: {{name: renamed{app}}}}}"
        ),
        14 => format!(
            "applyTo: CLUSTER, match: {{cluster: {{service: s{name}.bank.svc.cluster.local}}}}, patch: {{operation: MERGE, value: {{name: renamed{app}}}}}"
        ),
        15 => format!(
            "applyTo: NETWORK_FILTER, match: {{listener: {{filterChain: {{filter: {{name: envoy.filters.network.http_connection_manager}}}}}}}}, patch: {{operation: MERGE, value: {{typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stream_idle_timeout: {app}s, tracing: {{max_path_tag_length: {app}}}}}}}}}"
        ),
        16 => format!(
            "applyTo: NETWORK_FILTER, patch: {{operation: INSERT_FIRST, value: {{name: sni{app}, typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster}}}}}}"
        ),
        17 => format!(
            "applyTo: LISTENER, match: {{listener: {{name: virtualInbound}}}}, patch: {{operation: MERGE, value: {{stat_prefix: x{app}}}}}"
        ),
        _ => "applyTo: LISTENER, match: {listener: {portNumber: 80}}, patch: {operation: REMOVE}".to_owned(),
    };
    format!(
        "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: f{name}, namespace: {ns}}}, spec: {{{selector}configPatches: [{{{patch}}}]}}}}"
    )
}

pub(crate) fn plugin(ObjectVariant { name, app, shape, .. }: ObjectVariant, ns: &str) -> String {
    if shape == 13 {
        return format!(
            "{{apiVersion: extensions.istio.io/v1alpha1, kind: TrafficExtension, metadata: {{name: w{name}, namespace: {ns}}}, spec: {{lua: {{inlineCode: 'x{app}'}}}}}}"
        );
    }
    let selector = if app < 3 { format!("selector: {{matchLabels: {{app: a{app}}}}}, ") } else { String::new() };
    let spec = match shape % 5 {
        0 => "phase: AUTHN",
        1 => "match: [{mode: SERVER}], pluginConfig: {a: 1}",
        2 => "match: [{mode: SERVER}], pluginConfig: {a: 2}",
        3 => "type: NETWORK, match: [{mode: CLIENT, ports: [{number: 5432}]}]",
        _ => "priority: 7",
    };
    format!(
        "{{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {{name: w{name}, namespace: {ns}}}, spec: {{{selector}url: 'oci://a/b', {spec}}}}}"
    )
}
