//! The settings of Istio's profiles for the control plane, as values of our chart.

use serde_json::{Value, json};

/// The values of a profile, and why some of it is left out.
pub(super) fn values(name: &str) -> (Value, Option<&'static str>) {
    let nothing = json!({});
    match name {
        "" | "default" | "minimal" => (nothing, None),
        "demo" => (demo(), None),
        "preview" => {
            let metadata = json!({ "ISTIO_META_DNS_CAPTURE": "true" });
            (json!({ "meshConfig": { "defaultConfig": { "proxyMetadata": metadata } } }), None)
        }
        "stable" => {
            (nothing, Some("the policy for stable features has no place in the chart; its webhook still checks"))
        }
        "ambient" | "openshift-ambient" => {
            (nothing, Some("this version serves sidecars and gateways, not ambient mode"))
        }
        "openshift" => (nothing, Some("it is about the CNI plugin, which has a chart of its own, istio/cni")),
        "remote" => (nothing, Some("a control plane in another cluster is not supported")),
        "empty" => (nothing, Some("a release of the chart is the control plane; to have none, install none")),
        _ => (nothing, Some("it is not one of Istio's profiles; put its values into the file")),
    }
}

fn demo() -> Value {
    let collector = "opentelemetry-collector.observability.svc.cluster.local";
    json!({
        "autoscaleEnabled": false,
        "replicaCount": 1,
        "traceSampling": 100,
        "resources": { "requests": { "cpu": "10m", "memory": "100Mi" } },
        "meshConfig": {
            "accessLogFile": "/dev/stdout",
            "extensionProviders": [
                { "name": "otel", "envoyOtelAls": { "service": collector, "port": 4317 } },
                { "name": "skywalking", "skywalking": { "service": "tracing.istio-system.svc.cluster.local", "port": 11800 } },
                { "name": "otel-tracing", "opentelemetry": { "service": collector, "port": 4317 } },
                { "name": "jaeger", "opentelemetry": { "service": "jaeger-collector.istio-system.svc.cluster.local", "port": 4317 } },
            ],
        },
    })
}
