//! Addresses of the cluster's Services: private, but keys may be fetched from them.

use std::net::IpAddr;

use config::store::{Name, Snapshot};

/// The cluster IP of a Service, or a pod that a headless Service selects. Endpoints that users write do not count: they may name any address.
pub(super) fn is_service_address(objects: &Snapshot, address: IpAddr) -> bool {
    let is_cluster_ip = || objects.services.values().any(|service| service.spec.cluster_ips.contains(&address));
    is_cluster_ip() || is_headless_pod(objects, address)
}

fn is_headless_pod(objects: &Snapshot, address: IpAddr) -> bool {
    objects.pods.iter().filter(|(_, pod)| pod.spec.ips.contains(&address)).any(|(name, pod)| {
        let first = Name::new(&name.namespace, "");
        let of_namespace = objects.services.range(first..).take_while(|(other, _)| other.namespace == name.namespace);
        of_namespace.map(|(_, service)| &service.spec).any(|service| {
            service.headless && !service.selector.is_empty() && pod.meta.labels.contains_all(&service.selector)
        })
    })
}

#[cfg(test)]
mod tests {
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    use super::*;

    const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {name: keys, namespace: shop}
spec: {clusterIP: 10.0.0.7, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: issuer, namespace: shop}
spec: {clusterIP: None, selector: {app: issuer}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: issuer-0, namespace: shop, labels: {app: issuer, pod: '0'}}
status: {podIP: 10.1.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: shop, labels: {app: other}}
status: {podIP: 10.1.0.2}
---
apiVersion: v1
kind: Pod
metadata: {name: issuer-0, namespace: elsewhere, labels: {app: issuer}}
status: {podIP: 10.1.0.3}
---
apiVersion: v1
kind: Service
metadata: {name: manual, namespace: shop}
spec: {clusterIP: None, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: manual-1, namespace: shop, labels: {kubernetes.io/service-name: manual}}
addressType: IPv4
endpoints: [{addresses: [10.9.9.9]}]
ports: [{port: 80}]
";

    #[test]
    fn cluster_ips_and_pods_of_headless_services_are_services_and_nothing_else_is() {
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let parsed = parse_documents("objects.yaml", OBJECTS);
        assert_eq!(parsed.objects.len(), 7, "{:?}", parsed.diagnostics);
        let objects = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        for (address, known) in [
            ("10.0.0.7", true),
            ("10.1.0.1", true),
            ("10.1.0.2", false),
            ("10.1.0.3", false),
            ("10.9.9.9", false),
            ("10.0.0.8", false),
        ] {
            assert_eq!(is_service_address(&objects, address.parse().unwrap()), known, "{address}");
        }
    }
}
