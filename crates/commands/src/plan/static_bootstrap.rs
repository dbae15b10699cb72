//! The resources of one proxy as a static bootstrap, for `envoy --mode validate`. Routes and extension configurations, which Envoy gets by name,
//! stand where they are used: in the listeners.

use admin::PlannedResource;
use serde_json::{Map, Value, json};

/// The configuration under test: a resource and the message that it has there.
pub(super) type Chosen<'a> = Vec<(&'a PlannedResource, &'a Value)>;

pub(super) fn document(proxy: &str, resources: &Chosen<'_>) -> Value {
    let of = |kind: &str| -> Vec<(String, Value)> {
        let found = resources.iter().filter(|(it, _)| it.kind == kind);
        found.map(|(it, message)| (it.name.clone(), untyped(message))).collect()
    };
    let messages = |kind: &str| of(kind).into_iter().map(|(_, message)| message);
    let [routes, extensions] = ["rds", "ecds"].map(|kind| of(kind).into_iter().collect());
    let inlined = InlinedResources { routes, extensions };
    let mut listeners: Vec<Value> = messages("lds").collect();
    listeners.iter_mut().for_each(|listener| inlined.put_into(listener));
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": 1}});
    let own = ["xds-grpc", "sds-grpc"].map(|name| control_plane(name, &address));
    json!({
        "node": {"id": proxy, "cluster": proxy},
        "dynamic_resources": {"ads_config": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
        }},
        // As in the bootstrap of proxies.
        "layered_runtime": {"layers": [
            {"name": "static", "static_layer": {"re2.max_program_size.error_level": 32768}},
        ]},
        "static_resources": {
            "clusters": own.into_iter().chain(messages("cds")).collect::<Vec<_>>(),
            "listeners": listeners,
        },
    })
}

/// It is named by the resources and never called.
fn control_plane(name: &str, address: &Value) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]},
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }},
    })
}

fn untyped(message: &Value) -> Value {
    let mut message = message.clone();
    message.as_object_mut().and_then(|fields| fields.remove("@type"));
    message
}

struct InlinedResources {
    routes: Map<String, Value>,
    extensions: Map<String, Value>,
}

impl InlinedResources {
    fn put_into(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(route) = fields.get("rds").and_then(|rds| self.routes.get(rds["routeConfigName"].as_str()?))
                {
                    fields.remove("rds");
                    fields.insert("routeConfig".to_owned(), as_dynamic(route));
                }
                if fields.contains_key("configDiscovery")
                    && let Some(config) = fields["name"].as_str().and_then(|name| self.extension(name))
                {
                    fields.remove("configDiscovery");
                    fields.insert("typedConfig".to_owned(), config);
                }
                fields.values_mut().for_each(|inner| self.put_into(inner));
            }
            Value::Array(items) => items.iter_mut().for_each(|inner| self.put_into(inner)),
            _ => {}
        }
    }

    /// Not those whose code Envoy would have to fetch.
    fn extension(&self, name: &str) -> Option<Value> {
        let config = self.extensions.get(name)?.get("typedConfig")?;
        let is_remote = config.pointer("/config/vmConfig/code/remote").is_some();
        (!is_remote).then(|| config.clone())
    }
}

/// The clusters of a route that Envoy gets by name need not exist, unless it says so.
fn as_dynamic(route: &Value) -> Value {
    let mut route = route.clone();
    if let Some(fields) = route.as_object_mut() {
        fields.entry("validateClusters").or_insert(Value::Bool(false));
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(kind: &str, name: &str) -> PlannedResource {
        PlannedResource {
            kind: kind.to_owned(),
            name: name.to_owned(),
            objects: Vec::new(),
            changes: false,
            before: None,
            after: None,
            redacted: false,
        }
    }

    #[test]
    fn routes_and_extensions_stand_in_the_listeners_that_name_them() {
        let [listener, route, extension, remote] =
            [("lds", "a"), ("rds", "80"), ("ecds", "x"), ("ecds", "y")].map(|(kind, name)| resource(kind, name));
        let filters = json!([{"name": "x", "configDiscovery": {}}, {"name": "y", "configDiscovery": {}}]);
        let message = json!({"@type": "L", "name": "a", "rds": {"routeConfigName": "80"}, "httpFilters": filters});
        let (routes, config) = (json!({"@type": "R", "name": "80"}), json!({"typedConfig": {"@type": "X"}}));
        let fetched = json!({"typedConfig": {"config": {"vmConfig": {"code": {"remote": {}}}}}});
        let chosen = vec![(&listener, &message), (&route, &routes), (&extension, &config), (&remote, &fetched)];
        let document = document("a.shop", &chosen);
        let expected = json!([{
            "name": "a", "routeConfig": {"name": "80", "validateClusters": false},
            "httpFilters": [{"name": "x", "typedConfig": {"@type": "X"}}, {"name": "y", "configDiscovery": {}}],
        }]);
        assert_eq!(document["static_resources"]["listeners"], expected);
    }
}
