//! What a proxy should hold, in the form of Envoy's own `config_dump`, so that the two can be compared.

use prost::Message;
use serde_json::{Map, Value, json};
use wire::envoy::service::discovery::v3::DiscoveryResponse;
use xds::{Class, Resource, TypeUrl, Variant};

/// Whether load assignments are shown; Envoy leaves them out too unless asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoints {
    Shown,
    Hidden,
}

/// The sections in Envoy's order: bootstrap, clusters, endpoints, listeners, scoped routes, routes, secrets, extensions.
pub(crate) fn sections(class: &dyn Class, endpoints: Endpoints) -> Vec<Value> {
    let mut sections = vec![section("Bootstrap"), clusters(class)];
    if endpoints == Endpoints::Shown {
        sections.push(load_assignments(class));
    }
    sections.extend([listeners(class), section("ScopedRoutes"), routes(class), secrets(class), extensions(class)]);
    sections
}

/// `types`: short names or type URLs with commas between them. `None`: all.
pub(crate) fn selected(class: &dyn Class, endpoints: Endpoints, types: Option<&str>) -> Value {
    let mut sections = sections(class, endpoints);
    if let Some(types) = types.filter(|types| !types.is_empty()) {
        let wanted: Vec<&str> = types.split(',').map(str::trim).collect();
        let asked = |(kind, name): (TypeUrl, &str), section: &Value| {
            let is = wanted.iter().any(|it| it.eq_ignore_ascii_case(kind.short()) || *it == kind.url());
            is && section["@type"].as_str().is_some_and(|url| url.ends_with(&format!(".{name}ConfigDump")))
        };
        sections.retain(|section| KINDS.into_iter().any(|kind| asked(kind, section)));
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
    class.since(kind, 0).changed.iter().flat_map(|resource| opened(resource)).collect()
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
        |resource, opened| json!({"versionInfo": version(resource), "cluster": opened}),
    )
}

fn load_assignments(class: &dyn Class) -> Value {
    with_list(
        section("Endpoints"),
        "dynamicEndpointConfigs",
        class,
        TypeUrl::Endpoints,
        |resource, opened| json!({"versionInfo": version(resource), "endpointConfig": opened}),
    )
}

fn listeners(class: &dyn Class) -> Value {
    with_list(
        section("Listeners"),
        "dynamicListeners",
        class,
        TypeUrl::Listener,
        |resource, opened| json!({"name": &*resource.name, "activeState": {"versionInfo": version(resource), "listener": opened}}),
    )
}

fn routes(class: &dyn Class) -> Value {
    with_list(
        section("Routes"),
        "dynamicRouteConfigs",
        class,
        TypeUrl::Route,
        |resource, opened| json!({"versionInfo": version(resource), "routeConfig": opened}),
    )
}

fn secrets(class: &dyn Class) -> Value {
    with_list(section("Secrets"), "dynamicActiveSecrets", class, TypeUrl::Secret, |resource, mut opened| {
        redact(&mut opened);
        json!({"name": &*resource.name, "versionInfo": version(resource), "secret": opened})
    })
}

fn extensions(class: &dyn Class) -> Value {
    with_list(section("Ecds"), "ecdsFilters", class, TypeUrl::Extension, |resource, mut opened| {
        redact(&mut opened);
        json!({"versionInfo": version(resource), "ecdsFilter": opened})
    })
}

fn with_list(
    mut section: Value,
    key: &str,
    class: &dyn Class,
    kind: TypeUrl,
    entry: impl Fn(&Resource, Value) -> Value,
) -> Value {
    let everything = class.since(kind, 0);
    let entries: Vec<Value> =
        everything.changed.iter().flat_map(|resource| opened(resource).map(|opened| entry(resource, opened))).collect();
    if !entries.is_empty() {
        section[key] = entries.into();
    }
    section
}

fn version(resource: &Resource) -> &str {
    &resource.version
}

/// The messages in one encoded entry: one, or none if it does not decode.
fn opened(resource: &Resource) -> impl Iterator<Item = Value> {
    let response = DiscoveryResponse::decode(resource.entry(Variant::Sotw)).unwrap_or_default();
    response.resources.into_iter().map(|any| wire::json::to_value(&any))
}

/// Keys never leave the process on a page, however deep they stand.
fn redact(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                if key == "ISTIO_META_WASM_IMAGE_PULL_SECRET" {
                    *inner = "<Redacted>".into();
                } else if matches!(key.as_str(), "privateKey" | "password" | "genericSecret" | "sessionTicketKeys") {
                    *inner = redacted();
                } else {
                    redact(inner);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

/// A DataSource whose text is istiod's word for a hidden key, in base64 as JSON has bytes.
fn redacted() -> Value {
    Value::Object(Map::from_iter([("inlineBytes".to_owned(), Value::from("W3JlZGFjdGVkXQ=="))]))
}
