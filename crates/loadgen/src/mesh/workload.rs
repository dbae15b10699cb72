//! The objects of one service: itself, its endpoints, its pods, its traffic rules.

use serde_json::{Map, Value, json};

use super::TEMPLATE_HASH;

/// Old enough for every mesh, and the same in all runs.
const CREATED: &str = "2026-01-01T00:00:00Z";

pub(super) struct Service {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) tcp: bool,
    pub(super) endpoints: usize,
    pub(super) slices: usize,
    pub(super) pods: usize,
    /// Number of its first pod among all of the mesh.
    pub(super) first_pod: usize,
    pub(super) virtual_service: bool,
    pub(super) destination_rule: bool,
    pub(super) subset: bool,
}

impl Service {
    pub(super) fn pod_name(&self, replica: usize) -> String {
        format!("{}-{TEMPLATE_HASH}-{replica:05}", self.name)
    }

    pub(super) fn pod_address(&self, replica: usize) -> String {
        let number = self.first_pod + replica;
        format!("10.{}.{}.{}", 128 + number / 62_500, number / 250 % 250, 1 + number % 250)
    }

    /// Also the number of its zone.
    pub(super) fn node_number(replica: usize) -> usize {
        replica % 3
    }

    pub(super) fn labels(&self) -> Value {
        json!({
            "app": self.name,
            "version": "v1",
            "pod-template-hash": TEMPLATE_HASH,
            "security.istio.io/tlsMode": "istio",
            "service.istio.io/canonical-name": self.name,
            "service.istio.io/canonical-revision": "v1",
        })
    }

    fn port_name(&self) -> &'static str {
        if self.tcp { "tcp-data" } else { "http" }
    }

    fn host(&self) -> String {
        format!("{}.{}.svc.cluster.local", self.name, self.namespace)
    }

    fn meta(&self, name: &str) -> Value {
        json!({ "name": name, "namespace": self.namespace, "creationTimestamp": CREATED })
    }

    pub(super) fn object(&self) -> Value {
        let mut meta = self.meta(&self.name);
        meta["labels"] = json!({ "app": self.name });
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta,
            "spec": {
                "clusterIP": self.address, "clusterIPs": [self.address], "selector": { "app": self.name },
                "ports": [{ "name": self.port_name(), "port": self.port, "protocol": "TCP", "targetPort": 8080 }],
            },
        })
    }

    pub(super) fn virtual_service_object(&self) -> Value {
        let mut destination = json!({ "host": self.host(), "port": { "number": self.port } });
        if self.subset {
            destination["subset"] = json!("v1");
        }
        let route = json!([{ "destination": destination }]);
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": self.meta(&self.name),
            "spec": {
                "hosts": [self.host()],
                "http": [
                    { "match": [{ "uri": { "prefix": "/v1/" } }], "route": route, "timeout": "5s",
                      "retries": { "attempts": 3, "perTryTimeout": "2s", "retryOn": "5xx" } },
                    { "route": route, "timeout": "10s" },
                ],
            },
        })
    }

    pub(super) fn destination_rule_object(&self) -> Value {
        let mut spec = json!({
            "host": self.host(),
            "trafficPolicy": {
                "connectionPool": { "tcp": { "maxConnections": 100 }, "http": { "http1MaxPendingRequests": 50 } },
                "outlierDetection": { "consecutive5xxErrors": 5, "interval": "10s", "baseEjectionTime": "30s" },
            },
        });
        if self.subset {
            spec["subsets"] = json!([{ "name": "v1", "labels": { "version": "v1" } }]);
        }
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": self.meta(&self.name),
            "spec": spec,
        })
    }
}

/// The part of the endpoints with this number.
pub(super) fn slice(service: &Service, part: usize) -> Value {
    let mut meta = service.meta(&format!("{}-{}", service.name, part + 1));
    meta["labels"] = json!({ "kubernetes.io/service-name": service.name });
    let endpoint = |replica: usize| {
        let node = Service::node_number(replica);
        let pod = json!({ "kind": "Pod", "name": service.pod_name(replica), "namespace": service.namespace });
        json!({
            "addresses": [service.pod_address(replica)], "conditions": { "ready": true },
            "nodeName": format!("node-{node}"), "zone": format!("zone-{node}"), "targetRef": pod,
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta, "addressType": "IPv4",
        "ports": [{ "name": service.port_name(), "port": 8080, "protocol": "TCP" }],
        "endpoints": (part..service.endpoints).step_by(service.slices).map(endpoint).collect::<Vec<_>>(),
    })
}

pub(super) fn pod(service: &Service, replica: usize) -> Value {
    let set = format!("{}-{TEMPLATE_HASH}", service.name);
    let address = service.pod_address(replica);
    let mut meta: Map<String, Value> =
        service.meta(&service.pod_name(replica)).as_object().cloned().unwrap_or_default();
    meta.insert("labels".to_owned(), service.labels());
    meta.insert("generateName".to_owned(), json!(format!("{set}-")));
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "controller": true,
        "uid": format!("00000000-0000-0000-0000-{:012}", service.first_pod),
    });
    meta.insert("ownerReferences".to_owned(), json!([owner]));
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": meta,
        "spec": {
            "nodeName": format!("node-{}", Service::node_number(replica)), "serviceAccountName": service.name,
            "containers": [{ "name": "app", "image": "app:1", "ports": [{ "containerPort": 8080 }] }],
        },
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}
