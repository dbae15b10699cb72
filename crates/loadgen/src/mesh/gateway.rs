//! Gateways with a host each, and the gateway_proxies that serve them.

use serde_json::{Value, json};

use super::node::node;
use super::workload::Service;

pub(super) const NAMESPACE: &str = "edge";

/// The service that stands before the gateway_proxies. `first_pod`: the number of their first pod among all of the mesh.
pub(super) fn gateway_proxies(count: usize, first_pod: usize) -> Service {
    Service {
        name: "gateway".to_owned(),
        namespace: NAMESPACE.to_owned(),
        address: "10.96.251.1".to_owned(),
        port: 443,
        tcp: true,
        endpoints: count,
        slices: 1,
        pods: count,
        first_pod,
        virtual_service: false,
        destination_rule: false,
        subset: false,
    }
}

pub(super) fn gateway_node(gateway_proxies: &Service, replica: usize) -> Value {
    let mut node = node(gateway_proxies, replica);
    let id = node["id"].as_str().map(|id| id.replacen("sidecar", "router", 1));
    node["id"] = json!(id);
    node
}

/// A Gateway with a certificate and a host of its own, and the VirtualService that leads from there to a service.
pub(super) fn gateway(number: usize, to: &Service) -> Vec<Value> {
    let (name, host) = (format!("gateway-{number}"), format!("h-{number}.example.com"));
    let mut leading = to.virtual_service_object();
    leading["metadata"]["name"] = json!(name);
    leading["metadata"]["namespace"] = json!(NAMESPACE);
    leading["spec"]["hosts"] = json!([host]);
    leading["spec"]["gateways"] = json!([name]);
    let server = json!({
        "port": { "number": 443, "name": format!("https-{number}"), "protocol": "HTTPS" }, "hosts": [host],
        "tls": { "mode": "SIMPLE", "credentialName": format!("cert-{number}"), "minProtocolVersion": "TLSV1_2" },
    });
    let own = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": { "name": name, "namespace": NAMESPACE, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "selector": { "app": "gateway" }, "servers": [server] },
    });
    vec![own, leading]
}
