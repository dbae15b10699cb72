//! Figures of the objects: endpoints without a pod, services without an endpoint, duplicate hosts. Computed when Prometheus scrapes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use config::kinds::endpoint_slice::EndpointSlice;
use config::kinds::pod::Pod;
use config::kinds::service::ServiceType;
use config::kinds::service_entry::ServiceEntryResolution;
use config::meta::Object;
use config::store::{Name, Snapshot};
use prometheus::{IntGauge, Result};
use xds::Register;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ObjectStats {
    endpoints_without_pod: usize,
    endpoints_not_ready: usize,
    services_without_endpoints: usize,
    names_without_endpoints: usize,
    pods_without_address: usize,
    duplicate_hosts: usize,
    duplicate_subsets: usize,
    pub(crate) expected_proxies: usize,
}

impl ObjectStats {
    /// `revision`: that of this control plane.
    pub(crate) fn of(objects: &Snapshot, revision: &str) -> ObjectStats {
        let pods = || objects.pods.values();
        let endpoints = || slices(objects).flat_map(|slice| &slice.spec.endpoints);
        let gone = |target: &config::kinds::endpoint_slice::Target| {
            target.is_pod && !objects.pods.contains_key(&Name::new(&target.namespace, &target.name))
        };
        ObjectStats {
            endpoints_without_pod: endpoints().filter(|it| it.target.as_ref().is_some_and(gone)).count(),
            endpoints_not_ready: endpoints().filter(|it| !it.ready).count(),
            services_without_endpoints: without_endpoints(objects),
            names_without_endpoints: unresolvable(objects),
            pods_without_address: pods().filter(|pod| has_sidecar(pod) && pod.spec.ips.is_empty()).count(),
            duplicate_hosts: duplicate_hosts(objects),
            duplicate_subsets: duplicate_subsets(objects),
            expected_proxies: pods().filter(|pod| is_expected(pod, revision)).count(),
        }
    }
}

impl ObjectStats {
    /// By the names of the metrics.
    pub(crate) fn by_metric(&self) -> serde_json::Value {
        serde_json::json!({
            "endpoint_no_pod": self.endpoints_without_pod,
            "pilot_endpoint_not_ready": self.endpoints_not_ready,
            "pilot_eds_no_instances": self.services_without_endpoints,
            "pilot_dns_cluster_without_endpoints": self.names_without_endpoints,
            "pilot_no_ip": self.pods_without_address,
            "pilot_vservice_dup_domain": self.duplicate_hosts,
            "pilot_destrule_subsets": self.duplicate_subsets,
        })
    }
}

/// A running pod with an injected sidecar.
pub(crate) fn has_sidecar(pod: &Object<Pod>) -> bool {
    pod.spec.outcome.is_none()
        && !pod.meta.deleting
        && pod.meta.labels.get("security.istio.io/tlsMode") == Some("istio")
}

/// Its proxy, a sidecar or a gateway, should be connected to this revision: the injector notes its revision in an annotation. One with a sidecar
/// and without the annotation was injected by other means, and is expected by everybody.
fn is_expected(pod: &Object<Pod>, revision: &str) -> bool {
    let runs = pod.spec.outcome.is_none() && !pod.meta.deleting;
    match pod.meta.annotations.get("istio.io/rev") {
        Some(injected) => runs && named(injected) == named(revision),
        None => has_sidecar(pod),
    }
}

/// The default revision has two spellings.
fn named(revision: &str) -> &str {
    if revision.is_empty() { "default" } else { revision }
}

/// With those of Endpoints, which are read instead of EndpointSlices, or in a folder beside them: a service that has EndpointSlices is served from
/// these alone.
fn slices(objects: &Snapshot) -> impl Iterator<Item = &Object<EndpointSlice>> {
    // By default no Endpoints are read, and nothing is collected.
    let sliced: HashSet<_> = match objects.endpoints.is_empty() {
        true => HashSet::new(),
        false => objects.endpoint_slices.values().map(|slice| service_of(slice)).collect(),
    };
    let endpoints = objects.endpoints.values().filter(move |slice| !sliced.contains(&service_of(slice)));
    objects.endpoint_slices.values().chain(endpoints).map(|slice| &**slice)
}

fn service_of(slice: &Object<EndpointSlice>) -> (&str, &str) {
    (&slice.meta.namespace, &slice.spec.service)
}

