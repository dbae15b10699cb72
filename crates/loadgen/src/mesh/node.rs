//! The node of a proxy, with as much metadata as Istio's agent gives one (about 1.9 kB).

use serde_json::{Value, json};

use super::TEMPLATE_HASH;
use super::workload::Service;

/// The node of the proxy in one replica of a service, in protobuf's JSON.
pub(super) fn node(service: &Service, replica: usize) -> Value {
    let Service { name, namespace, .. } = service;
    let (pod, address) = (service.pod_name(replica), service.pod_address(replica));
    let zone = Service::node_number(replica);
    let deployment = format!("kubernetes://apis/apps/v1/namespaces/{namespace}/deployments/{name}");
    json!({
        "id": format!("sidecar~{address}~{pod}.{namespace}~{namespace}.svc.cluster.local"),
        "cluster": format!("{name}.{namespace}"),
        "locality": { "region": "region-1", "zone": format!("zone-{zone}") },
        "user_agent_name": "envoy",
        "user_agent_build_version": { "version": { "major_number": 1, "minor_number": 38, "patch": 0 } },
        "metadata": {
            "ANNOTATIONS": {
                "istio.io/rev": "default",
                "kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z",
                "kubernetes.io/config.source": "api",
                "kubectl.kubernetes.io/default-container": "app",
                "kubectl.kubernetes.io/default-logs-container": "app",
                "prometheus.io/path": "/stats/prometheus",
                "prometheus.io/port": "15020",
                "prometheus.io/scrape": "true",
                "sidecar.istio.io/status": "{\"initContainers\":[\"istio-init\"],\"containers\":[\"istio-proxy\"]}",
            },
            "APP_CONTAINERS": "app",
            "CLUSTER_ID": "Kubernetes",
            "ENVOY_PROMETHEUS_PORT": 15090,
            "ENVOY_STATUS_PORT": 15021,
            "INSTANCE_IPS": address,
            "INTERCEPTION_MODE": "REDIRECT",
            "ISTIO_PROXY_SHA": "b5b1ad9c7e0f4d7c8a3f2e6d1c0b9a8f7e6d5c4b",
            "ISTIO_VERSION": "1.31.0",
            "LABELS": service.labels(),
            "MESH_ID": "cluster.local",
            "NAME": pod,
            "NAMESPACE": namespace,
            "NODE_NAME": format!("node-{zone}"),
            "OWNER": deployment,
            "PILOT_SAN": ["istiod.istio-system.svc"],
            "PLATFORM_METADATA": {},
            "POD_PORTS": "[{\"containerPort\":8080,\"protocol\":\"TCP\"}]",
            "PROXY_CONFIG": {
                "binaryPath": "/usr/local/bin/envoy",
                "concurrency": 2,
                "configPath": "./etc/istio/proxy",
                "controlPlaneAuthPolicy": "MUTUAL_TLS",
                "discoveryAddress": "istiod.istio-system.svc:15012",
                "drainDuration": "45s",
                "proxyAdminPort": 15000,
                "serviceCluster": "istio-proxy",
                "statNameLength": 189,
                "statusPort": 15020,
                "terminationDrainDuration": "5s",
            },
            "SERVICE_ACCOUNT": name,
            "WORKLOAD_NAME": name,
            "TEMPLATE_HASH": TEMPLATE_HASH,
        },
    })
}
