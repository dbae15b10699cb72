//! The configuration that a proxy should have, in the format of Envoy's `config_dump`, for comparison with it.

use axum::body::Bytes;
use prost::Message;
use serde_json::{Map, Value, json};
use wire::envoy::service::discovery::v3::DiscoveryResponse;
use wire::google::protobuf::Any;
use xds::{Class, Resource, TypeUrl, Variant};

/// Whether load assignments are included; Envoy excludes them by default too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoints {
    Included,
    Excluded,
}

/// The sections in Envoy's order: bootstrap, clusters, endpoints, listeners, scoped routes, routes, secrets, extensions.
pub(crate) fn sections(class: &dyn Class, endpoints: Endpoints) -> Vec<Value> {
    let mut sections = vec![section("Bootstrap"), clusters(class)];
    if endpoints == Endpoints::Included {
        sections.push(load_assignments(class));
    }
    sections.extend([listeners(class), section("ScopedRoutes"), routes(class), secrets(class), extensions(class)]);
    sections
}

/// `types`: short names or type URLs with commas between them. `None`: all.
pub(crate) fn document(class: &dyn Class, endpoints: Endpoints, types: Option<&str>) -> Value {
    let mut sections = sections(class, endpoints);
    if let Some(types) = types.filter(|types| !types.is_empty()) {
        let requested: Vec<&str> = types.split(',').map(str::trim).collect();
        let is_requested = |(kind, name): (TypeUrl, &str), section: &Value| {
            let has_type = requested.iter().any(|it| it.eq_ignore_ascii_case(kind.short()) || *it == kind.url());
            has_type && section["@type"].as_str().is_some_and(|url| url.ends_with(&format!(".{name}ConfigDump")))
        };
        sections.retain(|section| KINDS.into_iter().any(|kind| is_requested(kind, section)));
    }
    json!({"configs": sections})
}

const KINDS: [(TypeUrl, &str); 6] = [
    (TypeUrl::Cluster, "Clusters"),
    (TypeUrl::Endpoints, "Endpoints"),
    (TypeUrl::Listener, "Listeners"),
    (TypeUrl::Route, "Routes"),
    (TypeUrl::Secret, "Secrets"),
    (TypeUrl::Extension, "Ecds"),
];

/// Load assignments alone, as `edsz` shows them.
pub(crate) fn endpoints(class: &dyn Class) -> Value {
    json!({"configs": [load_assignments(class)]})
}

/// The messages of one type.
pub(crate) fn resources(class: &dyn Class, kind: TypeUrl) -> Value {
    class.since(kind, 0).changed.iter().flat_map(|resource| decode(resource)).collect()
}

fn section(name: &str) -> Value {
    json!({"@type": format!("type.googleapis.com/envoy.admin.v3.{name}ConfigDump")})
}

fn clusters(class: &dyn Class) -> Value {
    with_list(
        section("Clusters"),
        "dynamicActiveClusters",
        class,
        TypeUrl::Cluster,
        |resource, decoded| json!({"versionInfo": version(resource), "cluster": decoded}),
    )
}

fn load_assignments(class: &dyn Class) -> Value {
    with_list(
        section("Endpoints"),
        "dynamicEndpointConfigs",
        class,
        TypeUrl::Endpoints,
        |resource, decoded| json!({"versionInfo": version(resource), "endpointConfig": decoded}),
    )
}

fn listeners(class: &dyn Class) -> Value {
    with_list(
        section("Listeners"),
        "dynamicListeners",
        class,
        TypeUrl::Listener,
        |resource, decoded| json!({"name": &*resource.name, "activeState": {"versionInfo": version(resource), "listener": decoded}}),
    )
}

fn routes(class: &dyn Class) -> Value {
    with_list(
        section("Routes"),
        "dynamicRouteConfigs",
        class,
        TypeUrl::Route,
        |resource, decoded| json!({"versionInfo": version(resource), "routeConfig": decoded}),
    )
}

fn secrets(class: &dyn Class) -> Value {
    with_list(
        section("Secrets"),
        "dynamicActiveSecrets",
        class,
        TypeUrl::Secret,
        |resource, decoded| json!({"name": &*resource.name, "versionInfo": version(resource), "secret": decoded}),
    )
}

fn extensions(class: &dyn Class) -> Value {
    with_list(
        section("Ecds"),
        "ecdsFilters",
        class,
        TypeUrl::Extension,
        |resource, decoded| json!({"versionInfo": version(resource), "ecdsFilter": decoded}),
    )
}

fn with_list(
    mut section: Value,
    key: &str,
    class: &dyn Class,
    kind: TypeUrl,
    entry: impl Fn(&Resource, Value) -> Value,
) -> Value {
    let all = class.since(kind, 0);
    let entries: Vec<Value> =
        all.changed.iter().flat_map(|resource| decode(resource).map(|decoded| entry(resource, decoded))).collect();
    if !entries.is_empty() {
        section[key] = entries.into();
    }
    section
}

fn version(resource: &Resource) -> &str {
    &resource.version
}

/// The messages in one encoded entry: one, or none if it does not decode. Secrets are redacted in all of them: an EnvoyFilter can put a key
/// into a cluster or listener.
pub(crate) fn decode(resource: &Resource) -> impl Iterator<Item = Value> {
    messages(resource.entry(Variant::Sotw)).into_iter().map(|any| redacted(&any))
}

/// The message without secrets.
pub(crate) fn redacted(any: &Any) -> Value {
    let mut decoded = wire::json::to_value(any);
    redact(&mut decoded);
    decoded
}

/// The message, private keys included.
pub(crate) fn unredacted_message(resource: &Resource) -> Option<Any> {
    messages(resource.entry(Variant::Sotw)).into_iter().next()
}

/// What an entry of a response holds.
pub(crate) fn messages(entry: Bytes) -> Vec<Any> {
    DiscoveryResponse::decode(entry).unwrap_or_default().resources
}

/// Private keys and the like are redacted at any depth. What is left is a message of the same type.
fn redact(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                match (key.as_str(), &*inner) {
                    ("ISTIO_META_WASM_IMAGE_PULL_SECRET", _) => *inner = "<Redacted>".into(),
                    ("privateKey" | "password", Value::String(_)) => *inner = "[redacted]".into(),
                    ("privateKey" | "password", _) => *inner = redacted_data_source(),
                    ("genericSecret", _) => *inner = json!({"secret": redacted_data_source()}),
                    ("sessionTicketKeys", _) => *inner = json!({"keys": [redacted_data_source()]}),
                    _ => redact(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

/// A DataSource with istiod's text for a redacted key, in base64 as JSON has bytes.
fn redacted_data_source() -> Value {
    Value::Object(Map::from_iter([("inlineBytes".to_owned(), Value::from("W3JlZGFjdGVkXQ=="))]))
}