fn without_endpoints(objects: &Snapshot) -> usize {
    let filled = slices(objects).filter(|slice| !slice.spec.endpoints.is_empty());
    let filled: HashSet<(&str, &str)> = filled.map(service_of).collect();
    let services = objects.services.values().filter(|service| service.spec.kind != ServiceType::ExternalName);
    services.filter(|service| !filled.contains(&(&*service.meta.namespace, &*service.meta.name))).count()
}

/// Hosts with a wildcard, which DNS cannot resolve.
fn unresolvable(objects: &Snapshot) -> usize {
    let entries = objects.service_entries.values().filter(|entry| {
        matches!(entry.spec.resolution, ServiceEntryResolution::Dns | ServiceEntryResolution::DnsRoundRobin)
            && entry.spec.endpoints.is_empty()
            && entry.spec.workload_selector.is_none()
    });
    entries.flat_map(|entry| &entry.spec.hosts).filter(|host| host.starts_with('*')).count()
}

/// Hosts that several VirtualServices of one namespace have, for the mesh gateway.
fn duplicate_hosts(objects: &Snapshot) -> usize {
    let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for route in objects.virtual_services.values() {
        let in_mesh = route.spec.gateways.is_empty() || route.spec.gateways.iter().any(|gateway| gateway == "mesh");
        for host in route.spec.hosts.iter().filter(|_| in_mesh).collect::<BTreeSet<_>>() {
            *seen.entry((&route.meta.namespace, host)).or_default() += 1;
        }
    }
    seen.values().filter(|count| **count > 1).count()
}

fn duplicate_subsets(objects: &Snapshot) -> usize {
    let mut seen = HashSet::new();
    let rules = objects.destination_rules.values().filter(|rule| rule.spec.workload_selector.is_none());
    let subsets = rules.flat_map(|rule| {
        rule.spec.subsets.iter().map(|subset| (&*rule.meta.namespace, &*rule.spec.host, &*subset.name))
    });
    subsets.filter(|subset| !seen.insert(*subset)).count()
}

/// The figures as gauges.
pub(crate) struct ObjectGauges {
    gauges: Vec<(IntGauge, Read)>,
    expected: IntGauge,
}

/// The figure of a gauge.
type Read = fn(&ObjectStats) -> usize;

impl ObjectGauges {
    pub(crate) fn register(on: &Register, revision: &str) -> Result<ObjectGauges> {
        let gauge = |name: &str, help: &str, of: Read| Ok((on.gauge(name, help)?, of));
        let gauges: Result<Vec<_>> = [
            gauge("endpoint_no_pod", "endpoints whose targetRef names a pod that does not exist", |it| it.endpoints_without_pod),
            gauge(
                "pilot_k8s_endpoints_pending_pod",
                "endpoints whose pod does not exist yet, and with it their labels and service account; always equal to `endpoint_no_pod`",
                |it| it.endpoints_without_pod,
            ),
            gauge("pilot_endpoint_not_ready", "endpoints that are not ready", |it| it.endpoints_not_ready),
            gauge("pilot_eds_no_instances", "Services without an endpoint", |it| it.services_without_endpoints),
            gauge(
                "pilot_dns_cluster_without_endpoints",
                "hosts of ServiceEntries with DNS resolution that cannot be resolved, since they have a wildcard",
                |it| it.names_without_endpoints,
            ),
            gauge("pilot_no_ip", "pods with a sidecar that have no address yet", |it| it.pods_without_address),
            gauge(
                "pilot_vservice_dup_domain",
                "hosts that several VirtualServices of a namespace have, for the gateway `mesh`",
                |it| it.duplicate_hosts,
            ),
            gauge(
                "pilot_destrule_subsets",
                "subsets of a host that DestinationRules of a namespace declare twice",
                |it| it.duplicate_subsets,
            ),
        ]
        .into_iter()
        .collect();
        let expected = on.gauges(
            "meltemi_expected_proxies",
            "live pods whose annotation `istio.io/rev` names this revision, or that have the label `security.istio.io/tlsMode=istio` and no such annotation: as many \
             proxies should be connected, to all instances of this revision together",
            &["revision"],
        )?;
        Ok(ObjectGauges { gauges: gauges?, expected: expected.with_label_values(&[named(revision)]) })
    }

