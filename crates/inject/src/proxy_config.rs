//! The ProxyConfig of a pod: istiod's defaults, the mesh config, ProxyConfig objects and the annotation, laid over each other.

use std::sync::LazyLock;

use config::kinds::proxy_config_object::ProxyConfig as ProxyConfigObject;
use config::labels::Labels;
use config::mesh::ProxyConfig;
use config::meta::Object;
use config::ser::to_json;
use config::store::Snapshot;
use serde_json::{Map, Value as Json, json};

use crate::pod::Pod;

pub(crate) const ANNOTATION: &str = "proxy.istio.io/config";

/// Fields for which a zero is a value, since their types are wrappers.
const WRAPPERS: [&str; 3] = ["concurrency", "holdApplicationUntilProxyStarts", "statsCompression"];

/// istiod's defaults.
static MESH_DEFAULT: LazyLock<Map<String, Json>> = LazyLock::new(|| written(&ProxyConfig::mesh_default()));

/// As protobuf's JSON.
pub(crate) fn effective(pod: &Pod, objects: &Snapshot) -> Map<String, Json> {
    let namespace = pod.meta("namespace");
    let root = objects.mesh.root_namespace.as_str();
    let mut config = MESH_DEFAULT.clone();
    merge(&mut config, written(&objects.mesh.default_config));
    let mut wide = vec![root];
    if namespace != root {
        wide.push(namespace);
    }
    for namespace in wide {
        if let Some(object) = oldest(objects, namespace, |spec| spec.selector.is_none()) {
            merge(&mut config, of_object(object));
        }
    }
    if let Some(Ok(annotated)) = pod.annotation(ANNOTATION).map(ProxyConfig::of_annotation) {
        merge(&mut config, written(&annotated));
    }
    let labels: Labels = pod.labels().collect();
    let selected = oldest(objects, namespace, |spec| {
        spec.selector.as_ref().is_some_and(|it| !it.match_labels.is_empty() && it.match_labels.is_subset_of(&labels))
    });
    if let Some(object) = selected {
        merge(&mut config, of_object(object));
    }
    config
}

/// Whether the application waits for the proxy. As in istiod, ProxyConfig objects have no say.
pub(crate) fn holds_application(pod: &Pod, mesh: &ProxyConfig) -> bool {
    let annotated = pod.annotation(ANNOTATION).and_then(|text| ProxyConfig::of_annotation(text).ok());
    let annotated = annotated.and_then(|config| config.hold_application_until_proxy_starts);
    annotated.or(mesh.hold_application_until_proxy_starts).unwrap_or_default()
}

fn oldest<'a>(
    objects: &'a Snapshot,
    namespace: &str,
    wanted: impl Fn(&ProxyConfigObject) -> bool,
) -> Option<&'a ProxyConfigObject> {
    let found = objects.proxy_configs.values().map(|object| -> &Object<ProxyConfigObject> { object });
    let found = found.filter(|object| &*object.meta.namespace == namespace && wanted(&object.spec));
    found.min_by(|a, b| a.meta.age_order(&b.meta)).map(|object| &object.spec)
}

fn of_object(object: &ProxyConfigObject) -> Map<String, Json> {
    let image = object.image.as_ref().map(to_json).map(|image| if image.is_null() { json!({}) } else { image });
    let metadata = (!object.environment_variables.is_empty()).then(|| to_json(&object.environment_variables));
    let fields = [("concurrency", object.concurrency.map(Json::from)), ("proxyMetadata", metadata), ("image", image)];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Zeros of plain fields are not written, as between istiod's levels.
fn written(config: &ProxyConfig) -> Map<String, Json> {
    let Json::Object(mut fields) = to_json(config) else { return Map::new() };
    let is_zero = |value: &Json| match value {
        Json::Null => true,
        Json::Bool(value) => !value,
        Json::Number(number) => number.as_f64() == Some(0.0),
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(_) => false,
    };
    fields.retain(|name, value| !is_zero(value) || WRAPPERS.contains(&name.as_str()) && !value.is_null());
    fields
}

/// Metadata and headers are merged key by key, other fields replaced.
fn merge(config: &mut Map<String, Json>, over: Map<String, Json>) {
    for (name, value) in over {
        match name.as_str() {
            // A oneof.
            "serviceCluster" => drop(config.remove("tracingServiceName")),
            "tracingServiceName" => drop(config.remove("serviceCluster")),
            _ => {}
        }
        match (config.get_mut(&name), value) {
            (Some(Json::Object(known)), Json::Object(more))
                if matches!(name.as_str(), "proxyMetadata" | "proxyHeaders") =>
            {
                known.extend(more);
            }
            (_, value) => drop(config.insert(name, value)),
        }
    }
}

/// PROXY_CONFIG says only what differs from istiod's defaults.
pub(crate) fn without_defaults(config: Json) -> Json {
    let Json::Object(mut fields) = config else { return config };
    fields.retain(|name, value| MESH_DEFAULT.get(name) != Some(value));
    Json::Object(fields)
}

#[cfg(test)]
mod tests {
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    use super::*;

    const OBJECTS: &str = "
{apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, metadata: {name: all, namespace: istio-system}, spec: {concurrency: 1, environmentVariables: {A: mesh, B: mesh}}}
---
{apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, metadata: {name: b, namespace: shop, creationTimestamp: '2026-01-02T00:00:00Z'}, spec: {concurrency: 9}}
---
{apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, metadata: {name: c, namespace: shop, creationTimestamp: '2026-01-01T00:00:00Z'}, spec: {concurrency: 2, environmentVariables: {B: space}}}
---
{apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, metadata: {name: one, namespace: shop}, spec: {selector: {matchLabels: {app: cart}}, concurrency: 0}}
";

    fn check(metadata: &Json, name: &str, expected: &Json) {
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let objects = store.apply(parse_documents("f", OBJECTS).objects.into_iter().map(Update::Put).collect());
        let pod = Pod::typed(json!({ "metadata": metadata })).unwrap();
        assert_eq!(effective(&pod, &objects).get(name), Some(expected), "{name}");
    }

    #[test]
    fn later_levels_go_over_earlier_ones_and_the_oldest_object_counts() {
        check(&json!({ "namespace": "bank" }), "concurrency", &json!(1));
        check(&json!({ "namespace": "shop" }), "concurrency", &json!(2));
        check(
            &json!({ "namespace": "shop", "annotations": { ANNOTATION: "concurrency: 7" } }),
            "concurrency",
            &json!(7),
        );
        check(
            &json!({ "namespace": "shop", "labels": { "app": "cart" }, "annotations": { ANNOTATION: "concurrency: 7" } }),
            "concurrency",
            &json!(0),
        );
        check(
            &json!({ "namespace": "shop", "annotations": { ANNOTATION: "proxyMetadata: {C: x}" } }),
            "proxyMetadata",
            &json!({ "A": "mesh", "B": "space", "C": "x" }),
        );
        check(
            &json!({ "namespace": "shop", "annotations": { ANNOTATION: "statusPort: 0" } }),
            "statusPort",
            &json!(15020),
        );
    }

    #[test]
    fn proxy_config_says_only_what_is_no_default() {
        let config = json!({ "configPath": "./etc/istio/proxy", "statusPort": 15020, "concurrency": 2 });
        assert_eq!(without_defaults(config), json!({ "concurrency": 2 }));
    }
}