    pub(crate) fn set(&self, stats: &ObjectStats) {
        let set = |gauge: &IntGauge, count| gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.gauges.iter().for_each(|(gauge, of)| set(gauge, of(stats)));
        set(&self.expected, stats.expected_proxies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::store::{Store, StoreOptions};
    use sources::files::Folder;

    fn stats(text: &str) -> ObjectStats {
        stats_of(text, "")
    }

    fn stats_of(text: &str, revision: &str) -> ObjectStats {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mesh.yaml"), text).unwrap();
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        ObjectStats::of(&store.apply(Folder::open(dir.path()).scan().updates), revision)
    }

    /// A regression test: beside istiod its pods were expected too, and gateways were not.
    #[test]
    fn proxies_of_other_revisions_are_not_expected_and_gateways_are() {
        let pod = |name: &str, metadata: &str| {
            format!(
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop, {metadata}}}, status: {{phase: Running, podIP: 10.0.0.7}}}}\n"
            )
        };
        let sidecar = "labels: {security.istio.io/tlsMode: istio}";
        let mesh = [
            pod("by-hand", sidecar),
            pod("istiods", &format!("{sidecar}, annotations: {{istio.io/rev: default}}")),
            pod("ours", &format!("{sidecar}, annotations: {{istio.io/rev: canary}}")),
            pod("gateway", "annotations: {istio.io/rev: canary}"),
            pod("job", "annotations: {istio.io/rev: canary}").replace("Running", "Succeeded"),
            pod("plain", "labels: {app: plain}"),
        ]
        .concat();
        assert_eq!(stats_of(&mesh, "canary").expected_proxies, 3);
        assert_eq!(stats_of(&mesh, "").expected_proxies, 2);
        assert_eq!(stats_of(&mesh, "default").expected_proxies, 2);
    }

    #[test]
    fn a_healthy_mesh_has_only_expected_proxies() {
        let found = stats(
            "
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {ports: [{port: 80}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop, labels: {security.istio.io/tlsMode: istio}}
status: {phase: Running, podIP: 10.0.0.7}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-a, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.7], conditions: {ready: true}, targetRef: {kind: Pod, name: cart-1, namespace: shop}}]
",
        );
        assert_eq!(found, ObjectStats { expected_proxies: 1, ..ObjectStats::default() });
    }

    /// As with `PILOT_USE_ENDPOINT_SLICE=false`.
    #[test]
    fn endpoints_without_a_pod_are_counted_under_endpoints_too() {
        let endpoints = "
apiVersion: v1
kind: Endpoints
metadata: {name: cart, namespace: shop}
subsets:
- ports: [{port: 80}]
  addresses: [{ip: 10.0.0.7, targetRef: {kind: Pod, name: gone-1, namespace: shop}}]
  notReadyAddresses: [{ip: 10.0.0.8, targetRef: {kind: Pod, name: gone-2, namespace: shop}}]
";
        let found = stats(endpoints);
        assert_eq!((found.endpoints_without_pod, found.endpoints_not_ready), (2, 1));
        let slice = "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-a, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.7], conditions: {ready: true}, targetRef: {kind: Pod, name: gone-1, namespace: shop}}]
";
        let found = stats(&format!("{endpoints}{slice}"));
        assert_eq!((found.endpoints_without_pod, found.endpoints_not_ready), (1, 0), "each endpoint counts once");
    }

    #[test]
    fn every_anomaly_is_counted_once() {
        let found = stats(
            "
{apiVersion: v1, kind: Service, metadata: {name: none, namespace: shop}, spec: {ports: [{port: 80}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: new-1, namespace: shop, labels: {security.istio.io/tlsMode: istio}}
status: {phase: Pending}
---
apiVersion: v1
kind: Pod
metadata: {name: old-1, namespace: shop, labels: {security.istio.io/tlsMode: istio}}
status: {phase: Succeeded, podIP: 10.0.0.8}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-a, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.7], conditions: {ready: false}, targetRef: {kind: Pod, name: gone-1, namespace: shop}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: one, namespace: shop}
spec: {hosts: [a, a], http: [{route: [{destination: {host: a}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: two, namespace: shop}
spec: {hosts: [a], http: [{route: [{destination: {host: a}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: one, namespace: shop}
spec: {host: a, subsets: [{name: v1, labels: {v: a}}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: two, namespace: shop}
spec: {host: a, subsets: [{name: v1, labels: {v: b}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: any, namespace: shop}
spec: {hosts: ['*.example.com'], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}
",
        );
        let expected = ObjectStats {
            endpoints_without_pod: 1,
            endpoints_not_ready: 1,
            services_without_endpoints: 1,
            names_without_endpoints: 1,
            pods_without_address: 1,
            duplicate_hosts: 1,
            duplicate_subsets: 1,
            expected_proxies: 1,
        };
        assert_eq!(found, expected);
    }
}
